"""Table 4: translation models as parsers, which translate a sentence into its linearised tree.

A Transformer and a recurrent model with attention learn from few trees and from many, at equal cost. The trees are the
grammar's for every task. Source: Vaswani 2017, §6.3.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from minitransformer.data.preparation import CorpusChoice, PreparedData
from minitransformer.data.token_dataset import Batches
from minitransformer.data.trees import linearise
from minitransformer.grammar import Example, sample
from minitransformer.models import RecurrentConfig, TransformerConfig, TranslationConfig
from minitransformer.plots.page import BLUE, GREY, INK, ORANGE, Page, text_style
from study.charts import finish
from study.comparison import compare, scores, shown, verdict
from study.experiment import Context, Findings
from study.markdown import bullets, paragraph, picture, scientific, table, verbatim
from study.trials.bootstrap import F1, Interval, interval
from study.trials.brackets import read_brackets
from study.trials.translating import Translating
from study.trials.trial import Answers, Trial, TrialResult, step_flops

from ..published import TABLE_4
from ..task import GRAMMAR, Task

NAME, TITLE, MINUTES, ALONE = "table4", "Table 4: constituency parsing", 9.0, 9.0

MODELS = TRANSFORMER, RNN = "Transformer", "RNN + attention"
COLOURS = {TRANSFORMER: BLUE, RNN: ORANGE}
LINES = {"small": "--", "large": "-"}
PICTURE = "table4-parsing"

COUNTERPARTS = {"small": "WSJ only, discriminative", "large": "semi-supervised"}
PAPER_NAMES = {TRANSFORMER: "Transformer (4 layers)", RNN: "Vinyals & Kaiser et al. (2014)"}
PUBLISHED = {(row.training, row.parser): row.f1 for row in TABLE_4}

OPERATIONS = 10.2e12
"""The operations of each training at scale 1: some 4,600 steps of the Transformer, three minutes of one core."""

EVALUATION = Translating(sentences=300, averaged=True, beam=21, length_penalty=0.3, max_extra=300)  # as in §6.3


@dataclass(frozen=True)
class Treebank:
    """A treebank to train on, in the place of one of the paper's.

    vocab_size  smaller for fewer trees, as in the paper (16,000 and 32,000); test words that the 1,000 sentences do not
                have are spelled in pieces
    dropout     larger for fewer trees, which are seen a hundred times; the paper chose it on the development set
    batch       a typical batch: its sentences, and the tokens of a sentence and of its tree, with padding
    """

    name: str
    sentences: int
    vocab_size: int
    dropout: float
    batch: tuple[int, int, int]

    @property
    def text(self) -> CorpusChoice:
        """The text: sentences and their trees."""
        return replace(GRAMMAR.text, target="tree", sentences=self.sentences, vocab_size=self.vocab_size)


TREEBANKS = (
    Treebank("small", 1_000, 1200, dropout=0.3, batch=(22, 23, 45)),
    Treebank("large", 40_000, 1600, dropout=0.1, batch=(23, 17, 44)),
)


def trials(task: Task, scale: float) -> Sequence[Trial]:
    """Return trials of both models on both treebanks, which are the same for every task."""
    return [parser(model, bank, scale) for bank in TREEBANKS for model in MODELS]


def parser(model: str, bank: Treebank, scale: float) -> Trial:
    """The trial of a model on a treebank, with the same number of operations as the others.

    Batches are half as large as the translators', for more steps, and the learning rate is lower. Until a parser can
    count the words that it has written, it learns only the general form of trees. In short trainings the Transformer
    could count after 600 steps with these settings; with eight heads, and larger batches or fewer layers, it could not
    after 900.
    """
    config = configuration(model, bank)
    steps = scale * OPERATIONS / step_flops(config, bank.batch)
    settings = GRAMMAR.training(steps, tokens_per_batch=1024, peak_lr=3e-3)
    return Trial(f"table4 {bank.name} {'RNN' if model == RNN else model}", bank.text, config, settings, (EVALUATION,))


def configuration(model: str, bank: Treebank) -> TranslationConfig:
    """Both models with about equal operations a step; `max_length` is a source plus `EVALUATION.max_extra` tokens."""
    shared: dict[str, Any] = {"vocab_size": bank.vocab_size, "dropout": bank.dropout, "max_length": 512}
    if model == TRANSFORMER:
        return TransformerConfig(d_model=64, num_heads=4, d_ff=256, num_layers=3, init_gain=0.5, **shared)
    return RecurrentConfig(d_model=120, **shared)


def find(context: Context[Task]) -> Findings:
    """The scores of the four parsers, the differences between them, and a parse that went wrong.

    Raises `ValueError` if two parsers were not evaluated on the same sentences.
    """
    runner = context.runner
    parsers = {(bank.name, model): parser(model, bank, context.scale) for bank in TREEBANKS for model in MODELS}
    results = {key: runner.result(trial) for key, trial in parsers.items()}
    few, many = (bank.name for bank in TREEBANKS)
    examples = list(islice(sample("test", GRAMMAR.text.seed), EVALUATION.sentences))
    return {
        "task": context.task.name,
        "exam": asdict(EVALUATION),
        "parsers": [
            {"trees": bank, "model": model, **_row(trial, results[bank, model], runner.data(trial.text))}
            for (bank, model), trial in parsers.items()
        ],
        "between_models": {bank: compare(results[bank, TRANSFORMER], results[bank, RNN], "f1") for bank in (few, many)},
        "between_trees": {model: compare(results[many, model], results[few, model], "f1") for model in MODELS},
        "example": _example(examples),
        "mistake": _mistake(results, examples),
    }


def _row(trial: Trial, result: TrialResult, data: PreparedData) -> dict[str, Any]:
    """The row of a parser: the cost of its training, and the quality of its parses."""
    batches = Batches(data.train, trial.settings.tokens_per_batch, trial.settings.seed)
    row: dict[str, Any] = {
        **scores(result, ("f1",)),
        "config": trial.config.to_dict(),
        "training": trial.settings.to_dict(),
        "num_trees": len(data.train),
        "epochs": result.steps / len(batches),
        "curve": [[result.flops * p["step"] / result.steps, p["perplexity"]] for p in result.curve],
    }
    if result.diverged is None:
        answers, trees = result.answers(), {tuple(target) for _, target in data.train}
        known = sum(tuple(data.tokenizer.encode(tree)) in trees for tree in answers.references)  # without the words
        row |= {"exam_seconds": answers.seconds, **_soundness(answers), "known": known}
    return row


def _soundness(answers: Answers) -> dict[str, Any]:
    """Count malformed parses by cause; give F1 if all their constituents count as wrong, and F1 without them."""
    malformed = answers.statistics[:, 3] > 0
    pairs = zip(answers.hypotheses, answers.references, strict=True)
    # True if the brackets have the reference's order, whatever the words between them.
    right = np.array([ours.replace("XX", "").split() == theirs.replace("XX", "").split() for ours, theirs in pairs])
    strict = answers.statistics.copy()
    strict[malformed, 0] = 0
    return {
        "malformed": int(malformed.sum()),
        "no_tree": sum(not read_brackets(parse).well_formed for parse in answers.hypotheses),
        "strict_f1": asdict(interval(F1, strict)),
        "only_words": int(right[malformed].sum()),
        "brackets_right": int(right.sum()),
        "sound_f1": None if malformed.all() else asdict(interval(F1, answers.statistics[~malformed])),
    }


def _example(examples: Sequence[Example]) -> dict[str, str]:
    """The shortest sentence of the test set, its tree, and the linearised tree."""
    shortest = min(examples, key=lambda each: len(each.tree))
    return {"sentence": shortest.english, "tree": shortest.tree, "linearised": linearise(shortest.tree)}


def _mistake(results: Mapping[tuple[str, str], TrialResult], examples: Sequence[Example]) -> dict[str, Any] | None:
    """The best parser's wrong parse with the fewest wrong constituents, well-formed ones first; None without any."""
    asked = {key: result.answers() for key, result in results.items() if result.diverged is None}
    if not asked:
        return None
    (bank, model), answers = max(asked.items(), key=lambda item: F1.score(item[1].statistics.sum(0)))
    matched, written, wanted, malformed = answers.statistics.T
    wrong = np.flatnonzero((malformed > 0) | (matched < np.maximum(written, wanted)))
    if not len(wrong):
        return None
    number = min(wrong.tolist(), key=lambda i: (malformed[i], written[i] + wanted[i] - 2 * matched[i], wanted[i]))
    output, reference = answers.hypotheses[number], answers.references[number]
    ours, theirs = read_brackets(output).spans, read_brackets(reference).spans
    words = _words(examples[number].tree)
    return {
        "trees": bank,
        "model": model,
        "sentence": examples[number].english,
        "wanted": reference,
        "written": output,
        "missing": [f"{label}: {' '.join(words[i:j])}" for label, i, j in (theirs - ours).elements()],
        "wrong": [f"{label}: {' '.join(words[i:j])}" for label, i, j in (ours - theirs).elements()],
        "malformed": bool(malformed[number]),
    }


