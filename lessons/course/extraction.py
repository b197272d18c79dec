"""Extract the answers of a notebook, each with the statements that it depends on (a program slice).

A name means what it means after *Run all*: its last definition counts. A slice has the imports, functions, constants
and arrays that the answer uses, from whatever cell, and those that these use in turn. It leaves out all else, such as
trainings and plots.
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
from .cells import exercise_functions, find_functions, normalized, read_cells, without_magics
from .exercise import NOT_YET
from .sources import exercise_names, notebook_json, number_of, parse, sources, title

LARGEST = 64_000_000  # bytes of a notebook: pictures are large
MOST_CODE = 1_000_000  # characters of a notebook's code
TITLE = re.compile(r"^#\s*(\d\d)\s*·\s*(.+?)\s*$", re.MULTILINE)
AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # notebooks allow `await` outside functions
LOADS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}

ANSWERED, MISSING, UNREADABLE = "answered", "missing", "unreadable"


class Unreadable(ValueError):
    """A file from which no answers can be extracted; the message completes a sentence about the file."""


class Piece(NamedTuple):
    """Statements of one cell, by their indices among the cell's statements; plain data, for another process."""

    cell: int
    text: str
    places: list[int]


@dataclass
class Answer:
    """The answer to one exercise: `ANSWERED`, `MISSING`, `UNREADABLE` or `NOT_YET`, and the code that it needs."""

    state: str
    why: str = ""
    pieces: list[Piece] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    """Other exercises that the answer calls."""


def extract_answers(path: str, named: str | None) -> dict[str, Any]:
    """Return a notebook's lesson and answers as plain data; `named` is the lesson in the file's name, if any.

    The result is {"lesson": "04" or None, "answers": {name: Answer as a dict}}; for an unreadable file it has "why"
    instead of "answers".
    """
    lesson = named
    try:
        try:
            content = answers.read_bytes(Path(path), LARGEST, "notebook of the course")
            cells = read_cells(content)
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
        found = {name: vars(answer) for name, answer in find_answers(source, code, prose).items()}
        return {"lesson": lesson, "answers": found}
    except Unreadable as why:
        return {"lesson": lesson, "why": str(why)}


def _code(cells: list[dict[str, Any]]) -> list[str]:
    """Return the texts of the cells, an empty one for each cell of prose."""
    return [cell["source"] if cell.get("cell_type", "code") == "code" else "" for cell in cells]


def _titled(cells: list[dict[str, Any]]) -> str | None:
    """Return the lesson whose title is in the first cell of prose, or None."""
    text = next((cell["source"] for cell in cells if cell.get("cell_type") == "markdown"), "")
    head = TITLE.search(text)
    for source in sources() if head else ():
        if head and (head[1], head[2]) == (number_of(source), title(source)):
            return head[1]
    return None


def _by_exercises(code: list[str]) -> str | None:
    """Return the lesson most of whose exercises these cells define, or None if two lessons tie."""
    defined = {name for text in code for name in find_functions(text)}
    counts = sorted((len(defined.intersection(exercise_names(source))), number_of(source)) for source in sources())
    (second, _), (first, number) = counts[-2:]
    return number if first > second else None


# --- The statements that an answer needs ------------------------------------------------------------------------


@dataclass(eq=False)
class Statement:
    """A top-level statement of a cell, and the names that it defines and uses.

    `changes` are names whose value it changes in place, as `table[0] = 1` and `rows.append(1)` do; `may_change` those
    that it passes to a call whose result is dropped, such as `fill(table)`. `always`: every slice includes it.
    """

    cell: int
    place: int
    node: ast.stmt
    binds: set[str]
    uses: set[str]
    changes: set[str]
    may_change: set[str]
    always: bool = False


class Notebook(NamedTuple):
    """The statements of a notebook in their order, the texts of its cells, and the error of each broken cell."""

    statements: list[Statement]
    texts: dict[int, str]
    broken: dict[int, str]


class CourseCode(NamedTuple):
    """The code of a lesson's own cells; `asks` and `known` are the fields of `cells.ExerciseFunctions`."""

    asks: dict[str, list[str]]
    known: dict[str, set[str]]
    statements: set[str]


