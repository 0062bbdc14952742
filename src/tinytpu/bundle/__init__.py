"""Bundles: a program, what memory holds before it runs, and what is output after it (datasheet 2).

`content` is a bundle as a value and the rules it keeps; `numbers` its file of decimal integers.
"""

from tinytpu.bundle.content import Bundle, Entry
from tinytpu.bundle.numbers import dump, load, loads

__all__ = ["Bundle", "Entry", "dump", "load", "loads"]
