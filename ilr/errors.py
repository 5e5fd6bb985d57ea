"""The one exception for what a user gave wrong."""


class InputError(ValueError):
    """A value that a user gave cannot be used.

    The message says what was given, what is allowed and, where there is one, which option; the
    command line shows it alone, without a traceback, and exits with status 2.
    """
