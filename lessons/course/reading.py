"""What a notebook answers, and what each answer needs of it: the statements, and no more, that make it work.

A notebook is read as *Run all* leaves it: what a name means at the end counts. An answer brings the imports, the
functions, the constants and the arrays that it uses, from whatever cell, and what these use. Nothing else is run: no
training, no picture.
"""

import ast
import dis
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, TypeGuard

from . import answers
from .exercise import NOT_YET
from .finding import asked, cells_in, functions_in, meaning, without_magic
from .sources import checked, fresh, number_of, parsed, sources, title

LARGEST = 64_000_000  # bytes of a notebook: pictures are large
MOST_CODE = 1_000_000  # characters of its code
TITLE = re.compile(r"^#\s*(\d\d)\s*·\s*(.+?)\s*$", re.MULTILINE)
AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as a notebook does
LOADS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}

ANSWERED, MISSING, UNREADABLE = "answered", "missing", "unreadable"


class Unreadable(ValueError):
    """A file in which nobody can find answers; the message is the end of a sentence about it."""


class Piece(NamedTuple):
    """Statements of one cell, by their places in it; in plain data, as it is sent to another process."""

    cell: int
    text: str
    places: list[int]


@dataclass
class Answer:
    """What a notebook has for one exercise."""

    state: str
    why: str = ""
    pieces: list[Piece] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    """Other exercises that the answer calls."""


def read(path: str, named: str | None) -> dict[str, Any]:
    """The lesson of a notebook and its answers, as plain data; `named` is the lesson that the file's name says.

    {"lesson": "04" or None, "answers": {name: Answer as a dict}}, or with "why" where it is unreadable.
    """
    lesson = named
    try:
        try:
            content = answers.bytes_of(Path(path), LARGEST, "notebook of the course")
            cells = cells_in(content)
        except (answers.Damaged, ValueError) as why:
            raise Unreadable(str(why)) from None
        except FileNotFoundError:
            raise Unreadable("is no longer there") from None
        code = _code(cells)
        if sum(map(len, code)) > MOST_CODE:
            raise Unreadable(f"has more code than any notebook of the course ({sum(map(len, code)):,} characters)")
        lesson = _titled(cells) or named or _by_exercises(code)
        if lesson is None:
            raise Unreadable("is no lesson that the course knows: neither its name, its title nor its functions say so")
        source = next(source for source in sources() if number_of(source) == lesson)
        prose = [cell["source"] for cell in cells if cell.get("cell_type", "code") != "code"]
        found = {name: vars(answer) for name, answer in answers_of(source, code, prose).items()}
        return {"lesson": lesson, "answers": found}
    except Unreadable as why:
        return {"lesson": lesson, "why": str(why)}


def _code(cells: list[dict[str, Any]]) -> list[str]:
    """The texts of cells of code, with an empty one for each cell of prose."""
    return [cell["source"] if cell.get("cell_type", "code") == "code" else "" for cell in cells]


def _titled(cells: list[dict[str, Any]]) -> str | None:
    """The lesson whose title stands in the first cell of prose."""
    text = next((cell["source"] for cell in cells if cell.get("cell_type") == "markdown"), "")
    head = TITLE.search(text)
    for source in sources() if head else ():
        if head and (head[1], head[2]) == (number_of(source), title(source)):
            return head[1]
    return None


def _by_exercises(code: list[str]) -> str | None:
    """The lesson most of whose exercises these cells define; none where two lessons have as many."""
    defined = {name for text in code for name in functions_in(text)}
    counts = sorted((len(defined.intersection(checked(source))), number_of(source)) for source in sources())
    (second, _), (first, number) = counts[-2:]
    return number if first > second else None


# --- The statements that an answer needs ------------------------------------------------------------------------


@dataclass(eq=False)
class Statement:
    """A statement at the top of a cell: the names that it gives a meaning, those that it uses, those whose value it
    changes, as `table[0] = 1` and `rows.append(1)` do, and those that it may change, as `fill(table)` does."""

    cell: int
    place: int
    node: ast.stmt
    binds: set[str]
    uses: set[str]
    changes: set[str]
    may_change: set[str]
    always: bool = False


