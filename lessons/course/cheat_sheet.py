"""`python -m course.cheat_sheet [--pdf]`: every op's forward and backward on two pages, as HTML and as PDF.

The formulas are those of the ops' docstrings and of `minitransformer/textbook`. A PDF needs Chromium.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from minitransformer import ops

from .sources import LESSONS, number_of, sources

PAGE = LESSONS / "cheat-sheet.html"
PAPERS = {"A4": LESSONS / "cheat-sheet-a4.pdf", "letter": LESSONS / "cheat-sheet-letter.pdf"}


class Row(NamedTuple):
    """An op, or several whose formulas stand together, and the lesson that derives it; formulas are lines."""

    name: str
    lesson: str
    forward: str
    backward: str
    note: str = ""


NOTATION = """\
`y, cache = name_forward(x, …)` and `dx = name_backward(dy, cache)`: da is the gradient of the loss with respect to an
array a. @ is the matrix product, · the product element by element, Σ a sum over channels, Σ_n over all rows.
B sentences, T positions, H heads, D the width of a head, C of the model, V the vocabulary; … stands for any axes."""

RULES = (
    ("y = a @ b", "da = dy @ bᵀ, db = aᵀ @ dy"),
    ("y = f(x), element by element", "dx = dy · f′(x)"),
    ("y = a + b", "da = dy, db = dy"),
    ("x is used twice", "its two gradients are added"),
    ("x is broadcast, or its rows are copied", "the gradients of the copies are added"),
    ("x is reshaped, transposed, cut or turned", "dy is put back in the same way"),
)

MODEL = (
    Row("linear", "00", "y = x @ weight + bias", "dx = dy @ weightᵀ\ndweight = xᵀ @ dy\ndbias = Σ_n dy_n",
        "x (…, C_{in}), weight (C_{in}, C_{out}); in the backward x and dy are matrices of rows"),
    Row("embedding", "02", "y = scale · table[ids]", "dtable[i] = scale · Σ dy[n]",
        "the sum runs over all n with ids[n] = i"),
    Row("relu", "07", "y = max(0, x)", "dx = dy · [x > 0]"),
    Row("softmax", "01", "y_i = exp(x_i) / Σ_j exp(x_j)", "dx = y · (dy − Σ_j dy_j y_j)",
        "the row's maximum is subtracted first: no overflow"),
    Row("attention", "04", "S = scale · query @ keyᵀ + bias\nP = softmax(S)\nout = P @ value",
        "dvalue = Pᵀ @ dout\ndP = dout @ valueᵀ\ndS = P · (dP − Σ_j dP_j P_j)\ndquery = scale · dS @ key\n"
        "dkey = scale · dSᵀ @ query",
        "scale = 1/√D; a hidden key has the score −∞; heads that share a key add up their gradients"),
    Row("layernorm", "07", "n = (x − mean) · rstd\ny = gamma · n + beta",
        "dn = dy · gamma\ndx = (dn − mean(dn) − n · mean(dn · n)) · rstd\ndgamma = Σ_n dy · n, dbeta = Σ_n dy",
        "rstd = 1/√(var + eps); var is divided by C, and eps is inside the root"),
    Row("add_layernorm", "07", "z = x + Dropout(sublayer_out)\ny = LayerNorm(z)",
        "dz: layernorm's dx\ndx = dz\ndsublayer_out = dz · mask / (1 − rate)", "Add & Norm, in one op"),
    Row("dropout", "07", "y = x · mask / (1 − rate)", "dx = dy · mask / (1 − rate)",
        "mask: 1 with probability 1 − rate, else 0; none in inference"),
    Row("cross_entropy", "01", "loss = −Σ_v q_v log softmax(logits)_v\nq = (1 − ε)·onehot + ε/V",
        "dlogits = dloss · (softmax(logits) − q) / N", "the mean over the N targets that count; padding does not"),
    Row("linear_cross_entropy", "14", "logits = x @ tableᵀ\nloss = cross_entropy(logits, targets)",
        "dlogits: cross_entropy's\ndx = dlogits @ table\ndtable = dlogitsᵀ @ x", "block by block: no (N, V) array"),
)  # fmt: skip

FAMILY = (
    Row("tanh", "03", "y = tanh(x)", "dx = dy · (1 − y²)"),
    Row("sigmoid", "03", "y = 1 / (1 + e⁻ˣ)", "dx = dy · y · (1 − y)"),
    Row("silu", "20", "y = x · σ(x)", "dx = dy · (σ(x) + x σ(x) (1 − σ(x)))", "σ: the sigmoid"),
    Row("gelu", "19", "y = x · Φ(x)", "dx = dy · (Φ(x) + x Φ′(x))",
        "Φ(x) = (1 + erf(x / √2)) / 2, Φ′(x) = exp(−x²/2) / √(2π)"),
    Row("gated", "20", "y = activation(gate) · up", "dgate = dy · up · activation′(gate)\ndup = dy · activation(gate)",
        "with silu it is SwiGLU"),
    Row("rmsnorm", "20", "n = x · rstd\ny = gamma · n",
        "dn = dy · gamma\ndx = (dn − n · mean(dn · n)) · rstd\ndgamma = Σ_n dy · n", "rstd = 1/√(mean(x²) + eps)"),
    Row("add_rmsnorm", "20", "z = x + Dropout(sublayer_out)\ny = RMSNorm(z)",
        "dz: rmsnorm's dx\ndx = dz\ndsublayer_out = dz · mask / (1 − rate)"),
    Row("rope", "20", "y_a = a·cos − b·sin\ny_b = b·cos + a·sin", "da = dy_a·cos + dy_b·sin\ndb = dy_b·cos − dy_a·sin",
        "(a, b): a pair of channels of a query or key; the angle grows with the position"),
    Row("patches", "22", "squares of pixels become rows", "each entry of dy goes back to its pixel",
        "(B, channels, height, width) → (B, T, channels·size²)"),
    Row("conv1d", "13", "y_t = Σ_k x_{t+k−left} @ weight_k + bias",
        "dx_s = Σ_k dy_{s−k+left} @ weight_kᵀ\ndweight_k = Σ_t x_{t+k−left}ᵀ @ dy_t\ndbias = Σ_t dy_t",
        "left = K − 1 zeros before the first position: no future"),
    Row("additive_attention", "03", "f_ij = tanh(query_i + key_j)\nP_i = softmax_j(Σ f_ij · score_weight)\n"
        "out_i = Σ_j P_ij value_j",
        "dvalue_j = Σ_i P_ij dout_i\ndP_ij = Σ dout_i · value_j\ndS_ij = P_ij (dP_ij − Σ_k dP_ik P_ik)\n"
        "dscore_weight = Σ_ij dS_ij f_ij\ndf_ij = dS_ij score_weight · (1 − f_ij²)\n"
        "dquery_i = Σ_j df_ij, dkey_j = Σ_i df_ij"),
    Row("linear_attention", "23", "state_i = Σ_j φ(k_j)ᵀ v_j\ntotal_i = Σ_j φ(k_j)\nz_i = Σ φ(q_i) · total_i + eps\n"
        "out_i = φ(q_i) @ state_i / z_i",
        "a_i = dout_i / z_i, b_i = −Σ dout_i · out_i / z_i\ndφ(q_i) = a_i @ state_iᵀ + b_i total_i\n"
        "dstate_j = Σ_i φ(q_i)ᵀ a_i, dtotal_j = Σ_i b_i φ(q_i)\ndφ(k_j) = v_j @ dstate_jᵀ + dtotal_j\n"
        "dv_j = φ(k_j) @ dstate_j\ndq = dφ(q) · φ′(q), dk = dφ(k) · φ′(k)",
        "φ(x) = elu(x) + 1; causal: Σ_j over j ≤ i, Σ_i over i ≥ j"),
    Row("log_probs", "27", "y = log softmax(logits)_id", "dlogits = dlog_probs · (onehot − softmax(logits))",),
    Row("entropy", "27", "H = −Σ_v p_v log p_v", "dlogits = −dentropy · p · (log p + H)", "p = softmax(logits)"),
)  # fmt: skip

ALONE = (
    Row("adam_step", "09", "g = grad_scale · grad\nm ← β₁ m + (1 − β₁) g\nv ← β₂ v + (1 − β₂) g²\n"
        "data ← data − lr · m̂ / (√v̂ + ε)", "", "m̂ = m / (1 − β₁^step), v̂ = v / (1 − β₂^step)"),
    Row("global_norm", "09", "√Σ grad²", "", "clip: grad_scale = min(1, max_norm / norm)"),
    Row("log_softmax", "11", "x − m − log Σ exp(x − m)", "", "m: the row's maximum"),
    Row("topk", "11", "the k largest elements and their indices", "", "for beam search"),
    Row("linear_attention_step", "23",
        "state += φ(k)ᵀ v, total += φ(k)\nout = φ(q) @ state / (Σ φ(q) · total + eps)", "",
        "decoding without a cache that grows"),
)  # fmt: skip

STYLE = """
:root { color-scheme: light; --ink: #222; --grey: #595959; --line: #d5dbe3; --blue: #1d5a9b; --red: #b5371e; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: white; color: var(--ink);
       font: 15px/1.4 "DejaVu Sans", Verdana, system-ui, sans-serif; }
