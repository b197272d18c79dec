"""What the report says of table 3."""

from typing import Any

from ...comparison import learned, shown, spread, verdict
from ...experiment import Findings
from ...markdown import paragraph, picture, table
from ...trials.bootstrap import Interval
from .variations import BASE, TABLE_3

CLAIMS = [
    ("(A) one head is worse than eight", "1 head", "bleu", -1),
    ("(A) too many heads are worse than eight", "32 heads", "bleu", -1),
    ("(A) sixteen heads have a perplexity no worse than eight's", "16 heads", "perplexity", -1),
    ("(B) a smaller d_k hurts", "d_k 16", "bleu", -1),
    ("(C) fewer layers are worse", "2 layers", "bleu", -1),
    ("(C) more layers have a better perplexity", "8 layers", "perplexity", -1),
    ("(C) more layers have a worse BLEU", "8 layers", "bleu", -1),
    ("(C) a narrower model is worse", "d_model 256", "bleu", -1),
    ("(C) a wider model is better", "d_model 1024", "bleu", 1),
    ("(C) a wider feed-forward is better", "d_ff 4096", "bleu", 1),
    ("(D) without dropout it is worse", "dropout 0.0", "bleu", -1),
    ("(D) without label smoothing perplexity is better", "smoothing 0.0", "perplexity", -1),
    ("(D) without label smoothing BLEU is worse", "smoothing 0.0", "bleu", -1),
    ("big is better", "big", "bleu", 1),
]
"""What the paper's table shows of each group: the claim, its row, the metric, and the sign of its difference."""


def report(findings: Findings) -> list[str]:
    """Parameters, scores, and what becomes of each claim."""
    base = findings["scores"][BASE.name]
    divisors = ", ".join(f"{name} {number}" for name, number in findings["divisors"].items())
    return [
        *_parameter_lines(findings["parameters"]),
        "",
        *_miniature_lines(findings, base, divisors),
        "",
        *_score_lines(findings),
        "",
        picture("table3-differences", "BLEU and perplexity of each row less the base's, with intervals"),
        "",
        *_claim_lines(findings),
        "",
        *_position_lines(findings),
        "",
        *_length_lines(findings["lengths"]),
    ]


def _miniature_lines(findings: Findings, base: dict[str, Any], divisors: str) -> list[str]:
    curve = findings["curve"]
    falling = ""
    if len(curve) > 1 and curve[-1]["perplexity"] < curve[-2]["perplexity"]:
        before, last = curve[-2:]
        falling = f"""
            None is trained to its end: over the last {last["step"] - before["step"]:,} steps the base's validation
            perplexity fell from {before["perplexity"]:.3f} to {last["perplexity"]:.3f}. So what a row shows is how
            far it gets in so many steps, and what slows learning down (dropout, smoothing) costs more here than in a
            long training.
        """
    return [
        paragraph(f"""
            **In miniature.** Every size is divided by the same number ({divisors}); every row is trained on
            {base["pairs"]:,} pairs for {base["steps"]:,} steps, which is {base["epochs"]:.1f} times over, and asked
            with its last checkpoint, a beam of 4 and α = 0.6, as in §6.2. Big has the base's dropout and takes no more
            steps than the others (in the paper 0.3, and three times as many). Perplexities are per token. *Less
            base's*: the difference with its 95 % interval, both models on the same bootstrap samples of the test
            sentences; **bold** where the interval leaves out zero. {falling}
        """),
    ]


def _parameter_lines(rows: dict[str, dict[str, Any]]) -> list[str]:
    printed = {name: row for name, row in rows.items() if row["printed"] is not None}
    lows, highs = zip(*(row["vocabulary"] for name, row in printed.items() if name != "big"), strict=True)
    low, high = max(lows), min(highs)
    big = printed["big"]
    cells = [
        [
            name,
            f"{row['printed']}",
            f"{row['counted'] / 1e6:.1f}",
            f"{row['vocabulary'][0]:,} to {row['vocabulary'][1]:,}",
        ]
        for name, row in printed.items()
    ]
    fits = (
        f"One vocabulary of {low:,} to {high:,} tokens gives every printed number but big's, which asks for "
        f"{big['vocabulary'][0]:,} to {big['vocabulary'][1]:,}"
        if low <= high
        else "No one vocabulary gives all the printed numbers"
    )
    return [
        paragraph("""
            **Parameters, to the number**, in millions: the paper's, and ours counted from the
            configuration with the "about 37000 tokens" of §5.1 and one table for source, target and
            output (§3.4); with biases in attention's projections too, which the paper's formulas leave out.
            The last column is the vocabulary with which the count, rounded, is the
            printed one.
        """),
        "",
        *table(["row", "printed", "counted", "vocabulary that fits"], cells),
        "",
        paragraph(f"""
            {fits}. The paper does not say what its vocabularies were, to the token.
        """),
    ]


