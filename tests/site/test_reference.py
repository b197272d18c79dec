"""The reference and the tour: every public name and every op of the paper is there, and text becomes what it means."""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from support.prove import Proof
from support.public_names import public_names

import kernels
import kernels.functional
from course import cheat_sheet
from minitransformer import decoding, layers, models, ops, pretrained
from minitransformer.ops import numpy_ops
from minitransformer.textbook import paper

SITE = Path(__file__).parents[2] / "lessons/site"
PAGES = {path.stem: path.read_text("utf-8") for path in SITE.glob("reference/*.md")}


@pytest.fixture(autouse=True)
def _modules_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SITE)


def documented(package: str) -> list[str]:
    """Return the names of a package that the pages give to `public` and `op`, a page after the other."""
    text = "\n".join(PAGES.values())
    names = re.findall(rf"autoclass:: {re.escape(package)}\.(\w+)", text)
    for found in re.findall(rf"```{{public}} {re.escape(package)}\n(.*?)```", text, re.DOTALL):
        names += found.split()
    if package == "minitransformer.ops":
        pairs = {name for name, _ in numpy_ops.pairs()}
        entries = re.findall(r"```{op} (\w+)", text)
        names += [f"{op}_{way}" for op in entries if op in pairs for way in ("forward", "backward")]
        names += [op for op in entries if op not in pairs]
    return names


@pytest.mark.parametrize("package", [ops, layers, models, pretrained, decoding, kernels, kernels.functional])
def test_every_public_name_is_in_the_reference_once(package: ModuleType):
    names = documented(package.__name__)
    assert len(names) == len(set(names))
    assert set(names) == public_names(package)
    assert all(getattr(package, name).__doc__ for name in names)


def test_every_op_of_the_textbook_is_on_the_tour():
    tour = "\n".join(path.read_text("utf-8") for path in SITE.glob("tour/*.md")).split()
    fused = {"linear_cross_entropy_forward", "linear_cross_entropy_backward"}  # the loss and the product that are there
    pairs = {name for name in vars(paper) if re.search("_(for|back)ward$", name)} - fused
    assert len(pairs) == 18
    assert pairs <= set(tour)


def test_a_docstring_becomes_markup():
    as_rst = import_module("docstrings").as_rst

    text = """The mean of `x` and `y`s by `attention_mask`, |*x*| and `a
b`.

    y = x + 1

window   keys at a distance,
         or `None`
block    its own
Source: nobody."""
    rst = as_rst(text, frozenset({"attention_mask_of"}))
    assert r"mean of \ ``x``\  and \ ``y``\ s by \ :py:obj:`attention_mask`\ , \|\*x\*\| and \ ``a b``\ ." in rst
    assert "\n::\n\n    y = x + 1\n" in rst
    assert "``window``\n    keys at a distance, or \\ :py:obj:`None`\\ \n``block``\n    its own" in rst
    assert as_rst("Take `count` of them.", frozenset({"count"})) == r"Take \ ``count``\  of them."
    assert as_rst("It is so.\nSource: nobody.") == "It is so.\n\nSource: nobody."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = 1 / (1 + e⁻ˣ)", r"y &= 1 / (1 + e^{-x})"),
        (
            "dweight_k = Σ_t x_{t+k−left}ᵀ @ dy_t",
            r"\mathit{dweight}_{k} &= \sum _{t} x_{t+k-\mathit{left}}^\top  \mathbin{@} dy_{t}",
        ),
        ("v̂ / √(var + √D)", r"\hat{v} / \sqrt {\mathit{var} + \sqrt {D}}"),
        ("√Σ grad²", r"\sqrt {\sum  \mathit{grad}^{2}}"),
        ("dz: layernorm's dx", r"&\text{dz: layernorm's dx}"),
        ("q = max(0, x), b = sublayer_out", r"q &= \max(0, x),\quad b = \mathit{sublayer\_out}"),
    ],
)
def test_a_formula_becomes_tex(text: str, expected: str):
    tex = import_module("formulas").tex

    assert tex(text) == rf"\begin{{aligned}}{expected}\end{{aligned}}"


def test_every_formula_of_the_cheat_sheet_becomes_plain_tex():
    tex = import_module("formulas").tex

    for row in (*cheat_sheet.MODEL, *cheat_sheet.FAMILY, *cheat_sheet.ALONE):
        for formula in filter(None, (row.forward, row.backward)):
            made = tex(formula)
            assert made.isascii(), made
            assert made.count("{") == made.count("}"), made


def test_the_site_reads_the_proof_that_the_tests_write(tmp_path: Path):
    proof = import_module("proof")

    written = Proof()
    written.record("attention", "autograd", 1e-16)
    written.record("attention", "finite differences", 3e-11)
    written.record("attention, causal", "autograd", 2e-15)
    written.record("attention, causal", "finite differences", 1e-11)
    written.record("linear_attention", "autograd", 1.0)
    (tmp_path / "proof.json").write_text(written.json(), "utf-8")
    read = proof.Proof(tmp_path / "proof.json")
    assert read.of("attention") == {"autograd": 2e-15, "finite differences": 3e-11}
    assert proof.shown(2e-15) == "2.0e−15"
    assert set(read.versions) == {"NumPy", "PyTorch"}
    assert proof.Proof(tmp_path / "none.json").of("attention") == {}
