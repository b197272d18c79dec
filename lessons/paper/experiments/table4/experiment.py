"""Table 4: models for translation as parsers. A sentence goes in, its linearised tree comes out.

A Transformer and a recurrent model with attention learn from few trees and from many, at equal cost; the trees are the
grammar's whatever the task is. Source: Vaswani 2017, §6.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import Batches
from minitransformer.data.preparation import CorpusChoice, PreparedData
from minitransformer.data.trees import linearise
from minitransformer.grammar import Example, sample
from minitransformer.models import ModelConfig, RecurrentConfig, TransformerConfig, build_model
from minitransformer.ops import numpy_ops

from ...comparison import compare, scores
from ...experiment import GRAMMAR, Context, Findings, Task
from ...trials.bootstrap import F1, interval
from ...trials.brackets import Span, read_brackets
from ...trials.counting import counting
from ...trials.trial import Exam, ExamResult, Trial, TrialResult
from .report import MODELS, RNN, TRANSFORMER, draw, report

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "report", "trials"]

NAME, TITLE, MINUTES, ALONE = "table4", "Table 4: constituency parsing", 9.0, 9.0

OPERATIONS = 10.2e12
"""Of each training at scale 1: some 4,600 steps of the Transformer, three minutes of one core."""

EXAM = Exam(sentences=300, averaged=True, beam=21, length_penalty=0.3, max_extra=300)  # as in §6.3


@dataclass(frozen=True)
class Treebank:
    """Trees to train on, and what they stand for.

    vocab_size  fewer tokens for fewer trees, as in the paper (16,000 and 32,000); words of the test set that the 1,000
                sentences don't have are spelled
    dropout     more for fewer trees, which are seen a hundred times; the paper chose it on the development set
    batch       sentences of a typical batch, the tokens of a sentence and of its tree, padding included
    """

    name: str
    sentences: int
    vocab_size: int
    dropout: float
    batch: tuple[int, int, int]

    @property
    def text(self) -> CorpusChoice:
        """Sentences and their trees."""
        return replace(GRAMMAR.text, target="tree", sentences=self.sentences, vocab_size=self.vocab_size)


TREEBANKS = (
    Treebank("small", 1_000, 1200, dropout=0.3, batch=(22, 23, 45)),
    Treebank("large", 40_000, 1600, dropout=0.1, batch=(23, 17, 44)),
)


def trials(task: Task, scale: float) -> Sequence[Trial]:
    """Both models on both treebanks; the same for every task."""
    return [parser(model, bank, scale) for bank in TREEBANKS for model in MODELS]


def parser(model: str, bank: Treebank, scale: float) -> Trial:
    """The trial of a model on a treebank, for the same number of operations as the others.

    Batches are half as large as the translators', for more steps, and the learning rate is lower. Until a parser has
    found out how to count the words that it has written, it learns only what trees look like: in short trainings the
    Transformer did so within 600 steps with these settings; with eight heads, and larger batches or fewer layers, not
    within 900.
    """
    config = configuration(model, bank)
    settings = GRAMMAR.training(scale * OPERATIONS / step_operations(config, bank), tokens_per_batch=1024, peak_lr=3e-3)
    return Trial(f"table4 {bank.name} {'RNN' if model == RNN else model}", bank.text, config, settings, (EXAM,))


def configuration(model: str, bank: Treebank) -> ModelConfig:
    """About as many operations a step for either; sources and `EXAM.max_extra` tokens more fit into `max_length`."""
    shared: dict[str, Any] = {"vocab_size": bank.vocab_size, "dropout": bank.dropout, "max_length": 512}
    if model == TRANSFORMER:
        return TransformerConfig(d_model=64, num_heads=4, d_ff=256, num_layers=3, init_gain=0.5, **shared)
    return RecurrentConfig(d_model=120, **shared)


def step_operations(config: ModelConfig, bank: Treebank) -> float:
    """Operations of a training step on a typical batch of trees, which are longer than their sentences."""
    rows, source_length, target_length = bank.batch
    ops, tally = counting(numpy_ops)
    source, target = (np.full((rows, length), config.vocab_size - 1) for length in (source_length, target_length))
    build_model(config, ops).loss(source, target, target, with_grad=False)
    return tally.training


def find(context: Context) -> Findings:
    """The scores of the four parsers, the differences between them, and a parse that went wrong.

    Raises `ValueError` where two parsers were not asked the same sentences.
    """
    laboratory = context.laboratory
    parsers = {(bank.name, model): parser(model, bank, context.scale) for bank in TREEBANKS for model in MODELS}
    results = {key: laboratory.result(trial) for key, trial in parsers.items()}
    few, many = (bank.name for bank in TREEBANKS)
    examples = list(islice(sample("test", GRAMMAR.text.seed), EXAM.sentences))
    return {
        "task": context.task.name,
        "exam": asdict(EXAM),
        "parsers": [
            {"trees": bank, "model": model, **_row(trial, results[bank, model], laboratory.data(trial.text))}
            for (bank, model), trial in parsers.items()
        ],
        "between_models": {bank: compare(results[bank, TRANSFORMER], results[bank, RNN], "f1") for bank in (few, many)},
        "between_trees": {model: compare(results[many, model], results[few, model], "f1") for model in MODELS},
        "example": _example(examples),
        "mistake": _mistake(results, examples),
    }


def _row(trial: Trial, result: TrialResult, data: PreparedData) -> dict[str, Any]:
    """What a training took, and how its parses are."""
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
        row |= {"exam_seconds": result.exam.seconds, **_soundness(result.exam), "known": _known(result.exam, data)}
    return row


def _soundness(exam: ExamResult) -> dict[str, Any]:
    """How many parses are malformed and why; F1 if all of their constituents are wrong, and F1 of the others alone."""
    malformed, right = exam.statistics[:, 3] > 0, _brackets_right(exam)
    strict = exam.statistics.copy()
    strict[malformed, 0] = 0
    return {
        "malformed": int(malformed.sum()),
        "no_tree": sum(not read_brackets(parse).well_formed for parse in exam.hypotheses),
        "strict_f1": asdict(interval(F1, strict)),
        "only_words": int(right[malformed].sum()),
        "brackets_right": int(right.sum()),
        "sound_f1": None if malformed.all() else asdict(interval(F1, exam.statistics[~malformed])),
    }


def _brackets_right(exam: ExamResult) -> NDArray[np.bool_]:
    """Whether a parse has the reference's brackets in their order, however many words it puts between them, `(N,)`."""
    ours, theirs = ([tree.replace("XX", "").split() for tree in trees] for trees in (exam.hypotheses, exam.references))
    return np.array([a == b for a, b in zip(ours, theirs, strict=True)])


