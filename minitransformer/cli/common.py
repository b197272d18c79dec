"""Shared by all commands: the parser, readers of arguments, options made from dataclasses, and printing."""

import argparse
import math
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from ..data.sentence_pairs import is_language
from ..decoding import MOST_LENGTH_PENALTY
from ..system.allocator import keep_freed_memory
from ..system.atomic import atomic_write
from ..system.threads import MOST_THREADS
from ..system.visible import visible
from ..training.parallel.processes import TIMEOUT

T = TypeVar("T")
R = TypeVar("R")

MOST_BEAMS = 1000
"""The widest beam. From a few dozen on translations get worse (Koehn & Knowles 2017, figure 10, up to 1,000)."""


class Parser(argparse.ArgumentParser):
    """A parser whose epilog keeps its lines, and which raises an error, in one line, instead of printing it.

    In an epilog `{program}` is replaced by the way the program was called. A command whose last argument is a list
    passes it, as `add_argument` returned it, to `set_defaults(trailing=...)`: then options may also stand before the
    list or inside it.
    """

    def __init__(self, *, epilog: str = "", **options: Any) -> None:
        super().__init__(
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28),
            epilog=textwrap.dedent(epilog).replace("{program}", invocation()),
            allow_abbrev=False,
            **options,
        )

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parse the arguments of a command. Raises ValueError, saying what is wrong with them."""
        argv = sys.argv[1:] if argv is None else list(argv)
        for argument in takewhile(lambda each: each != "--", argv):
            if argument.startswith("--") and argument.endswith("=--"):  # argparse would find no value in it
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
        """Raise ValueError with the message, and with the command that shows the help."""
        raise ValueError(f"{message} (see `{self.prog} --help`)")


def invocation() -> str:
    """Return the program as the user called it: as a module, or by its entry point."""
    return "python -m minitransformer" if sys.argv[0].endswith(("__main__.py", "-m")) else "minitransformer"


def add_field_options(
    group: argparse._ArgumentGroup, cls: Any, help_of: Mapping[str, str], of_preset: Collection[str]
) -> None:
    """Add an option for each field of a dataclass that `help_of` names; `of_preset` are fields whose default varies.

    The namespace gets only the options that the user gave.
    """
    hints, default_of = get_type_hints(cls), {field.name: field.default for field in fields(cls)}
    for name, help_text in help_of.items():
        option, hint, default = "--" + name.replace("_", "-"), hints[name], default_of[name]
        if default is not None and name not in of_preset:
            help_text += f" (default: {default})"
        arguments: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": help_text}
        if hint is bool or True in get_args(hint):
            group.add_argument(option, action=argparse.BooleanOptionalAction, **arguments)
        elif get_origin(hint) is Literal:
            group.add_argument(option, choices=get_args(hint), **arguments)
        else:
            whole = int in (hint, *get_args(hint))
            read = whole_number(-sys.maxsize) if whole else number()  # the class knows the bounds
            group.add_argument(option, type=read, metavar="N" if whole else "X", **arguments)


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the options in `names` that the user gave, with their values."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def add_option(
    group: argparse._ActionsContainer, name: str, metavar: str, read: Callable[[str], Any], help: str, **more: Any
) -> argparse.Action:
    """Add an option or argument with one value, or with a list of them if `nargs` is given."""
    return group.add_argument(name, metavar=metavar, type=read, help=help, **more)


def add_timeout_option(parser: argparse._ActionsContainer) -> None:
    """Add the option for how long processes wait for each other."""
    help_text = f"how long a process of several waits for the others (default: {TIMEOUT:g})"
    add_option(parser, "--timeout", "SECONDS", number(0.1, 1e6), help_text, default=TIMEOUT)


def add_translation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the search, with the paper's defaults (Vaswani 2017, §6.1), and `--threads`."""
    beam, penalty = whole_number(most=MOST_BEAMS), number(0, MOST_LENGTH_PENALTY)
    add_option(parser, "--beam", "N", beam, "width of the search, 1 is greedy (default: 4)", default=4)
    help_text = "α: more favours longer translations (default: 0.6)"
    add_option(parser, "--length-penalty", "X", penalty, help_text, default=0.6)
    help_text = "threads that share the sentences (default: one a core)"
    add_option(parser, "--threads", "N", whole_number(most=MOST_THREADS), help_text)


def check_utf8(name: str, text: str) -> None:
    """Raise ValueError for an argument that was not UTF-8: Python marks its bytes with surrogates."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{name} is not UTF-8")


def whole_number(least: int = 1, most: int = sys.maxsize) -> Callable[[str], int]:
    """Return a function that reads a whole number within these bounds, in decimal digits, or raises an error."""

    def convert(text: str) -> int:
        digits = text.lstrip("+-0")[:20] or "0"  # a number of twenty digits is beyond every bound
        return -int(digits) if text[0] == "-" else int(digits)

    return _reader("a whole number", "[+-]?[0-9]+", convert, least, most)


def number(least: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    """Return a function that reads a finite number within these bounds, in decimal digits, or raises an error."""
    return _reader("a finite number", r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", float, least, most)


def _reader(kind: str, pattern: str, convert: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = convert(text) if re.fullmatch(pattern, text) else math.nan
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"expected {kind}, got {shortened(text)}")
        if not least <= value <= most:
            bound = f"at least {least:,}" if value < least else f"at most {most:,}"
            raise argparse.ArgumentTypeError(f"expected {bound}, got {shortened(text)[1:-1]}")
        return value

    return read


positive_int = whole_number()


def path_name(text: str) -> str:
    """Read the name of a file or folder; an empty name is an error, since it would count as no name."""
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file or folder, got an empty one")
    return text


def language(text: str) -> str:
    """Read the name of a language."""
    if not is_language(text):
        raise argparse.ArgumentTypeError(f"expected a language, the suffix of files such as en, got {shortened(text)}")
    return text


@contextmanager
def heavy_work() -> Iterator[None]:
    """Set up the process for arithmetic: keep freed memory, and silence NumPy's warnings about overflow.

    The warnings would fill many lines before the one line that says at which step a training diverged.
    """
    keep_freed_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def in_groups(
    function: Callable[[list[T]], list[R]], items: Sequence[T], groups: int, map: Callable[..., Iterable[list[R]]] = map
) -> list[R]:
    """`function` of all items, in order; it gets `groups` parts of them in turn, which `map` may share out."""
    results = dict[int, R]()
    for group, found in enumerate(map(function, [list(items[group::groups]) for group in range(groups)])):
        results |= zip(range(group, len(items), groups), found, strict=True)
    return [results[i] for i in range(len(items))]


@contextmanager
def silent_unless(speaks: bool) -> Iterator[None]:
    """A block that prints nothing unless it `speaks`: of several processes one does."""
    with ExitStack() as stack:
        if not speaks:
            stack.enter_context(redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        yield


def one_line(text: str) -> str:
    """Return a translation as one line: line breaks and tabs become spaces, other control characters are shown."""
    return visible(re.sub("[\r\n\t]", " ", text))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file with one sentence a line."""
    with atomic_write(path) as file:
        file.writelines(one_line(line).encode("utf-8", "replace") + b"\n" for line in lines)


def say(*lines: str) -> None:
    """Print lines of a report without delay, even into a file; an empty line if none is given."""
    for line in lines or ("",):
        print(visible(line), flush=True)


def as_bytes(count: float) -> str:
    """Return a number of bytes as text, such as "2.35 MB"."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} PB"
