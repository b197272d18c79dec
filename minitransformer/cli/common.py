"""What commands share: the parser, what reads its arguments, options made from dataclasses, and printing."""

import argparse
import math
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import takewhile
from reprlib import repr as shortened
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from ..data.corpus import is_language
from ..decoding import MOST_LENGTH_PENALTY
from ..memory import keep_freed_memory
from ..threads import MOST_THREADS
from ..visible import visible

MOST_BEAMS = 1000
"""Far beyond any use: translations get worse from a few dozen on (Koehn & Knowles 2017, figure 10, up to 1,000)."""


class Parser(argparse.ArgumentParser):
    """A parser whose epilog keeps its lines, and whose errors are one line, raised rather than printed.

    In an epilog `{program}` stands for how the program was called. A command whose last argument is a list gives it,
    as `add_argument` returned it, to `set_defaults(trailing=...)`: then options may stand before the list or inside it.
    """

    def __init__(self, *, epilog: str = "", **options: Any) -> None:
        super().__init__(
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28),
            epilog=textwrap.dedent(epilog).replace("{program}", invocation()),
            allow_abbrev=False,
            **options,
        )

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The arguments of a command; raises ValueError with what is wrong with them."""
        argv = sys.argv[1:] if argv is None else list(argv)
        for argument in takewhile(lambda each: each != "--", argv):
            if argument.startswith("--") and argument.endswith("=--"):  # argparse would take it for no value
                self.error(f"argument {argument.removesuffix('=--')}: expected a value, got '--'")
        args, others = self.parse_known_args(argv)
        trailing = getattr(args, "trailing", None)
        if others and (trailing is None or any(other.startswith("-") for other in others)):
            self.error(f"unrecognized arguments: {' '.join(others)}")
        if trailing is not None:  # argparse ends a list at the first option
            try:
                getattr(args, trailing.dest).extend(map(trailing.type or str, others))
            except argparse.ArgumentTypeError as error:
                self.error(f"argument {trailing.metavar}: {error}")
        return args

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with what is wrong and where to read more."""
        raise ValueError(f"{message} (see `{self.prog} --help`)")


def invocation() -> str:
    """How the user called the program: as a module, or by its entry point."""
    return "python -m minitransformer" if sys.argv[0].endswith(("__main__.py", "-m")) else "minitransformer"


def add_field_options(
    group: argparse._ArgumentGroup, cls: Any, help_of: Mapping[str, str], of_preset: Collection[str]
) -> None:
    """An option for each field of a dataclass that `help_of` names, with its default unless the preset decides it.

    Only those that were given appear in the namespace.
    """
    hints, default_of = get_type_hints(cls), {field.name: field.default for field in fields(cls)}
    for name, help_text in help_of.items():
        option, hint, default = "--" + name.replace("_", "-"), hints[name], default_of[name]
        if default is not None and name not in of_preset:
            help_text += f" (default: {default})"
        arguments: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": help_text}
        if hint is bool:
            group.add_argument(option, action=argparse.BooleanOptionalAction, **arguments)
        elif get_origin(hint) is Literal:
            group.add_argument(option, choices=get_args(hint), **arguments)
        else:
            whole = int in (hint, *get_args(hint))
            read = whole_number(-sys.maxsize) if whole else number()  # the class knows the bounds
            group.add_argument(option, type=read, metavar="N" if whole else "X", **arguments)


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Those of the options `names` that the user gave."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def add_threads_option(parser: argparse.ArgumentParser) -> None:
    """`--threads` for commands that do not train."""
    help_text = "threads that share the sentences (default: one a core)"
    parser.add_argument("--threads", type=whole_number(most=MOST_THREADS), metavar="N", help=help_text)


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """How translations are searched; the paper's values unless given (Vaswani 2017, §6.1)."""
    help_text = "width of the search, 1 is greedy (default: 4)"
    parser.add_argument("--beam", type=whole_number(most=MOST_BEAMS), default=4, metavar="N", help=help_text)
    help_text = "α: more favours longer translations (default: 0.6)"
    read = number(0, MOST_LENGTH_PENALTY)
    parser.add_argument("--length-penalty", type=read, default=0.6, metavar="X", help=help_text)


def whole_number(least: int = 1, most: int = sys.maxsize) -> Callable[[str], int]:
    """What reads a whole number within these bounds, in decimal digits, and says so of what is none."""

    def read(text: str) -> int:
        if not re.fullmatch("[+-]?[0-9]+", text):
            raise argparse.ArgumentTypeError(f"expected a whole number, got {shortened(text)}")
        digits = text.lstrip("+-0") or "0"
        value = int(digits[:20]) * (-1 if text[0] == "-" else 1)  # twenty digits are beyond every bound already
        return _within(value, least, most, text)

    return read


positive_int = whole_number()


def number(least: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    """What reads a finite number within these bounds, in decimal digits, and says so of what is none."""

    def read(text: str) -> float:
        value = math.nan
        if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            value = float(text)
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"expected a finite number, got {shortened(text)}")
        return _within(value, least, most, text)

    return read


def path_name(text: str) -> str:
    """An argument that names a file or folder: not the empty one, which would pass for none."""
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file or folder, got an empty one")
    return text


def language(text: str) -> str:
    """An argument that names a language."""
    if not is_language(text):
        raise argparse.ArgumentTypeError(f"expected a language, the suffix of files such as en, got {shortened(text)}")
    return text


@contextmanager
def heavy_work() -> Iterator[None]:
    """Set up the process for arithmetic: memory kept, and no warnings about overflow.

    Those would stand in many lines before the one that says what happened: that a training diverged, at which step.
    """
    keep_freed_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def one_line(text: str) -> str:
    """A translation as a line: a line break or tab that a model writes becomes a space, what a terminal obeys visible.

    A tab would pass for the end of a column.
    """
    return visible(re.sub("[\r\n\t]", " ", text))


def progress_wanted() -> bool:
    """Whether anybody watches: a bar in a file is only noise."""
    return sys.stderr is not None and sys.stderr.isatty()


def say(*lines: str) -> None:
    """Print lines of a report at once, though standard output be a file; an empty one where none is given."""
    for line in lines or ("",):
        print(visible(line), flush=True)


def as_bytes(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} PB"


def _within(value: Any, least: float, most: float, text: str) -> Any:
    """The value; raises ArgumentTypeError where it lies outside, with the text that it was read from."""
    if value < least:
        raise argparse.ArgumentTypeError(f"expected at least {least:,}, got {shortened(text)[1:-1]}")
    if value > most:
        raise argparse.ArgumentTypeError(f"expected at most {most:,}, got {shortened(text)[1:-1]}")
    return value
