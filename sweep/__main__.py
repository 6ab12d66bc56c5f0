"""`python -m sweep`: the same as the script `sweep`."""

from sweep.cli import main

main()
