"""The error for files that hold no model."""

from ..system.visible import visible

LONGEST_MESSAGE = 1000


class PretrainedError(ValueError):
    """A folder without a model that this program can run, or a model that another library's files can't express.

    Names from the folder can't break the message: it is one line of at most LONGEST_MESSAGE characters, with control
    characters escaped.
    """

    def __init__(self, message: str) -> None:
        message = visible(message)
        most = LONGEST_MESSAGE - 3
        super().__init__(message if len(message) <= most else f"{message[: most - 200]} … {message[-200:]}")