def _known(exam: ExamResult, data: PreparedData) -> int:
    """How many of the test's trees, words aside, are among those to train on."""
    trees = {tuple(target) for _, target in data.train}
    return sum(tuple(data.tokenizer.encode(tree)) in trees for tree in exam.references)


def _example(examples: Sequence[Example]) -> dict[str, str]:
    """The shortest sentence of the test set, its tree, and how that is written."""
    shortest = min(examples, key=lambda each: len(each.tree))
    return {"sentence": shortest.english, "tree": shortest.tree, "linearised": linearise(shortest.tree)}


def _mistake(results: Mapping[tuple[str, str], TrialResult], examples: Sequence[Example]) -> dict[str, Any] | None:
    """The best parser's wrong parse with the fewest wrong constituents, sound ones first; None without any."""
    asked = {key: result.exam for key, result in results.items() if result.diverged is None}
    if not asked:
        return None
    (bank, model), exam = max(asked.items(), key=lambda item: F1.score(item[1].statistics.sum(0)))
    matched, written, wanted, malformed = exam.statistics.T
    wrong = np.flatnonzero((malformed > 0) | (matched < np.maximum(written, wanted)))
    if not len(wrong):
        return None
    number = min(wrong.tolist(), key=lambda i: (malformed[i], written[i] + wanted[i] - 2 * matched[i], wanted[i]))
    ours, theirs = (read_brackets(tree).spans for tree in (exam.hypotheses[number], exam.references[number]))
    words = _words(examples[number].tree)
    return {
        "trees": bank,
        "model": model,
        "sentence": examples[number].english,
        "wanted": exam.references[number],
        "written": exam.hypotheses[number],
        "missing": [_constituent(span, words) for span in (theirs - ours).elements()],
        "wrong": [_constituent(span, words) for span in (ours - theirs).elements()],
        "malformed": bool(malformed[number]),
    }


def _words(tree: str) -> list[str]:
    """The words of a tree `(S (NP (D the) (N dog)) …)`: what is neither a bracket nor a label."""
    tokens = tree.replace("(", " ( ").replace(")", " ) ").split()
    return [token for before, token in pairwise(tokens) if token not in "()" and before != "("]


def _constituent(span: Span, words: Sequence[str]) -> str:
    label, start, stop = span
    return f"{label}: {' '.join(words[start:stop])}"
