"""A hash of what an op runs: its host wrappers, its kernels, and everything of this project that these call.

Code is parsed, not imported: from a wrapper's name every function, class and constant of `kernels` and of
`minitransformer` that it mentions is followed, through imports too. Comments, docstrings, layout and the file don't
count; any other change gives another hash, and whatever was verified with the old one is verified no more.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = "kernels", "minitransformer"


class Place(NamedTuple):
    """A name at the top of a file."""

    path: Path
    name: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT).as_posix()}:{self.name}"


def fingerprint(module: str, *names: str) -> str:
    """Return the hash of these names of a module of `kernels`, such as "attention.host", and of all that they reach."""
    code = reached(module, *names)
    digest = hashlib.sha256()
    for line in sorted(f"{place.name} {source}\n" for place, source in code.items()):
        digest.update(line.encode())
    return digest.hexdigest()


def reached(module: str, *names: str) -> dict[Place, str]:
    """Return the code that the hash covers. Raises `ValueError` for a name that the module does not have."""
    found: dict[Place, str] = {}
    path = _path([PACKAGES[0], *module.split(".")])
    for name in names:
        if name not in definitions(path) and name not in imports(path):
            raise ValueError(f"{path.relative_to(ROOT)} has no {name}")
    waiting = [Place(path, name) for name in names]
    while waiting:
        place = waiting.pop()
        node = definitions(place.path).get(place.name)
        if node is not None and place not in found:
            found[place] = _code(node)
            waiting += mentioned(place.path, node)
        elif node is None and place.name in imports(place.path):
            waiting.append(imports(place.path)[place.name])
    return found


@cache
def mentioned(path: Path, node: ast.AST) -> list[Place]:
    """Return the names in a piece of code, and the attributes of modules of this project."""
    found = []
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.append(Place(path, part.id))
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            source = imports(path).get(part.value.id)
            if source is not None and source.name == MODULE:
                found.append(Place(source.path, part.attr))
    return found


def canonical(part: Any) -> str:
    """Return code as a string, for all versions of Python: without empty fields, of which a later one may add some."""
    if isinstance(part, list):
        return f"[{', '.join(map(canonical, part))}]"
    if not isinstance(part, ast.AST):
        return repr(part)
    fields = [f"{name}={canonical(value)}" for name, value in ast.iter_fields(part) if value not in (None, [])]
    return f"{type(part).__name__}({', '.join(fields)})"


_code = cache(canonical)  # once for each node
MODULE = "*"
"""The name of a place that is a whole module."""


@cache
def definitions(path: Path) -> dict[str, ast.AST]:
    """Return what the top of a file defines, without docstrings, and all that is assigned to a name."""
    found: dict[str, ast.AST] = {}
    for node in _tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = _without_docstrings(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            found |= {name: ast.Module([found[name], node], []) if name in found else node for name in names}
    return found


@cache
def imports(path: Path) -> dict[str, Place]:
    """Return what a file takes from other files of this project, by the name that it has there."""
    found: dict[str, Place] = {}
    folder = list(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            if base[0] not in PACKAGES:
                continue
            for alias in node.names:
                module = _path([*base, alias.name])
                found[alias.asname or alias.name] = (
                    Place(module, MODULE) if module.exists() else Place(_path(base), alias.name)
                )
    return {name: place for name, place in found.items() if place.path.exists()}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _path(parts: list[str]) -> Path:
    """Return the file of a module, or of a package."""
    path = ROOT.joinpath(*parts)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _without_docstrings(node: ast.stmt) -> ast.stmt:
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(part) is not None:
            part.body = part.body[1:] or [ast.Pass()]
    return node
