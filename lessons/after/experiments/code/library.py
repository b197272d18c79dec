"""The functions of Python's own standard library, one a line, and what judges functions that a model writes.

    def clear(self):               def clear(self):¶→while self:¶→→self.pop()
        while self:
            self.pop()

Each is what `ast.unparse` makes of it, without docstrings and comments: one way to lay out and to quote, so that a
small model has a smaller language to learn. Every line break is a ¶, followed by a → for each four spaces before the
next line. Kept are those in ASCII, so that no function has these two signs; `text_of` gives the function back.

As a program it writes the lines to a file; `train --reward FILE.py:parses` reads the judge from this file.
"""

import ast
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

LONGEST = 400
"""The most characters of a function."""

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "encodings"}
"""Folders that are not read: other packages, tests, programs, and `encodings`, a hundred modules that are alike."""

HELD_OUT = "f"
"""The first hexadecimal digit of the hash of a module that validates: one in sixteen."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, bool]]:
    """Yield each function once, as a line, and whether its module is for training; those for validation come last.

    The order is that of the hashes of the modules' names. Functions inside of functions are no functions of their own.
    """
    root, seen = Path(sysconfig.get_path("stdlib")), set[str]()
    names = (path.relative_to(root) for path in root.rglob("*.py"))
    digests = {sha256(name.as_posix().encode()).hexdigest(): name for name in names if not LEFT_OUT & set(name.parts)}
    for digest, name in sorted(digests.items()):
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse((root / name).read_bytes())
        for function in outermost(tree):
            text = ast.unparse(without_docstrings(function))
            line = line_of(text)
            if len(text) <= LONGEST and text.isascii() and line.isprintable() and line not in seen:
                seen.add(line)
                yield line, digest < HELD_OUT


def outermost(node: ast.AST) -> Iterator[Function]:
    """Yield the functions of a module and the methods of its classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child
        else:
            yield from outermost(child)


def without_docstrings(function: Function) -> Function:
    """Take the docstrings out of a function, and of all that is defined in it."""
    for node in ast.walk(function):
        if isinstance(node, Function | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return function


def line_of(text: str) -> str:
    """A function as one line."""
    return re.sub("\n( *)", lambda found: "¶" + "→" * (len(found[1]) // 4) + " " * (len(found[1]) % 4), text)


def text_of(line: str) -> str:
    """The function that `line_of` made a line of."""
    return re.sub("¶(→*)", lambda found: "\n" + 4 * len(found[1]) * " ", line)


def parses(lines: Sequence[str]) -> list[float]:
    """1 for each line that `ast.parse` accepts as Python, else 0: a reward. The text is not run."""
    return [float(_is_accepted(line, ast.PyCF_ONLY_AST)) for line in lines]


def compiles(lines: Sequence[str]) -> list[float]:
    """1 for each line that `compile` accepts, else 0: it refuses more, such as two arguments of one name."""
    return [float(_is_accepted(line, 0)) for line in lines]


def _is_accepted(line: str, flags: int) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(text_of(line), "<a line>", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python library.py FILE")
    with open(sys.argv[1], "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line, _ in functions())
