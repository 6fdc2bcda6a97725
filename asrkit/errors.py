"""The root of all errors that are the user's to mend."""


class UserError(ValueError):
    """Names what was wrong, the value, and what would be right; commands print it as one line."""
