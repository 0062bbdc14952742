"""`python -m kohakuaccel.cli`, for where the `kohaku` script is not on the path."""

from kohakuaccel.cli import main

main()
