"""`python -m ade.cli` is the same as `ade`."""

from ade.cli import main

main()