@cache
def course_code(source: Path) -> CourseCode:
    """Return the code of a lesson's own cells, which is parsed once for all notebooks of a class."""
    statements = parse_statements(_code(notebook_json(source)["cells"])).statements
    return CourseCode(*exercise_functions(source), {_dump(each.node) for each in statements})


def find_answers(source: Path, code: list[str], prose: Iterable[str] = ()) -> dict[str, Answer]:
    """Return the answer of a notebook to each exercise of a lesson, in the lesson's order."""
    asks, known, ours = course_code(source)
    notebook = parse_statements(code)
    checkers = {"check", *_checkers(notebook.statements)}
    checks = {each for each in notebook.statements if _is_check(each.node, checkers)}
    stubs = {  # and other statements of the course's own that bind an exercise's name
        each
        for each in notebook.statements
        if each.binds.intersection(asks) and (_defines_as_the_course(each.node, known) or _dump(each.node) in ours)
    }
    own = {name for each in notebook.statements if each not in stubs | checks for name in each.binds}
    # A stub that is left after an answer would replace it.
    kept = [each for each in notebook.statements if each not in checks and not (each in stubs and each.binds <= own)]
    written = {name for text in prose for name in find_functions(text)}
    found = dict[str, Answer]()
    for name in exercise_names(source):
        functions = {function for function, exercises in asks.items() if name in exercises}
        broken = [
            (cell, why) for cell, why in notebook.broken.items() if functions.intersection(find_functions(code[cell]))
        ]
        if functions & own:
            chosen, names = dependencies(kept, name)
            needs = [other for other in exercise_names(source) if other in names and other != name]
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


def parse_statements(code: list[str]) -> Notebook:
    """Parse the texts of cells into the statements of a notebook; a cell of prose has an empty text."""
    notebook = Notebook([], {}, {})
    for cell, text in enumerate(code):
        try:
            notebook.texts[cell], found = _statements(text)
            notebook.statements.extend(Statement(cell, *each) for each in found)
        except SyntaxError as problem:
            notebook.broken[cell] = f"{f'line {problem.lineno}: ' if problem.lineno else ''}{problem.msg}"
    return notebook


@cache  # most cells of a class are the same, the lesson's own
def _statements(text: str) -> tuple[str, list[tuple[Any, ...]]]:
    """Return a cell's text as plain Python and, for each of its statements, the fields of `Statement` after `cell`."""
    try:
        tree = parse(text)
    except SyntaxError:
        text = without_magics(text)
        tree = parse(text)
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


def dependencies(statements: list[Statement], name: str) -> tuple[list[Statement], set[str]]:
    """Return the statements that `name` depends on, in their order, and the names that these use (a backward slice).

    A name that no statement defines is a builtin or the learner's own mistake, and is skipped.
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
    """Return the names that a statement binds in its module, and those that its code looks up there, at any depth."""
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
    """Return the names whose value a statement visibly changes in place: by assignment to a part, or by a method."""
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
    """Return the names that are arguments of a call whose result is dropped, because it may change them."""
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
        return ""  # nested too deep to dump, such as a sum of a thousand terms


def _defines_as_the_course(node: ast.stmt, known: dict[str, set[str]]) -> bool:
    """Return True if a statement defines a function exactly as a cell of the lesson does."""
    return isinstance(node, ast.FunctionDef) and normalized(node) in known.get(node.name, ())


def _checkers(statements: list[Statement]) -> set[str]:
    """Return the names that hold a lesson's check, the result of `start`."""
    nodes = [each.node for each in statements]
    calls = [(node.targets[0].id, node.value.func) for node in nodes if _is_call(node)]
    return {target for target, function in calls if getattr(function, "attr", getattr(function, "id", "")) == "start"}


def _is_check(node: ast.stmt, checkers: set[str]) -> bool:
    """Return True for the lesson's `name = check(name)`, which judges an answer and does not define it."""
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
    """Return True for a statement `name = call(...)`."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call)