class Notebook(NamedTuple):
    """The statements of a notebook's code, in their order, the cells' texts, and those that are no Python."""

    statements: list[Statement]
    texts: dict[int, str]
    broken: dict[int, str]


class OfTheCourse(NamedTuple):
    """What a lesson's own cells say; `asks` and `known` as in `finding.Asked`."""

    asks: dict[str, list[str]]
    known: dict[str, set[str]]
    statements: set[str]


@cache
def of_the_course(source: Path) -> OfTheCourse:
    """What a lesson's own cells say, found once for all notebooks of a class."""
    statements = statements_of(_code(fresh(source)["cells"])).statements
    return OfTheCourse(*asked(source), {_dump(each.node) for each in statements})


def answers_of(source: Path, code: list[str], prose: Iterable[str] = ()) -> dict[str, Answer]:
    """What the cells of a notebook have for each exercise of a lesson, in the lesson's order."""
    asks, known, ours = of_the_course(source)
    notebook = statements_of(code)
    checkers = {"check", *_checkers(notebook.statements)}
    checks = {each for each in notebook.statements if _is_check(each.node, checkers)}
    stubs = {  # and what else the course itself says of an exercise's name
        each
        for each in notebook.statements
        if each.binds.intersection(asks) and (_defines_as_the_course(each.node, known) or _dump(each.node) in ours)
    }
    own = {name for each in notebook.statements if each not in stubs | checks for name in each.binds}
    # A stub that is left beside an answer would undo it.
    kept = [each for each in notebook.statements if each not in checks and not (each in stubs and each.binds <= own)]
    written = {name for text in prose for name in functions_in(text)}
    found = dict[str, Answer]()
    for name in checked(source):
        functions = {function for function, exercises in asks.items() if name in exercises}
        broken = [
            (cell, why) for cell, why in notebook.broken.items() if functions.intersection(functions_in(code[cell]))
        ]
        if functions & own:
            chosen, names = needed(kept, name)
            needs = [other for other in checked(source) if other in names and other != name]
            found[name] = Answer(ANSWERED, "", _pieces(chosen, notebook.texts), needs)
        elif broken:
            found[name] = Answer(UNREADABLE, f"its cell is not Python ({broken[-1][1]})")
        elif any(name in each.binds and isinstance(each.node, ast.FunctionDef) for each in stubs):
            found[name] = Answer(NOT_YET)
        elif functions & written:
            found[name] = Answer(UNREADABLE, "it stands in a cell of text: make that a cell of code")
        else:
            found[name] = Answer(MISSING, "no cell defines it")
    return found


def statements_of(code: list[str]) -> Notebook:
    """The statements of cells, which have no text where they are no code."""
    notebook = Notebook([], {}, {})
    for cell, text in enumerate(code):
        try:
            notebook.texts[cell], found = _statements(text)
            notebook.statements.extend(Statement(cell, *each) for each in found)
        except SyntaxError as problem:
            notebook.broken[cell] = f"{f'line {problem.lineno}: ' if problem.lineno else ''}{problem.msg}"
    return notebook


@cache  # most cells of a class are the lesson's own
def _statements(text: str) -> tuple[str, list[tuple[Any, ...]]]:
    """A cell's text without what only notebooks know, and what `Statement` asks of each statement after its cell."""
    try:
        tree = parsed(text)
    except SyntaxError:
        text = without_magic(text)
        tree = parsed(text)
    found = list[tuple[Any, ...]]()
    for place, node in enumerate(tree.body):
        try:
            binds, uses = _names(compile(ast.Module([node], []), "<cell>", "exec", AWAIT, dont_inherit=True))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:  # as `return` outside a function
            reason = problem.msg if isinstance(problem, SyntaxError) else type(problem).__name__
            raise SyntaxError(reason, ("<cell>", node.lineno, None, None)) from None
        star = isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        found.append((place, node, binds, uses, _changed(node), _given(node), star or future))
    return text, found


