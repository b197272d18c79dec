"""Text that somebody else wrote, in a file, a sentence or a server's answer, as a terminal may be given it."""

import re

# What a terminal obeys, what would break the line, what turns the direction of the text after it, and half a pair.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""`text` in one line, its control characters as Python writes them: an escape sequence is shown, not obeyed.

    What else does not print stays, a no-break space or a joiner: it belongs to the text and does no harm.
    """
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)
