"""Asking a trained model: its translations or parses of a test set, and how probable it finds the right ones."""

from collections.abc import Sequence
from itertools import islice
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import PAD_ID, Batch, collate
from minitransformer.data.parallel import SentencePair
from minitransformer.data.preparation import PreparedData
from minitransformer.models import Model
from minitransformer.translator import search

from .bootstrap import bleu_statistics, bracket_statistics
from .trial import Exam, ExamResult

SENTENCES_AT_ONCE = 32
BATCH_TOKENS = 1024


def ask(model: Model, data: PreparedData, exam: Exam) -> ExamResult:
    """The result of one exam. Raises `ValueError` where no sentence of the test set is as long as asked for."""
    start = perf_counter()
    pairs = _sentences(data, exam)
    encode, eos = data.tokenizer.encode, data.tokenizer.eos_id
    sources, targets = ([encode(text) for text in side] for side in zip(*pairs, strict=True))
    hypotheses = [""] * len(pairs)
    options = {"beam": exam.beam, "length_penalty": exam.length_penalty, "max_extra": exam.max_extra}
    asked = [[*ids, eos] for ids in sources]
    for numbers, found in search(model, asked, BATCH_TOKENS, threads=1, **options):
        for number, (best, *_) in zip(numbers, found, strict=True):
            hypotheses[number] = data.tokenizer.decode(best.ids)
    references = [pair.target for pair in pairs]
    statistics = bracket_statistics if data.choice.target == "tree" else bleu_statistics
    return ExamResult(
        statistics=statistics(hypotheses, references),
        likelihood=likelihood(model, sources, targets),
        hypotheses=hypotheses,
        references=references,
        seconds=perf_counter() - start,
    )


def likelihood(model: Model, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Minus the log-probability of each target and its tokens, `</s>` counted, `(N, 2)`."""
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i])))
    rows = np.zeros((len(sources), 2))
    for start in range(0, len(order), SENTENCES_AT_ONCE):
        chosen = order[start : start + SENTENCES_AT_ONCE]
        batch = collate([np.array(sources[i]) for i in chosen], [np.array(targets[i]) for i in chosen])
        rows[chosen] = _losses(model, batch)
    return rows


def _losses(model: Model, batch: Batch) -> NDArray[np.float64]:
    logits, _ = model.forward(batch.source, batch.target_in)  # (B, Tt, V)
    log_probs = model.ops.to_numpy(model.ops.log_softmax(logits))
    picked = np.take_along_axis(log_probs, batch.target_out[..., None], axis=-1)[..., 0]  # (B, Tt)
    real = batch.target_out != PAD_ID
    return np.stack([-(picked * real).sum(1, dtype=np.float64), real.sum(1)], axis=1)


def _sentences(data: PreparedData, exam: Exam) -> list[SentencePair]:
    pairs = data.choice.pairs("test")
    if exam.lengths is not None:
        low, high = exam.lengths
        encode = data.tokenizer.encode
        pairs = (pair for pair in pairs if all(low <= len(encode(text)) + 1 <= high for text in pair))
    chosen = list(islice(pairs, exam.sentences))
    if not chosen:
        raise ValueError(f"no pair of the test set has {exam.lengths} tokens on both sides")
    return chosen