def _words(tree: str) -> list[str]:
    """The words of a tree `(S (NP (D the) (N dog)) …)`: everything except brackets and labels."""
    tokens = tree.replace("(", " ( ").replace(")", " ) ").split()
    return [token for before, token in pairwise(tokens) if token not in "()" and before != "("]


def published(trees: str, model: str) -> float:
    """The F1 of the paper's row of which a parser of ours is the miniature."""
    return PUBLISHED[COUNTERPARTS[trees], PAPER_NAMES[model]]


def draw(findings: Findings, folder: Path) -> None:
    """Draw the curves of the four trainings, and their scores beside the paper's."""
    page = Page(7.4, 3.3, layout="constrained")
    left, right = page.figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    for row in findings["parsers"]:
        operations, perplexities = zip(*row["curve"], strict=True) if row["curve"] else ((), ())
        losses = [math.log(perplexity) for perplexity in perplexities]
        label = f"{row['model']}, {row['num_trees']:,} trees"
        style = {"color": COLOURS[row["model"]], "ls": LINES[row["trees"]]}
        left.plot([count / 1e12 for count in operations], losses, lw=1.6, label=label, **style)
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter("{x:g}")
    left.minorticks_off()
    left.legend(frameon=False, fontsize=8, labelcolor=INK)
    finish(left, "operations of the training, 10¹²", "validation cross-entropy, nats a token")
    _draw_scores(right, findings["parsers"])
    page.save(folder / f"{PICTURE}.png")


