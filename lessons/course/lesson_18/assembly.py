"""Assemble one file of NumPy from a learner's answers: `assembled()`.

Two modules of this folder, `layers.py` and `model.py`, have the code that is no exercise. Their imports say what else
the file needs: `from ..lesson_04.solutions import causal_mask` stands for the learner's own `causal_mask`, or for the
course's if the learner's is not yet right. The package's ops, which an answer may call, become those of
`minitransformer.textbook`, and its softmax the learner's (`ops.py`). The file then imports only NumPy and Python's own
modules.
"""

import ast
import hashlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from minitransformer.system import WEBASSEMBLY
from minitransformer.system.atomic import atomic_write

from .. import answers
from ..exercise import CORRECT, exercises

ROOM = Path(__file__).parent
SOLUTIONS = re.compile(r"(?:course\.|\.\.)lesson_(\d\d)\.solutions|\.solutions")
TITLE = 'My Transformer: Vaswani et al. 2017, "Attention Is All You Need". It needs NumPy, and nothing else.'
OURS, GIVEN = "the course's, until yours is right", "given by the course"
USUAL = {"import numpy as np", "import math", "import json", "import re", "import time"}
"""Imports at the top of the file; others stay with the answer that has them."""
SEAL = "# Written by lesson 18; the digest of all above is "


class NotNumPyAlone(ValueError):
    """An answer needs a package other than NumPy; the message completes a sentence about the answer."""


class Assembled(NamedTuple):
    """The assembled file."""

    text: str
    own: dict[tuple[str, str], bool]
    """For each exercise in the file, by lesson and name, True if the answer is the learner's."""
    given: list[str]
    """The functions and classes of the file that are no exercise."""
    refused: list[str]
    """For each answer of the learner's that could not be taken, the reason."""


def assembled() -> Assembled:
    """Assemble the file of the saved answers, with the course's in place of one that is not right in it."""
    refused: dict[tuple[str, str], str] = {}
    while True:
        file = _File(refused)
        for module in ("layers", "model"):
            file.add((ROOM / f"{module}.py").read_text(encoding="utf-8"))
        imports = sorted(file.imports, key=lambda line: (line.startswith("from"), line))
        text = "\n\n\n".join([_head(file), "\n".join(imports), *file.pieces.values()]) + "\n"
        found = {part: _fault(text, *part) for part, own in file.own.items() if own}
        if not any(found.values()):
            reasons = [f"lesson {lesson}, your {name} {why}" for (lesson, name), why in refused.items()]
            return Assembled(text, file.own, file.given, reasons)
        refused |= {part: why for part, why in found.items() if why}


def _head(file: "_File") -> str:
    """Return the file's docstring: its title, and whose each part is."""
    lines = ['"""' + TITLE]
    for whose, mine in (("Mine", True), (OURS.capitalize(), False)):
        parts = [part for part, own in file.own.items() if own == mine]
        lines += ["", f"{whose}: {len(parts)} of {len(file.own)} parts"] * bool(parts)
        for lesson in sorted({lesson for lesson, _ in parts}):
            lines.append(f"    lesson {lesson}: {', '.join(name for number, name in parts if number == lesson)}")
    return "\n".join([*lines, "", f"{GIVEN.capitalize()}:", f"    {', '.join(file.given)}", '"""'])


def _fault(text: str, lesson: str, name: str) -> str:
    """Return what is wrong with an exercise's answer in the file; an empty string if it is right."""
    try:
        verdict = exercises(lesson)[name].verdict(answers.load_function(text, name, "my_transformer"))
    except answers.Damaged as damage:
        return f"{damage}, in the file"
    return "" if verdict.state == CORRECT else "is no longer right in the file"


