"""`python tests/support/pyodide.py FOLDER`: a stand-in for the host of Pyodide, without a network.

It has Python itself, from npm's package `pyodide`, and what is pure Python, from PyPI. What is compiled can't be had
there: NumPy, matplotlib, regex and lxml are empty packages whose every name is a mock.
"""

import json
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

from jupyterlite_pyodide_kernel.constants import PYODIDE_VERSION

PYODIDE = Path(__file__).parents[2] / "lessons/site/node_modules/pyodide"
ITSELF = "pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"
PURE = "ipython", "jedi", "micropip", "packaging", "threadpoolctl", "tqdm"
MOCKED = "lxml", "matplotlib", "numpy", "regex"
MOCK = """\
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock


class Module(ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class Finder:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.startswith(__name__ + ".") else None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())
sys.modules[__name__].__class__ = Module
"""


def needed(packages: dict[str, dict], names: tuple[str, ...]) -> set[str]:
    """Return the names of packages and of all that they need."""
    found, waiting = set(), [*names]
    while waiting:
        name = waiting.pop().replace("_", "-")
        if name not in found and name in packages:
            found.add(name)
            waiting += packages[name]["depends"]
    return found


def write_mock(path: Path, name: str, package: dict) -> None:
    """Write a wheel whose modules are mocks."""
    info = f"{'-'.join(path.name.split('-')[:2])}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {package['version']}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
        for module in package["imports"]:
            wheel.writestr(f"{module.replace('.', '/')}/__init__.py", MOCK)


def main(folder: Path) -> None:
    """Write the files that a page asks the host for."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ITSELF:
        shutil.copy(PYODIDE / name, folder)
    assert json.loads((PYODIDE / "package.json").read_text())["version"] == PYODIDE_VERSION
    lock = json.loads((PYODIDE / "pyodide-lock.json").read_text())
    packages = lock["packages"]
    pure = needed(packages, PURE)
    wanted = [f"{name}=={packages[name]['version']}" for name in sorted(pure)]
    python = ["--python-version", lock["info"]["python"], "--only-binary", ":all:"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, *python, "--dest", folder, *wanted], check=True)
    for name in MOCKED:
        packages[name]["depends"] = []
        write_mock(folder / packages[name]["file_name"], name, packages[name])
    for name in {*pure, *MOCKED}:
        packages[name]["sha256"] = sha256((folder / packages[name]["file_name"]).read_bytes()).hexdigest()
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