def _draw_scores(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Draw a bar with its interval for each parser, and a mark at the paper's score."""
    for place, row in enumerate(rows):
        colour = COLOURS[row["model"]]
        if "f1" in row:
            f1 = Interval(**row["f1"])
            filling = colour if row["trees"] == "large" else "white"
            axes.bar(place, f1.value, width=0.62, linewidth=1.6, facecolor=filling, edgecolor=colour)
            axes.plot([place, place], [f1.low, f1.high], color=INK, lw=1.2)
            axes.text(place, f1.high + 1.5, f"{f1.value:.1f}", ha="center", va="bottom", **text_style([], 8))
        mark = {"marker": "D", "ms": 5, "ls": "", "color": "white", "markeredgecolor": INK}
        label = None if place else "the paper's, on the Wall Street Journal"
        axes.plot(place + 0.42, published(row["trees"], row["model"]), label=label, **mark)
    names = [f"{'RNN' if row['model'] == RNN else row['model']}\n{row['trees']}" for row in rows]
    axes.set(ylim=(0, 118))
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=7.5, labelcolor=GREY, loc="upper left")
    finish(axes, "", "F1, %")
    axes.set_xticks(range(len(rows)), names, fontsize=7.5)
    axes.tick_params(axis="x", length=0)


def report(findings: Findings) -> list[str]:
    """Report our scores beside the paper's, the differences, and the errors."""
    return [
        *_introduction(findings),
        _ours(findings["parsers"]),
        *_verdicts(findings),
        picture(PICTURE, "Validation cross-entropy against operations of four parsers; their F1 beside the paper's"),
        *_linearisation(findings["example"]),
        *_brackets(findings["parsers"]),
        *_mistake_blocks(findings["mistake"]),
        _differences(findings),
        "The paper's own table (F1 on section 23 of the Wall Street Journal):",
        table(["parser", "training", "F1"], [[row.parser, row.training, f"{row.f1}"] for row in TABLE_4]),
    ]


