"""The two exceptions that are shown to a user as a message instead of a traceback, and what commands exit with."""

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130


class UserError(ValueError):
    """Something the user can put right: printed as it is, exit code 2."""


class SweepEnded(RuntimeError):
    """What a sweep runs on gave way, through nobody's mistake: printed as it is, exit code 1."""
