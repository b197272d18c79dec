"""The cheat sheet: every op stands in it, with the formulas of its docstrings, on two pages."""

import re

import numpy as np
import pytest

from course import cheat_sheet
from course.cheat_sheet import ALONE, FAMILY, MODEL, PAGE, PAPERS, fingerprint, page
from minitransformer.ops import numpy_ops

ROWS = {row.name: row for row in (*MODEL, *FAMILY)}


def test_the_sheet_has_every_op_of_the_table_with_its_forward_and_its_backward():
    assert set(ROWS) == {name for name, _ in numpy_ops.pairs()}
    assert all(row.forward and row.backward for row in ROWS.values())
    assert all(getattr(numpy_ops, row.name) for row in ALONE)


@pytest.mark.parametrize("name", ROWS)
def test_the_sheet_says_what_the_docstrings_say(name):
    pair, row = getattr(numpy_ops, name), ROWS[name]
    written = " ".join("\n".join(row).replace("\n", " ").split())
    output = "dx" if name in ("layernorm", "rmsnorm") else "(?:y|dx)"  # whose y is written with n on the sheet
    stated = re.findall(rf"`({output} = [^`]+)`", f"{pair.forward.__doc__} {pair.backward.__doc__}")
    assert [formula for formula in stated if formula not in written] == []


def test_the_formulas_without_a_docstring_are_right():
    """Those of the sheet that are longest, in NumPy, beside the ops."""
    rng = np.random.default_rng(0)
    q, k, v, dout = rng.standard_normal((4, 5, 3))
    out, cache = numpy_ops.linear_attention.forward(*(each[None, None] for each in (q, k, v)), causal=True)
    phi, slope = (lambda x: np.where(x > 0, x + 1, np.exp(x))), (lambda x: np.where(x > 0, 1, np.exp(x)))
    state, total = np.cumsum(phi(k)[:, :, None] * v[:, None], axis=0), np.cumsum(phi(k), axis=0)
    z = (phi(q) * total).sum(axis=1, keepdims=True) + 1e-6
    assert np.einsum("td,tde->te", phi(q), state) / z == pytest.approx(out[0, 0])
    a, b = dout / z, -(dout * out[0, 0]).sum(axis=1, keepdims=True) / z
    dphi_q = np.einsum("te,tde->td", a, state) + b * total
    dstate = np.cumsum((phi(q)[:, :, None] * a[:, None])[::-1], axis=0)[::-1]
    dtotal = np.cumsum((b * phi(q))[::-1], axis=0)[::-1]
    dphi_k = np.einsum("te,tde->td", v, dstate) + dtotal
    found = dphi_q * slope(q), dphi_k * slope(k), np.einsum("td,tde->te", phi(k), dstate)
    for mine, theirs in zip(found, numpy_ops.linear_attention.backward(dout[None, None], cache), strict=True):
        assert mine == pytest.approx(theirs[0, 0])

    weight = rng.standard_normal(3)
    out, cache = numpy_ops.additive_attention.forward(q[None], k[None], v[None], weight)
    f = np.tanh(q[:, None] + k)
    P = np.exp(f @ weight) / np.exp(f @ weight).sum(axis=1, keepdims=True)
    dP = dout @ v.T
    dS = P * (dP - (dP * P).sum(axis=1, keepdims=True))
    df = dS[:, :, None] * weight * (1 - f**2)
    found = df.sum(axis=1), df.sum(axis=0), P.T @ dout, np.einsum("ij,ijc->c", dS, f)
    for mine, theirs in zip(found, numpy_ops.additive_attention.backward(dout[None], cache), strict=True):
        assert mine == pytest.approx(np.squeeze(theirs))


def test_the_committed_pages_are_those_of_the_ops_and_two_each():
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m course.cheat_sheet --pdf`"
    for path in PAPERS.values():
        content = path.read_bytes()
        assert content.endswith(f"% of {fingerprint()}\n".encode()), "run `python -m course.cheat_sheet --pdf`"
        assert len(re.findall(rb"/Type\s*/Page\b", content)) == 2


def test_the_page_needs_no_network_and_its_links_lead_somewhere():
    links = re.findall(r'(?:href|src)="([^"]+)"', PAGE.read_text(encoding="utf-8"))
    assert links
    assert all((PAGE.parent / link).is_file() for link in links)
    assert cheat_sheet.as_html("x_i, sublayer_out, y_{t+k}") == "x<sub>i</sub>, sublayer_out, y<sub>t+k</sub>"
