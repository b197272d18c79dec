"""A Sphinx extension: the directives `op` and `public` of the reference.

An op's entry has its formulas, which are the cheat sheet's, its lesson, the worst errors of the last proof, the arrays
that it declares, and the docstrings of its forward and its backward.
"""

from collections.abc import Iterator
from importlib import import_module

from docutils import nodes
from formulas import tex
from proof import KINDS, PROOF, Proof, shown
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from course import cheat_sheet
from course.sources import number_of, sources
from minitransformer import ops
from minitransformer.ops.arguments import ArrayArgument

ROWS = {row.name: row for row in (*cheat_sheet.MODEL, *cheat_sheet.FAMILY, *cheat_sheet.ALONE)}
LESSONS = {number_of(source): f"/lessons/{source.stem}" for source in sources()}


def autodoc(package: str, names: list[str]) -> Iterator[str]:
    """Yield the directives that document these names of a package."""
    yield "````{eval-rst}"
    for name in names:
        kind = "class" if name[0].isupper() else "function"
        yield f".. auto{kind}:: {package}.{name}"
        if kind == "class":
            yield "   :members:"
            if getattr(import_module(package), name).__bases__ != (object,):
                yield "   :show-inheritance:"
        yield ""
    yield "````"


def errors_of(op: str) -> str:
    """Return a sentence about the proof of an op's gradients."""
    worst = Proof(PROOF).of(op)
    if not worst:
        return "The site was built without a run of the proof, whose worst errors would stand here."
    autograd, differences = (shown(worst[kind]) for kind in KINDS)
    return (
        f"Worst error of its gradients in the last run of the proof: **{autograd}** against PyTorch's autograd, "
        f"**{differences}** against finite differences."
    )


def described(array: ArrayArgument) -> str:
    """Return an array's name, shape and kind."""
    kinds = {"ids": f" of integers below {array.limit}", "mask": " of booleans"}
    kind = " or what broadcasts to it" if array.broadcast else kinds.get(array.kind, "")
    other = f" or probabilities `{array.as_probabilities()}`" if array.or_probabilities else ""
    shape = str(array).replace("(...,)", "(...)")
    return f"`{array.name} {shape}`{kind}{other}{' or `None`' if array.optional else ''}"


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
        self.env.note_dependency(str(PROOF))
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
            yield from ("", f'<p class="op-note">{cheat_sheet.as_html(row.note)}</p>', "")
        yield f"{{doc}}`Lesson {row.lesson} <{LESSONS[row.lesson]}>` derives it."
        if row.backward:
            yield errors_of(name)
        yield ""
        arrays = getattr(ops, names[0]).declaration.arrays
        yield from (f"It takes {'; '.join(map(described, arrays))}.", "")
        yield from autodoc("minitransformer.ops", names)


class ProofTable(SphinxDirective):
    """```{proof}```: the worst errors of every component."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(PROOF))
        return self.parse_text_to_nodes("\n".join(self.lines(Proof(PROOF))))

    def lines(self, proof: Proof) -> Iterator[str]:
        """Yield a table as Markdown."""
        if not proof.worst:
            yield "The site was built without a run of the proof: `make build/proof.json` makes one."
            return
        versions = " and ".join(f"{name} {version}" for name, version in proof.versions.items())
        yield from (f"Measured with {versions}, in float64:", "")
        yield from ("| component | against autograd | against finite differences |", "|---|--:|--:|")
        for name, errors in proof.worst.items():
            columns = (shown(errors[kind]) if kind in errors else "–" for kind in KINDS)
            yield f"| {name} | {' | '.join(columns)} |"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("op", Op)
    app.add_directive("public", Public)
    app.add_directive("proof", ProofTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