def _score_lines(findings: Findings) -> list[str]:
    head = ["", "row", "paper: ppl", "BLEU", "ours: perplexity", "less base's", "BLEU", "less base's", "parameters"]
    cells = []
    for row in TABLE_3:
        found, gaps = findings["scores"][row.name], findings["differences"].get(row.name, {})
        cells.append(
            [
                row.group if row.group in "ABCDE" else "",
                f"{row.name}{_sizes(findings['miniature'], row.name)}",
                f"{row.published.perplexity:.2f}",
                f"{row.published.bleu:.1f}",
                _value(found, "perplexity", 3),
                _gap(gaps.get("perplexity"), 3),
                _value(found, "bleu", 1),
                _gap(gaps.get("bleu"), 1),
                f"{found['parameters']:,}",
            ]
        )
    return table(head, cells)


def _sizes(rows: dict[str, dict[str, int]], name: str) -> str:
    """What the miniature has in place of the sizes that the row names; of the base all of them."""
    base, row = rows[BASE.name], rows[name]
    if name == BASE.name:
        return f" ({', '.join(f'{size} {count}' for size, count in base.items())})"
    changed = [f"{size} {row[size]}" for size in row if row[size] != base[size]]
    return f" ({', '.join(changed)})" if changed else ""


def _value(found: dict[str, Any], metric: str, digits: int) -> str:
    return f"{found[metric]['value']:.{digits}f}" if metric in found else found["diverged"]


def _gap(found: dict[str, float] | None, digits: int) -> str:
    if found is None:
        return ""
    gap = Interval(**found)
    text = gap.text(digits, sign=True)
    return f"**{text}**" if gap.excludes_zero else text


def _claim_lines(findings: Findings) -> list[str]:
    """Each claim: shown here, contradicted, or not to be told from the choice of sentences or of the seed."""
    bases = [findings["scores"][BASE.name], *findings["seeds"]]
    of_bleu, of_perplexity = spread(bases, "bleu"), spread(bases, "perplexity")
    if of_bleu is None or of_perplexity is None:
        return ["A base diverged: no row can be compared with it."]
    of_seeds = {"bleu": of_bleu, "perplexity": of_perplexity}
    values = {metric: [each[metric]["value"] for each in bases] for metric in of_seeds}
    lines = [
        paragraph(f"""
            What the paper's table shows, and whether it shows here, at this size and length of training. The base was
            trained with {len(bases)} seeds, which came to {", ".join(f"{value:.1f}" for value in values["bleu"])} BLEU
            and {", ".join(f"{value:.3f}" for value in values["perplexity"])} perplexity: a difference counts as shown
            if its interval leaves out zero **and** it is larger than theirs ({of_bleu:.1f} and
            {of_perplexity:.3f}). Each row but the base is one training.
        """),
        "",
    ]
    for claim, row, metric, sign in CLAIMS:
        found, score = findings["differences"][row][metric], findings["scores"][row]
        if found is None or not learned(score):
            why = score["diverged"] or f"did not learn to translate in {score['steps']:,} steps"
            lines.append(f"- {claim}: not to be compared, {row}: {why}.")
            continue
        gap = Interval(**found)
        digits, name = (1, "BLEU") if metric == "bleu" else (3, "perplexity")
        state = "**can't be told** from chance here"
        if gap.excludes_zero and abs(gap.value) > of_seeds[metric]:
            state = "**shown**" if gap.value * sign > 0 else "**the other way round** here"
        elif gap.excludes_zero:
            state = "**can't be told** from what another seed changes"
        lines.append(f"- {claim}: {state}; {row} {gap.text(digits, sign=True)} {name}.")
    return lines


def _position_lines(findings: Findings) -> list[str]:
    gap = findings["differences"]["learned positions"]["bleu"]
    of_seeds = spread([findings["scores"][BASE.name], *findings["seeds"]], "bleu")
    said = verdict("The base with learned positions", "with sinusoids", "bleu", gap, of_seeds)
    return [f"(E) {said} (The paper: 25.7 and 25.8.)"]


def _length_lines(lengths: dict[str, Any]) -> list[str]:
    short, long = lengths["trained"], lengths["asked"]
    rows = lengths["scores"]
    diverged = [positions for positions, found in rows.items() if found["short"]["diverged"]]
    if diverged:
        return [f"**Length extrapolation**: the training with {' and '.join(diverged)} positions diverged."]
    cells = [
        [positions, *(shown(found[exam], "bleu") for exam in ("short", "long")), shown(found["long"], "perplexity", 2)]
        for positions, found in rows.items()
    ]
    some = rows["sinusoidal"]
    head = ["positions", f"BLEU, up to {short[1]} tokens", f"BLEU, {long[0]} tokens and more", "perplexity of those"]
    return [
        paragraph(f"""
            **Length extrapolation** (§3.5: sinusoids "may allow the model to extrapolate to sequence
            lengths longer than the ones encountered during training"). Two bases, trained on the
            {some["short"]["pairs"]:,} pairs of at most {short[1]} tokens on either side
            ({some["short"]["epochs"]:.0f} times over), are asked {some["short"]["sentences"]} such pairs of the test
            set and {some["long"]["sentences"]} with {long[0]} tokens and more on both sides. There is one training of
            each, so what another seed would change is not in the intervals:
        """),
        "",
        *table(head, cells),
        "",
        f"- Short: {verdict('Sinusoidal', 'learned', 'bleu', lengths['differences']['short'])}",
        f"- Long: {verdict('Sinusoidal', 'learned', 'bleu', lengths['differences']['long'])}",
        "",
        "Learned vectors of places that no sentence reached are where they began: noise.",
    ]
