"""`python -m sweep.plan`: a study's trials, what of them is stored, and what the rest costs."""

import sys

if __name__ == "__main__":
    from sweep.cli import main

    main(["plan", *sys.argv[1:]])
