"""The arrows between modules point one way; imports inside a function and for types alone count too."""

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "minitransformer"
IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*|.*)", re.MULTILINE)


def imports(path: Path) -> Iterator[Path]:
    """Yield the files that the file imports from its own package."""
    for dots, module, names in IMPORT.findall(path.read_text(encoding="utf-8")):
        source = path.parents[len(dots) - 1].joinpath(*module.split("."))
        modules = [source / f"{name}.py" for name in re.findall(r"\w+", names)]
        yield from [each for each in modules if each.exists()] or [source / "__init__.py", Path(f"{source}.py")]


def test_no_module_imports_one_that_imports_it():
    files = {file: set(imports(file)) for file in PACKAGE.rglob("*.py")}
    TopologicalSorter(files).prepare()  # raises CycleError, which names the circle