def _introduction(findings: Findings) -> list[str]:
    search, rows = findings["exam"], findings["parsers"]
    few, many = (next(row for row in rows if row["trees"] == name) for name in COUNTERPARTS)
    by_model = {row["model"]: row["config"] for row in rows}
    layers = by_model[RNN]["num_layers"]
    asked = max((row["sentences"] for row in rows if row["diverged"] is None), default=0)
    other_task = "" if findings["task"] == "grammar" else f" {findings['task']} has no trees: these are the grammar's."
    return [
        paragraph(f"""
            The models read an English sentence and write its parse tree as a sequence (§6.3), from
            {few["num_trees"]:,} trees ("small", in the place of the paper's 40,000 sentences of the Wall Street
            Journal) and from {many["num_trees"]:,} ("large", in the place of its 17 million of the semi-supervised
            setting), to equal training operations by the count of a typical batch.{other_task} The Transformer has
            {by_model[TRANSFORMER]["num_layers"]} layers on each side, d_model {by_model[TRANSFORMER]["d_model"]} and
            {by_model[TRANSFORMER]["num_heads"]} heads; the other model is of the kind of the paper's first row, an LSTM
            with additive attention, here with {layers} layer{"" if layers == 1 else "s"} and d_model
            {by_model[RNN]["d_model"]}. Vocabulary: {few["config"]["vocab_size"]:,} tokens for few trees,
            {many["config"]["vocab_size"]:,} for many; dropout {few["config"]["dropout"]} and
            {many["config"]["dropout"]}, the higher rate for the trees that are seen more often; batches of
            {few["training"]["tokens_per_batch"]:,} padded tokens. Sizes, rates and batches are the same for both
            models where both have them. They were chosen for the Transformer after a few short runs, not by a
            search.
        """),
        paragraph(f"""
            Each was tested on {asked:,} sentences of the test set, with
            {"the mean of its last five checkpoints" if search["averaged"] else "its last checkpoint"}, a beam of
            {search["beam"]}, α = {search["length_penalty"]} and at most {search["max_extra"]} tokens more than the
            input has. In brackets: the 95 % interval of 1,000 bootstrap samples of the test sentences. Each was
            trained once, so the interval leaves out the effect of another seed.
        """),
    ]


def _ours(rows: list[dict[str, Any]]) -> str:
    head = [
        "model", "trees", "F1", "F1, malformed ones all wrong", "malformed", "exactly right",
        "operations", "seconds", "steps", "epochs", "parameters", "F1 of the paper's counterpart",
    ]  # fmt: skip
    cells = []
    for row in rows:
        found = [f"diverged: {row['diverged']}", "–", "–", "–"]
        if row["diverged"] is None:
            found = [shown(row, "f1"), shown(row, "strict_f1"), f"{row['malformed']} of {row['sentences']}"]
            found += [f"{100 * row['exactly_right'] / row['sentences']:.1f} %"]
        took = [scientific(row["flops"]), f"{row['seconds']:,.0f}", f"{row['steps']:,}", f"{row['epochs']:,.1f}"]
        printed = f"{published(row['trees'], row['model'])}"
        cells.append([row["model"], row["trees"], *found, *took, f"{row['parameters']:,}", printed])
    return table(head, cells)


