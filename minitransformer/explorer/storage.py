"""Weights as int8, in a quarter of the bytes, and a measure of how that changes the model's outputs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..decoding import Generator, Tokenizer, Translator, greedy_search
from ..decoding.describer import start_of
from ..decoding.search import Start, beam_search
from ..decoding.tokenizer import without_text
from ..models import GPT, Captioner
from ..ops import numpy_ops
from ..system.progress import tqdm
from .pictures import Picture

LARGEST = 127
LONGEST_CONTINUATION = 30


class StorageLoss(NamedTuple):
    """The changes by int8: differences of the log-probabilities of the model's own greedy outputs, in nats, and the
    number of the sentences that keep their greedy output.
    """

    sentences: int
    max_difference: float
    mean_difference: float
    equal_outputs: int


def quantised(name: str, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a parameter's matrix as int8, and its scales: it is about `integers * scales`.

    A table `(V, C)` has a scale for each row, `(V, 1)`. The weight of a map `(C_in, C_out)` has one for each column,
    `(1, C_out)`: inputs that it hardly uses stand in rows with numbers of all sizes, and outputs do not.
    """
    scales = np.abs(array).max(axis=0 if of_columns(name) else 1, keepdims=True) / LARGEST
    scales = np.where(scales > 0, scales, 1).astype(np.float32)
    return np.rint(array / scales).astype(np.int8), scales


def of_columns(name: str) -> bool:
    """Return True if int8 has a scale for each column of this parameter."""
    return name.endswith(".weight")


def dequantised(integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the float32 matrix that the page makes of int8 and scales."""
    return integers.astype(np.float32) * scales


def stored_as_int8(model: Any) -> Any:
    """Return the model with the weights that the page has after int8."""
    twin = type(model).blank(model.config, numpy_ops, "float32")
    for name, parameter in model.parameters.named.items():
        array = np.asarray(model.ops.to_numpy(parameter.value), np.float32)
        twin.parameters.named[name].value[...] = dequantised(*quantised(name, array)) if array.ndim == 2 else array
    return twin


def measure_loss(
    model: Any, tokenizer: Tokenizer, sentences: Sequence[str] | Sequence[Picture], progress: bool = False
) -> StorageLoss:
    """Measure the changes by int8 on these sentences: beginnings of texts for a GPT, for a captioner pictures."""
    changed = stored_as_int8(model)
    differences, equal, count = list[float](), 0, 0
    encoded = _encoded(model, tokenizer, sentences)
    for source in tqdm(encoded, desc="what int8 changes", unit=" sentences", disable=None if progress else True):
        output = _greedy(model, tokenizer, source)
        before, after = (_log_probs(each, source, output) for each in (model, changed))
        differences += np.abs(before - after).tolist()
        equal += _greedy(changed, tokenizer, source) == output
        count += 1
    if not differences:
        return StorageLoss(count, 0.0, 0.0, equal)
    return StorageLoss(count, max(differences), sum(differences) / len(differences), equal)


def _encoded(model: Any, tokenizer: Tokenizer, sentences: Sequence[Any]) -> list[Any]:
    """Return what the model reads of each: pixels, or the ids of a text that is not blank, cut to its longest."""
    if isinstance(model, Captioner):
        return [picture.pixels for picture in sentences]
    if isinstance(model, GPT):
        generator = Generator(model, tokenizer)
        longest = model.config.max_length - 1
        return [_prompt(generator, tokenizer, text, longest) for text in sentences if text.strip()]
    return [ids for ids in Translator(model, tokenizer).encode(sentences, truncate=True) if ids]


def _prompt(generator: Generator, tokenizer: Tokenizer, text: str, longest: int) -> list[int]:
    """Encode a prompt, halved until the model has room for it."""
    while len(tokenizer.encode(text)) + 1 > longest and len(text) > 1:
        text = text[: len(text) // 2]
    return generator.encode(text)


def _greedy(model: Any, tokenizer: Tokenizer, source: Any) -> list[int]:
    """Return the ids that the model writes, with the end mark if it ended."""
    if isinstance(model, GPT):
        limit = min(LONGEST_CONTINUATION, model.config.max_length - len(source))
        forbidden = without_text(model.config, tokenizer)
        start = Start(first=np.array([source[-1]]), limits=np.array([limit]), forbidden=forbidden)
        found = beam_search(model, np.array([source[:-1]], np.int64), 1, 0.0, start=start)[0][0]
    elif isinstance(model, Captioner):
        found = beam_search(model, np.array([source]), 1, 0.0, start=start_of(model.config, 1))[0][0]
    else:
        (found,) = greedy_search(model, np.array([source]))
    end: Any = model.config.eos_id  # a model without this mark never ends
    return [*found.ids, *[end] * found.ended]


def _log_probs(model: Any, source: Any, output: list[int]) -> np.ndarray:
    if isinstance(model, GPT):
        logits, _ = model.forward(np.array([source + output[:-1]]))
        logits = logits[:, len(source) - 1 :]
    else:
        logits, _ = model.forward(np.array([source]), np.array([[model.config.bos_id, *output[:-1]]]))
    log_probs = numpy_ops.log_softmax(np.asarray(model.ops.to_numpy(logits), np.float32))[0]  # (T, V)
    return log_probs[np.arange(len(output)), output].astype(np.float64)
