"""The one exception that stands for a user's mistake."""


class UserError(Exception):
    """A wrong input: recipe key, file, row, model name.

    The message is one line that says what is wrong *and what to do*; the command line prints it to stderr without a
    traceback and exits with code 2.
    """
