"""Exceptions that the command line turns into one clear line."""

INTERRUPTED = 130
"""Exit code of what a signal stopped."""


class UserError(Exception):
    """A wrong input: recipe key, file, row, model name.

    The message is one line that says what is wrong *and what to do*; the command line prints it to stderr without a
    traceback and exits with code 2.
    """


class RunFailed(Exception):
    """A run that can't go on through no fault of its input, or that an alarm stopped. The message says how to continue;
    exit code 1."""


class RunStopped(Exception):
    """A run that a signal stopped, with a checkpoint to continue from; exit code 130."""


class OtherProcess(Exception):
    """This process of several ends because another one does, which says why.

    Args:
        code: exit code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"another process ended with exit code {code}")
        self.code = code