def write() -> Path:
    """Write the file into the folder of the answers, print whose each part is, and return the file's path."""
    text, own, given, refused = assembled()
    path = answers.folder() / "my_transformer.py"
    if path.exists() and not _untouched(path.read_bytes()):
        kept = next(each for number in count(1) if not (each := path.with_name(f"{path.stem}_{number}.py")).exists())
        path.rename(kept)
        print(f"{path.name} had changes of yours: it is {kept.name} now")
    with atomic_write(path) as file:
        file.write(_sealed(text))
    print(f"{path.name}: {len(text.splitlines())} lines, {sum(own.values())} of its {len(own)} parts are yours")
    for lesson in sorted({lesson for lesson, _ in own}):
        parts = [f"{'✓' if own[lesson, name] else '·'} {name}" for number, name in own if number == lesson]
        print(f"   {lesson}   {'   '.join(parts)}")
    print(f"   {GIVEN}: {', '.join(given)}")
    print("".join(f"   {reason}: the course's stands in\n" for reason in refused), end="")
    return path


def _sealed(text: str) -> bytes:
    """Return the file's bytes with a last line that holds their digest, to detect changes."""
    content = text.encode()
    return content + f"{SEAL}{hashlib.sha256(content).hexdigest()}\n".encode()


def _untouched(content: bytes) -> bool:
    return content == _sealed(content.rpartition(SEAL.encode())[0].decode("utf-8", "replace"))


def part(lesson: str, name: str) -> Callable[..., Any]:
    """Return the learner's answer to an exercise, or else the course's."""
    module = f"course.lesson_{lesson}.solutions"
    try:
        return answers.load_function(answers.read_answer(lesson, name), name, module)
    except (FileNotFoundError, answers.Damaged):  # no answer, or a damaged one: `write` says so
        return getattr(import_module(module), name)


def imported(path: Path) -> Any:
    """Import the file and return it as a module."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ALONE = """
import sys

class OnlyNumPy:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {"numpy", *sys.stdlib_module_names}:
            raise ImportError(f"{name} is not NumPy")