h1 { font-size: 1.4em; margin: 0 0 .3em; } h2 { font-size: 1.1em; margin: 1em 0 .3em; }
p { margin: .3em 0; } a { color: inherit; text-decoration-color: var(--grey); }
code { font: inherit; font-weight: bold; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
td, th { vertical-align: top; text-align: left; padding: .3em .5em; }
tr { border-top: 1px solid var(--line); break-inside: avoid; }
thead th { font-weight: normal; color: var(--grey); }
thead th:first-child { width: 21%; } thead th:last-child { width: 45%; }
table.two thead th { width: 50%; }
.note { color: var(--grey); font-weight: normal; font-size: .85em; display: block; }
.forward { color: var(--blue); } .backward { color: var(--red); } .line { display: block; }
sub { font-size: .75em; line-height: 0; }
@media screen and (max-width: 44rem) {
  body { padding: .6rem; font-size: 14px; overflow-wrap: anywhere; }
  thead { display: none; } tr, th, td { display: block; } tbody th { padding-bottom: 0; }
  td { padding: .15em .5em .15em 1.2em; } tr { padding: .3em 0; }
  .forward .line:first-child::before { content: "→ "; } .backward .line:first-child::before { content: "← "; }
}
@page { size: A4; margin: 9mm 11mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 8.5pt; line-height: 1.24; } .next { break-before: page; }
  td, th { padding: .2em .4em; } h2 { margin: .6em 0 .15em; } a { text-decoration: none; }
}
"""


def page() -> str:
    """Return the cheat sheet as HTML, which needs no other file and no network."""
    rules = "".join(
        f'<tr><td class="forward">{as_html(forward)}</td><td class="backward">{as_html(backward)}</td></tr>\n'
        for forward, backward in RULES
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Every forward and backward of a Transformer</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Every forward and backward of a Transformer</h1>
<p>{as_html(NOTATION)}</p>
<h2>Six rules, of which every backward is made</h2>
<table class="two"><thead><tr><th>forward</th><th>backward</th></tr></thead>
<tbody>
{rules}</tbody></table>
<h2>The paper's model</h2>
{_table(MODEL)}
<h2 class="next">Its family, and what stood before it</h2>
{_table(FAMILY)}
<h2>Without a backward</h2>
{_table(ALONE)}
<p class="note">Is a backward right? For any direction u: (loss(x + h·u) − loss(x − h·u)) / 2h ≈ Σ dx · u, in float64,
with h = 10⁻⁵ (lesson 00).</p>
</body>
</html>
"""