def _verdicts(findings: Findings) -> list[str]:
    """Sentences on each difference with its interval and the paper's, and on the loss, which may say something else."""
    said = []
    for trees, found in findings["between_models"].items():
        printed = published(trees, TRANSFORMER) - published(trees, RNN)
        said.append((f"{trees}: {verdict(TRANSFORMER, RNN, 'f1', found)}", printed))
    for model, found in findings["between_trees"].items():
        printed = published("large", model) - published("small", model)
        said.append((verdict(f"{model} with many trees", f"{model} with few", "f1", found), printed))
    rows = [row for row in findings["parsers"] if row["curve"]]
    losses = [f"{row['model']}, {row['trees']} {math.log(row['curve'][-1][1]):.3f}" for row in rows]
    return [
        bullets(f"{ours} In the paper: {f'{printed:+.1f}'.replace('-', '−')}." for ours, printed in said),
        paragraph(f"""
            Many trees and few differ in dropout and vocabulary too. Validation cross-entropy at the end, in nats a
            token: {"; ".join(losses) or "no run came so far"}. It asks for one token after the right ones; F1 asks
            for a whole tree, in which one XX too many shifts everything after it. So the two need not agree on which
            model is better.
        """),
    ]


def _linearisation(example: Mapping[str, str]) -> list[str]:
    return [
        paragraph("""
            A tree becomes tokens as Vinyals et al. (2015) write it: one opens a constituent, one closes it, each word
            is XX, and parts of speech are left out. A sentence of the test set, its tree, and the sequence that the
            model has to write:
        """),
        verbatim([example["sentence"], example["tree"], example["linearised"]]),
    ]


def _brackets(rows: list[dict[str, Any]]) -> list[str]:
    asked = [(f"{row['model']}, {row['trees']}", row) for row in rows if row["diverged"] is None]
    counts = [f"{name}: {row['no_tree']} and {row['malformed'] - row['no_tree']}" for name, row in asked]
    sound = [f"{name}: {shown(row, 'sound_f1')}" for name, row in asked if row["sound_f1"]]
    words = [f"{name}: {row['only_words']} of {row['malformed']}" for name, row in asked]
    right = [f"{name}: {row['brackets_right']} of {row['sentences']}" for name, row in asked]
    return [
        paragraph(f"""
            F1 is the harmonic mean of labelled precision and recall over all constituents of the test set: one is right
            if the reference has it with the same label over the same words (PARSEVAL). A parse is malformed if it is no
            tree or has not as many words as the sentence (how many of each kind:
            {"; ".join(counts) or "none was tested"}). No sentence is left out: of a malformed parse a closing bracket
            closes the nearest open constituent of its label and those inside it, one without such a constituent is
            ignored, as is a constituent without words, and constituents still open at the end are closed there. Words
            are counted, not matched: with one XX too few, all constituents after it are shifted and wrong. The second
            F1 gives malformed parses no right constituent at all. Over the sound ones alone, other sentences for each
            parser, F1 is {"; ".join(sound) or "of none"}.
        """),
        paragraph(f"""
            How much of that is counting? Malformed parses with all of the reference's brackets in their order, and only
            the words between them miscounted: {"; ".join(words) or "none was tested"}. Of all parses, with these
            brackets: {"; ".join(right) or "none was tested"}.
        """),
    ]


def _mistake_blocks(mistake: Mapping[str, Any] | None) -> list[str]:
    if mistake is None:
        return ["No example of a parse that went wrong: the best parser made none."]
    kind = "malformed" if mistake["malformed"] else "sound"
    lines = [mistake["sentence"], f"wanted   {mistake['wanted']}", f"written  {mistake['written']}"]
    lines += [f"{name:<9}{each}" for name in ("missing", "wrong") for each in mistake[name]]
    return [
        f"A parse that went wrong, of the best parser ({mistake['model']}, {mistake['trees']}); it is {kind}:",
        verbatim(lines),
    ]


def _differences(findings: Findings) -> str:
    known = {row["trees"]: row for row in findings["parsers"] if row["diverged"] is None}
    shares = [f"{100 * row['known'] / row['sentences']:.0f} % among the {row['num_trees']:,}" for row in known.values()]
    seen = f" Of the test's trees, words aside, {' and '.join(shares)} to train on." if shares else ""
    return paragraph(f"""
        Differences from the paper, besides size: the sentences and their trees are generated together, from a fixed set
        of constructions, so they are far more regular than a newspaper's; compare the order of our figures with that
        of the paper's, not their height.{seen} The paper's large setting adds trees that other parsers wrote, mistakes
        included; ours are all right. Its recurrent row is an LSTM of three layers; and of its Transformer it chose
        dropout, learning rate and beam on a development set.
    """)
