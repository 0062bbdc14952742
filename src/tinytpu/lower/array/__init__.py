"""Products of int8 matrices on the array: how they are cut, dispatched, chained, and what is around them."""