def fingerprint() -> str:
    """Return a hash of the page, which stands at the end of its PDFs."""
    return sha256(page().encode()).hexdigest()[:16]


def _table(rows: Sequence[Row]) -> str:
    lessons = {number_of(source): f"{source.stem}.ipynb" for source in sources()}
    lines = []
    for row in rows:
        function = getattr(ops, f"{row.name}_forward", None) or getattr(ops, row.name)
        place = f"../{function.__module__.replace('.', '/')}.py"
        short = row.name.replace("_", "_<wbr>")  # a narrow column breaks it there
        name = f'<a href="{place}">{short}</a> <a class="note" href="{lessons[row.lesson]}">lesson {row.lesson}</a>'
        note = f'<span class="note">{as_html(row.note)}</span>' if row.note else ""
        back = f'<td class="backward">{_lines(row.backward)}</td>' if row.backward else ""
        wide = "" if row.backward else ' colspan="2"'
        lines.append(f'<tr><th>{name}</th><td class="forward"{wide}>{_lines(row.forward)}{note}</td>{back}</tr>')
    head = f"<thead><tr><th>op</th><th>forward</th><th>{'backward' if rows[0].backward else ''}</th></tr></thead>"
    return f"<table>{head}\n<tbody>\n" + "\n".join(lines) + "\n</tbody></table>"


def _lines(formulas: str) -> str:
    return "".join(f'<span class="line">{as_html(line)}</span>' for line in formulas.split("\n"))


def as_html(text: str) -> str:
    """Return text as HTML: `code`, and after `_` an index of one or two letters, or what stands in braces."""
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
    return re.sub(r"_\{([^}]+)\}|_([a-zA-Z]{1,2}(?![a-zA-Z_]))", r"<sub>\1\2</sub>", escaped)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, by default with the arguments of `sys.argv`; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m course.cheat_sheet", description="Make the cheat sheet.")
    parser.add_argument("--pdf", action="store_true", help="and the PDFs, with Chromium")
    args = parser.parse_args(argv)
    PAGE.write_text(page(), encoding="utf-8")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if args.pdf and not browser:
        parser.error("no Chromium on this machine")
    for paper, path in PAPERS.items() if args.pdf else ():
        with tempfile.TemporaryDirectory() as folder:
            sized = Path(folder) / "page.html"
            sized.write_text(page().replace("size: A4", f"size: {paper}"), encoding="utf-8")
            options = ["--headless", "--no-sandbox", "--no-pdf-header-footer", f"--user-data-dir={folder}/profile"]
            command = [str(browser), *options, f"--print-to-pdf={path}", sized.as_uri()]
            subprocess.run(command, check=True, capture_output=True)
        path.write_bytes(path.read_bytes() + f"% of {fingerprint()}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
