"""Makes text from outside (a file, a sentence, a server's answer) safe to print on a terminal."""

import re

# Characters that a terminal obeys, that break a line, or that change the direction of text; and lone surrogates.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return `text` in one line, with control characters as Python writes them: escapes are shown, not obeyed.

    Other characters that do not print, such as a no-break space or a joiner, stay: they are text and do no harm.
    """
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def printed(text: str) -> str:
    r"""Return `text` with every character that does not print as Python writes it: for labels, where spaces matter."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
