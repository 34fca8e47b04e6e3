"""`python -m collector`: the command line."""

from collector.cli import main

main()
