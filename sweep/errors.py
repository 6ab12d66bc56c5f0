"""Exit codes, and the two exceptions that are shown to a user as a message instead of a traceback."""

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130


class UserError(ValueError):
    """A mistake that the user can correct. It is printed as it is, with exit code 2."""


class SweepEnded(RuntimeError):
    """A failure of the environment that is not the user's mistake. It is printed as it is, with exit code 1."""
