"""The one exception that is shown to a user as a message instead of a traceback."""


class UserError(ValueError):
    """Something the user can put right: printed as it is, exit code 2."""
