"""Number formats as values."""
