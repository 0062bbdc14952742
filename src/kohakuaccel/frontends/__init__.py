"""Frontends: they translate another framework's programs into the graph. No machine in them."""