def needed(statements: list[Statement], name: str) -> tuple[list[Statement], set[str]]:
    """The statements that give a name its meaning, with all that they use, in their order; and the names of all that.

    Raises nothing: a name that nothing gives a meaning is a builtin, or the answer's own mistake.
    """
    binding, changing, given = (defaultdict[str, list[int]](list) for _ in range(3))
    for number, each in enumerate(statements):
        for bound in each.binds:
            binding[bound].append(number)
        for changed in each.changes:
            changing[changed].append(number)
        for one in each.may_change:
            given[one].append(number)
    chosen = {number for number, each in enumerate(statements) if each.always}
    names, waiting = set[str](), [name]
    while waiting:
        wanted = waiting.pop()
        if wanted in names:
            continue
        names.add(wanted)
        makers = [statements[each].node for each in binding[wanted]]
        imported = any(isinstance(node, ast.Import | ast.ImportFrom) for node in makers)
        defined = any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in makers)
        changes = () if imported else changing[wanted] if defined else changing[wanted] + given[wanted]
        for number in {*binding[wanted], *changes} - chosen:
            chosen.add(number)
            waiting += statements[number].uses
    return [statements[number] for number in sorted(chosen)], names


def _pieces(chosen: list[Statement], texts: dict[int, str]) -> list[Piece]:
    places = defaultdict[int, list[int]](list)
    for each in chosen:
        places[each.cell].append(each.place)
    return [Piece(cell, texts[cell], places[cell]) for cell in sorted(places)]


def _names(code: CodeType) -> tuple[set[str], set[str]]:
    """The names that a statement's code gives a meaning, and those that it takes from its module, at any depth."""
    binds, uses, waiting = set[str](), set[str](), [(code, True)]
    while waiting:
        part, top = waiting.pop()
        for instruction in dis.get_instructions(part):
            if instruction.opname in LOADS:
                uses.add(instruction.argval)
            elif top and instruction.opname in ("STORE_NAME", "STORE_GLOBAL"):
                binds.add(instruction.argval)
        waiting += [(constant, False) for constant in part.co_consts if isinstance(constant, CodeType)]
    return binds, uses


def _changed(statement: ast.stmt) -> set[str]:
    """The names whose value a statement changes in place, as far as its own text says so."""
    found, waiting = set[str](), list[ast.AST]([statement])
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        target: ast.AST | None = None
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            target = node.value.func if isinstance(node.value.func, ast.Attribute) else None
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name):
            found.add(target.id)
        waiting += ast.iter_child_nodes(node)
    return found


def _given(statement: ast.stmt) -> set[str]:
    """The names that a call is given whose result nobody takes: it may be there to change them."""
    calls = [
        each.value for each in ast.walk(statement) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
    ]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    calls = [call for call in calls if not (isinstance(call.func, ast.Name) and call.func.id in ("print", "display"))]
    return {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}


def _dump(node: ast.stmt) -> str:
    try:
        return ast.dump(node)
    except RecursionError:
        return ""  # a sum of a thousand terms


def _defines_as_the_course(node: ast.stmt, known: dict[str, set[str]]) -> bool:
    """Whether it defines a function as a cell of the lesson does."""
    return isinstance(node, ast.FunctionDef) and meaning(node) in known.get(node.name, ())


def _checkers(statements: list[Statement]) -> set[str]:
    """The names that `start` gave a lesson's check."""
    nodes = [each.node for each in statements]
    calls = [(node.targets[0].id, node.value.func) for node in nodes if _is_call(node)]
    return {target for target, function in calls if getattr(function, "attr", getattr(function, "id", "")) == "start"}


def _is_check(node: ast.stmt, checkers: set[str]) -> bool:
    """Whether it is the lesson's `name = check(name)`, which judges the answer and does not make it."""
    if not (_is_call(node) and len(node.targets) == len(node.value.args) == 1):
        return False
    function, argument = node.value.func, node.value.args[0]
    return (
        isinstance(function, ast.Name)
        and function.id in checkers
        and isinstance(argument, ast.Name)
        and argument.id == node.targets[0].id
    )


def _is_call(node: ast.stmt) -> TypeGuard[Any]:
    """Whether it gives a name what a call returns."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call)
