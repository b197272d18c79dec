"""What commands share: the parser, options made from dataclasses, and the set-up before heavy work."""

import argparse
import sys
import textwrap
import types
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from ..memory import keep_freed_memory


class Parser(argparse.ArgumentParser):
    """A parser whose epilog keeps its lines, and whose errors are one line, raised rather than printed.

    In an epilog `{program}` stands for how the program was called. A command whose last argument is a list names it
    with `set_defaults(trailing=...)`: then options may stand before the list or inside it.
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
        args, others = self.parse_known_args(argv)
        trailing = getattr(args, getattr(args, "trailing", ""), None)
        if others and (trailing is None or any(other.startswith("-") for other in others)):
            self.error(f"unrecognized arguments: {' '.join(others)}")
        if trailing is not None:
            trailing.extend(others)  # argparse ends a list at the first option
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
            number = _number_type(hint)
            group.add_argument(option, type=number, metavar="N" if number is int else "X", **arguments)


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Those of the options `names` that the user gave."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def add_threads_option(parser: argparse.ArgumentParser) -> None:
    """`--threads` for commands that do not train."""
    help_text = "threads that share the sentences (default: one a core)"
    parser.add_argument("--threads", type=positive_int, metavar="N", help=help_text)


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """How translations are searched; the paper's values unless given (Vaswani 2017, §6.1)."""
    help_text = "width of the search, 1 is greedy (default: 4)"
    parser.add_argument("--beam", type=positive_int, default=4, metavar="N", help=help_text)
    help_text = "α: more favours longer translations (default: 0.6)"
    parser.add_argument("--length-penalty", type=float, default=0.6, metavar="X", help=help_text)


def positive_int(text: str) -> int:
    """An argument that counts something."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


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
    """A translation as a line of a file: a line break that a model writes becomes a space."""
    return text.replace("\r", " ").replace("\n", " ")


def progress_wanted() -> bool:
    """Whether anybody watches: a bar in a file is only noise."""
    return sys.stderr is not None and sys.stderr.isatty()


def say(line: str = "") -> None:
    """Print a line of a report at once, though standard output be a file."""
    print(line, flush=True)


def _number_type(hint: Any) -> type:
    """int or float, from `int`, `float`, `int | None` or `float | None`."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (choice for choice in get_args(hint) if choice is not type(None))
    return hint
