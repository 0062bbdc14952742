"""`python -m tinytpu`, for where the `tinytpu` script is not on the path."""

from tinytpu.cli import main

main()