import numpy
sys.meta_path.insert(0, OnlyNumPy())
exec(open(sys.argv[1], encoding="utf-8").read())
print("it needs NumPy alone")
"""


def run_with_numpy_alone(path: Path) -> None:
    """Run the file with a Python that refuses all packages but NumPy, and print what it says."""
    if WEBASSEMBLY:
        print("a browser starts no second Python: on your own machine this cell runs the file with NumPy alone")
        return
    done = subprocess.run([sys.executable, "-c", ALONE, path], capture_output=True, text=True)
    print(done.stdout.strip() or done.stderr.strip())


class _File:
    """The file under construction: its `pieces` by name, in order."""

    def __init__(self, refused: dict[tuple[str, str], str]) -> None:
        self.imports, self.pieces = set[str](), dict[str, str]()
        self.own: dict[tuple[str, str], bool] = {}
        self.given = list[str]()
        self.refused = refused

    def add(self, text: str, lesson: str = "", exercise: str = "", whose: str = "") -> None:
        """Add a module after its imports: all of it, or an exercise's answer with the code that it uses."""
        statements = list(_statements(text))
        defined = {name for node, _ in statements if (name := _defined(node))}
        others = defined & set(exercises(lesson)) - {exercise} if lesson else set[str]()
        for name in sorted(others):  # answers to other exercises are added once, on their own
            self.exercise(lesson, name)
        inside, alone = [], True
        for node, source in statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                kept = self.add_import(node, source)
                inside += kept
                alone = alone and all(line in USUAL for line in kept)
            elif _defined(node) not in others:
                inside.append(source)
        if not exercise:
            self.imports |= {line for line in inside if line.startswith(("import ", "from "))}
            self.pieces |= {
                name: self.give(name, node, source) for node, source in statements if (name := _defined(node))
            }
            return
        head = f"# Lesson {lesson}: {whose}\n"
        if alone and defined - others == {exercise}:
            self.imports |= {line for line in inside if line in USUAL}
            self.pieces[exercise] = head + inside[-1]
        else:  # wrap the answer's helpers, constants and imports in a function, so that names do not clash
            body = textwrap.indent("\n\n".join([*inside, f"return {exercise}"]), "    ")
            self.pieces[exercise] = f"{head}def _{exercise}():\n{body}\n\n\n{exercise} = _{exercise}()"

    def give(self, name: str, node: ast.stmt, source: str) -> str:
        """Return what the course gives, a function or a class with a comment that says so."""
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            return source
        self.given.append(name)
        return f"# {GIVEN.capitalize()}\n{source}"

    def add_import(self, node: ast.Import | ast.ImportFrom, source: str) -> list[str]:
        """Add the other answers or textbook ops that an import stands for; return the rest of the import."""
        if isinstance(node, ast.Import):
            self.check(*(alias.name for alias in node.names))
            return [source]
        module, left = "." * node.level + (node.module or ""), []
        lesson = SOLUTIONS.fullmatch(module)
        for alias in node.names:
            if lesson:
                self.exercise(lesson[1] or ROOM.name[-2:], alias.name)
            elif module.startswith("minitransformer"):
                self.add_op(alias.name)
            elif not module.startswith((".", "course.lesson_18")):  # those are in the file already
                self.check(module)
                left.append(f"from {module} import {ast.unparse(alias)}")
                continue
            if alias.asname:
                left.append(f"{alias.asname} = {alias.name}")
        return left

    def exercise(self, lesson: str, name: str) -> None:
        """Add the learner's answer, or else the course's."""
        key = lesson, name
        if key in self.own:
            return
        self.own[key] = key not in self.refused
        if self.own[key]:
            before = self.imports.copy(), self.pieces.copy(), self.own.copy(), self.given.copy()
            try:
                text = answers.read_answer(lesson, name)
                self.add(text, lesson, name, "mine")
                answers.load_function(text, name)  # an answer that raises would break the whole file
                return
            except FileNotFoundError:
                pass
            except (NotNumPyAlone, answers.Damaged) as reason:
                self.refused[key] = str(reason)
            self.imports, self.pieces, self.own, self.given = before
            self.own[key] = False
        solution = getattr(import_module(f"course.lesson_{lesson}.solutions"), name)
        self.add("\n\n\n".join(answers.standalone_parts(solution)), lesson, name, OURS)

    def add_op(self, name: str) -> None:
        """Add an op as the textbook prints it. Raises `NotNumPyAlone` if the textbook does not have it."""
        from minitransformer import textbook

        if name in self.pieces:
            return
        if name == "softmax_forward":
            self.add((ROOM / "ops.py").read_text(encoding="utf-8"))
            return
        function = getattr(textbook, name, None)
        if function is None or getattr(function, "__module__", "").rpartition(".")[0] != textbook.__name__:
            raise NotNumPyAlone(f"uses minitransformer's {name}, which its textbook does not have")
        self.pieces[name] = ""  # being added: stop a recursion
        lines = _statements("\n\n\n".join(answers.standalone_parts(function)))
        for node, source in lines:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports |= set(self.add_import(node, source))
            else:
                self.pieces[_defined(node)] = self.give(_defined(node), node, source)

    def check(self, *modules: str) -> None:
        """Raise `NotNumPyAlone` for a module that is neither NumPy's nor Python's own."""
        for module in modules:
            if module.split(".")[0] not in {"numpy", *sys.stdlib_module_names} - {"__future__"}:
                raise NotNumPyAlone(f"imports {module}")


def _statements(text: str) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a module but its docstring, each with its source and the comments right above it."""
    lines, tree, end = text.splitlines(), ast.parse(text), 0
    for node in tree.body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) - 1
        above = first
        while above > end and lines[above - 1].startswith("#"):
            above -= 1
        end = node.end_lineno or node.lineno
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield node, "\n".join(lines[above:end])


def _defined(node: ast.stmt) -> str:
    """Return the name that a statement defines, or an empty string."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
    return ""
