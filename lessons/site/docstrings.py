"""A Sphinx extension: autodoc takes our docstrings, which are plain text with `code`, and signatures as written."""

import ast
import inspect
import re
import textwrap
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CODE = re.compile(r"`([^`]+)`")
ROW = re.compile(r"(\w\S*(?:, \S+)*) {2,}(\S.*)")
"""A line of a table in a docstring: a name, two spaces or more, and what it means."""


def as_rst(text: str, own: frozenset[str] = frozenset()) -> str:
    """Return a docstring as reStructuredText. Names in `own`, an object's arguments, are not links to other objects.

    Its parts are paragraphs, indented blocks, lists whose items begin with "- ", and tables of names and meanings.
    """
    return "\n\n".join(_part(part, own) for part in re.split(r"\n\s*\n", text.strip("\n")) if part.strip())


def _part(part: str, own: frozenset[str]) -> str:
    if part.startswith("    "):
        return f"::\n\n{part}"
    if ROW.match(part):
        return _definitions(part, own)
    if part.startswith("- "):
        items = re.split(r"^- ", part, flags=re.MULTILINE)[1:]
        return "\n".join(f"- {_inline(' '.join(item.split()), own)}" for item in items)
    return re.sub(r"\n(?=Sources?: )", "\n\n", _inline(part, own))


def _definitions(table: str, own: frozenset[str]) -> str:
    rows: list[list[str]] = []
    for line in table.splitlines():
        if row := ROW.fullmatch(line):
            rows.append([row[1], row[2]])
        else:
            rows[-1][1] += f" {line.strip()}"
    return "\n".join(f"``{name}``\n    {_inline(meaning, own)}" for name, meaning in rows)


def _inline(text: str, own: frozenset[str]) -> str:
    """Escape what reStructuredText takes for markup; a name in backticks becomes a link if there is such an object."""
    pieces = []
    for index, piece in enumerate(CODE.split(text)):
        if index % 2 == 0:
            pieces.append(re.sub(r"([\\*|]|_\b|(?<=\w)_(?!\w))", r"\\\1", piece))
            continue
        code = " ".join(piece.split())
        is_name = re.fullmatch(r"[A-Za-z_]\w{2,}(\.\w+)*(\(\))?", code) and code not in own
        pieces.append(rf"\ :py:obj:`{code}`\ " if is_name else rf"\ ``{code}``\ ")
    return "".join(pieces)


def docstring(app: "Sphinx", what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """autodoc-process-docstring."""
    has_arguments = inspect.isfunction(obj) or inspect.isclass(obj)
    own = frozenset(inspect.signature(obj).parameters if has_arguments else ())
    lines[:] = [*as_rst("\n".join(lines), own).splitlines(), ""]


def signature(app: "Sphinx", what: str, name: str, obj: Any, options: Any, given: Any, returns: Any) -> Any:
    """autodoc-process-signature: a function's signature as its source has it, `Array` and all."""
    if what not in ("function", "method", "class"):
        return None
    function = inspect.unwrap(obj) if what in ("function", "method") else vars(obj).get("__init__")
    if not inspect.isfunction(function) or is_dataclass(obj):
        return None
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(definition, ast.FunctionDef):
        return None
    arguments = definition.args
    if what != "function" and not any(ast.unparse(each) == "staticmethod" for each in definition.decorator_list):
        arguments.args = arguments.args[1:]
    result = ast.unparse(definition.returns).replace("'", "") if definition.returns and what != "class" else None
    return f"({ast.unparse(arguments)})", result


def setup(app: "Sphinx") -> dict[str, bool]:
    """Register."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", docstring)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
