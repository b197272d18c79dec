"""A Sphinx extension: the directives `op` and `public` of the reference.

An op's entry has its formulas, which are the cheat sheet's, its lesson, the worst errors of the last proof, the axes of
its arrays, and the docstrings of its forward and its backward. The proof is the file that `pytest --proof` writes; an
entry says so where there is none.
"""

import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from course import cheat_sheet
from course.sources import number_of, sources
from docutils import nodes
from formulas import tex
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from minitransformer import ops

ROOT = Path(__file__).resolve().parents[2]
PROOF = ROOT / "build/proof.json"
ROWS = {row.name: row for row in (*cheat_sheet.MODEL, *cheat_sheet.FAMILY, *cheat_sheet.ALONE)}
LESSONS = {number_of(source): f"/lessons/{source.stem}" for source in sources()}


class Proof:
    """The worst errors of a run of the tests, by component and kind; empty where no run left its file."""

    def __init__(self, path: Path) -> None:
        found = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.worst: dict[str, dict[str, float]] = found.get("worst", {})
        self.versions: dict[str, str] = found.get("versions", {})

    def of(self, op: str) -> dict[str, float]:
        """Return an op's worst errors over all of its cases, such as "attention, causal"."""
        cases = [errors for name, errors in self.worst.items() if name.partition(",")[0] == op]
        return {kind: max(each[kind] for each in cases) for kind in (cases[0] if cases else ())}


def shown(error: float) -> str:
    """Return an error as text, with a minus sign, at which no line is broken."""
    return f"{error:.1e}".replace("-", "−")


def autodoc(package: str, names: list[str]) -> Iterator[str]:
    """Yield the directives that document these names of a package."""
    yield "````{eval-rst}"
    for name in names:
        thing = getattr(import_module(package), name)
        kind = "class" if inspect.isclass(thing) else "function"
        yield f".. auto{kind}:: {package}.{name}"
        if kind == "class":
            yield "   :members:"
            yield "   :show-inheritance:"
        yield ""
    yield "````"


class Public(SphinxDirective):
    """```{public} PACKAGE``` and names: their docstrings."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        lines = autodoc(self.arguments[0], " ".join(self.content).split())
        return self.parse_text_to_nodes("\n".join(lines))


class Op(SphinxDirective):
    """```{op} NAME```: all about one op of `minitransformer.ops`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(self.lines(self.arguments[0])))

    def lines(self, name: str) -> Iterator[str]:
        """Yield the entry as Markdown."""
        row = ROWS[name]
        names = [f"{name}_forward", f"{name}_backward"] if row.backward else [name]
        halves = {"Forward": row.forward, "Backward": row.backward} if row.backward else {"": row.forward}
        yield ":::::{div} op-formulas"
        for title, formula in halves.items():
            yield from ("::::{div}", title, "", "$$", tex(formula), "$$", "::::")
        yield ":::::"
        if row.note:
            yield from ("", f"Here {cheat_sheet._text(row.note)}.", "")
        yield f"{{doc}}`Lesson {row.lesson} <{LESSONS[row.lesson]}>` derives it."
        if row.backward:
            yield f"{self.errors(name)}"
        yield ""
        yield from autodoc("minitransformer.ops", names)

    def errors(self, name: str) -> str:
        """Return a sentence about the proof of an op's gradients."""
        worst = Proof(self.config.proof).of(name)
        if not worst:
            return "The site was built without a run of the proof, whose worst errors would stand here."
        autograd, differences = worst["autograd"], worst["finite differences"]
        return (
            f"Worst error of its gradients in the last run of the proof: **{shown(autograd)}** against "
            f"PyTorch's autograd, **{shown(differences)}** against finite differences."
        )


class ProofTable(SphinxDirective):
    """```{proof}```: the worst errors of every component."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(self.lines(Proof(self.config.proof))))

    def lines(self, proof: Proof) -> Iterator[str]:
        """Yield a table as Markdown."""
        if not proof.worst:
            yield "The site was built without a run of the proof: `make build/proof.json` makes one."
            return
        versions = " and ".join(f"{name} {version}" for name, version in proof.versions.items())
        yield from (f"Measured with {versions}, in float64:", "")
        yield from ("| component | against autograd | against finite differences |", "|---|--:|--:|")
        for name, errors in proof.worst.items():
            columns = (shown(errors[kind]) if kind in errors else "–" for kind in ("autograd", "finite differences"))
            yield f"| {name} | {' | '.join(columns)} |"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register."""
    app.add_config_value("proof", PROOF, "env")
    app.add_directive("op", Op)
    app.add_directive("public", Public)
    app.add_directive("proof", ProofTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
