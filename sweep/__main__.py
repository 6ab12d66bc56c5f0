"""Entry point of `python -m sweep`, which equals the script `sweep`."""

from sweep.cli import main

main()
