"""The page of a recorded run: what a model did with one text, in one HTML file that works offline.

The page holds no weights and computes nothing. `page.html` is its template; the payload is JSON, in which every text is
an index into `pieces`.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.tokenizer import BPETokenizer
from ..decoding import Filler, Generator, Tokenizer, greedy_search
from ..decoding.tokenizer import check_vocabulary, encode_between_marks, encode_whole
from ..models import BERT, GPT, Captioner, EncoderDecoder, most_tokens
from ..ops import log_softmax, topk
from ..system.atomic import atomic_write
from ..system.visible import printed
from .recording import Recording, Stream, record

TEMPLATE = Path(__file__).with_name("page.html")
MOST_TOKENS = 256
BEST, FIRING, PLACES = 6, 4, 3
"""Tokens that the lens lists, neurons of a token, and the tokens of the text where a neuron fires most."""
MOST_PRODUCTS = 3 * 10**10
"""Multiplications that the tokens which neurons raise may cost, some seconds: those that fire most come first."""


class Reading(NamedTuple):
    """The text as a model reads it: ids by their stack; from `written` on those of the last are the model's own."""

    ids: dict[str, list[int]]
    written: int

    @property
    def inputs(self) -> list[np.ndarray]:
        """What `model.forward` takes."""
        return [np.array([ids]) for ids in self.ids.values()]


def look_inside(
    model: Any, tokenizer: Tokenizer, text: str, path: str | Path, *, name: str = "model", max_tokens: int | None = None
) -> tuple[int, int]:
    """Write the page of what a model does with a text; return the tokens on it and its size in bytes.

    A GPT first continues the text by `max_tokens` tokens, by default none; an encoder–decoder first writes its output,
    greedily, of at most so many tokens. Raises `ValueError` for a model that is none of them and no BERT, and for a
    text that is blank or longer than the page or the model takes.
    """
    reading = read(model, tokenizer, text, max_tokens)
    page = in_page(payload(model, tokenizer, name, reading, record(model, *reading.inputs)))
    with atomic_write(path) as file:
        file.write(page)
    return sum(map(len, reading.ids.values())), len(page)


def read(model: Any, tokenizer: Tokenizer, text: str, max_tokens: int | None = None) -> Reading:
    """Encode a text, and let the model write. Raises as `look_inside` does."""
    if not text.strip():
        raise ValueError("the text is blank: there is nothing to look at")
    if not isinstance(model, GPT | BERT | EncoderDecoder) or isinstance(model, Captioner):
        raise ValueError(
            f"a page shows what a model does with a text, and one of kind {model.config.kind!r} is for pictures"
        )
    config: Any = model.config
    longest = min(MOST_TOKENS, most_tokens(config))
    check_vocabulary(config, tokenizer)

    def fitting(ids: Any, more: int = 0) -> list[int]:
        if len(ids) + more > longest:
            has = f"{len(ids)} tokens" + f" and the model shall write {more} more" * (more > 0)
            raise ValueError(f"the text has {has}, but a page of this model shows at most {longest}: shorten it")
        return [int(each) for each in ids]

    if isinstance(model, GPT):
        generator, more = Generator(model, tokenizer), max_tokens or 0
        ids = fitting(generator.encode(text), more)
        return Reading({"decoder": ids + generator.search(ids, more, 1)}, len(ids))
    if isinstance(model, BERT):
        if max_tokens:
            raise ValueError("a BERT writes no tokens: max_tokens goes with other models")
        masked = config.head == "masked" and config.mask_id is not None
        whole = Filler(model, tokenizer).encode(text)[0] if masked else encode_between_marks(config, tokenizer, text)
        ids = fitting(whole)
        return Reading({"encoder": ids}, len(ids))
    source = fitting(encode_whole(config, tokenizer, text))
    most = longest - 1 if max_tokens is None else min(max_tokens, longest - 1)
    written = greedy_search(model, np.array([source]))[0].ids[:most]
    return Reading({"encoder": source, "decoder": [config.bos_id, *map(int, written)]}, 1)


def payload(model: Any, tokenizer: Tokenizer, name: str, reading: Reading, recording: Recording) -> dict[str, Any]:
    """Return all that the page shows. Raises `ValueError` for a model whose numbers are not finite."""
    pieces: dict[str, int] = {}
    names = names_of(model, tokenizer)

    def said(ids: Any) -> list[int]:
        return [pieces.setdefault(each, len(pieces)) for each in names(ids)]

    *_, last = recording.streams
    sides = {
        side: {
            "tokens": said(reading.ids[side]),
            "written": reading.written if side == last else len(reading.ids[side]),
            "normed": getattr(model, side).final_norm is None,  # each sum is normalised
            "norms": rounded(np.linalg.norm(stream.states[:, 0], axis=-1)),  # (L + 1, T)
            "added": {
                part: rounded(np.linalg.norm(each[:, 0], axis=-1)) for part, each in stream.contributions.items()
            },
            **neurons_of(stream, raised_by(model, getattr(model, side)) if side == last else None, said),
        }
        for side, stream in recording.streams.items()
    }
    lens = lens_of(recording, said) if getattr(model.config, "head", "masked") == "masked" else None
    parts, maps = attention_of(recording)
    return {
        "name": printed(name),
        "kind": model.config.kind,
        "parameters": model.parameters.count,
        "sides": sides,
        "parts": parts,
        "maps": base64.b64encode(zlib.compress(maps, 9)).decode(),
        "lens": lens,
        "pieces": list(pieces),
    }


def in_page(content: dict[str, Any]) -> bytes:
    """Return the template with a payload in it, in which `<` is escaped, and with its script's hash in its policy."""
    template = TEMPLATE.read_text(encoding="utf-8")
    (script,) = re.findall("<script>(.*?)</script>", template, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("%HASH%", digest, 1).replace("%PAYLOAD%", data, 1).encode()


def names_of(model: Any, tokenizer: Tokenizer) -> Callable[[Any], list[str]]:
    """Return the function from ids to texts that print; rows of the table that our tokenizer lacks have numbers."""
    known = tokenizer.vocab_size if isinstance(tokenizer, BPETokenizer) else model.config.vocab_size
    others = {getattr(model.config, "mask_id", None): "[MASK]"}
    texts: dict[int, str] = {}

    def name(id: int) -> str:
        if id not in texts:
            texts[id] = printed(tokenizer.tokens([id])[0]) if id < known else others.get(id, f"<{id}>")
        return texts[id]

    return lambda ids: [name(int(id)) for id in ids]


def attention_of(recording: Recording) -> tuple[list[dict[str, Any]], bytes]:
    """Return each kind of attention, and all weights `(layers, H, Tq, Tk)` of one kind after the other, in bytes.

    A byte is the weight times 255, rounded. A model without softmax attention has parts without heads.
    """
    groups: dict[tuple[str, str], list[np.ndarray]] = {}
    for name, weights in recording.maps():
        kind = name.partition(".")[0], name.rpartition(".")[2]
        groups.setdefault(kind, []).append(np.rint(weights[0] * 255).astype(np.uint8))
    parts, data = [], bytearray()
    for side, stream in recording.streams.items():
        for attention in [part for part in stream.contributions if part.endswith("attention")]:
            found, cross = groups.get((side, attention), []), attention == "cross_attention"
            parts.append({"rows": side, "columns": "encoder" if cross else side, "offset": len(data)})
            parts[-1] |= {"name": "cross" if cross else side, "heads": len(found[0]) if found else 0}
            data += b"".join(each.tobytes() for each in found)
    return parts, bytes(data)


def lens_of(recording: Recording, said: Callable[[Any], list[int]]) -> list[Any]:
    """Return for each layer and token the best tokens with their probabilities, `[[piece, probability], …]`."""
    rows = []
    for logits in recording.lens():
        _, best = topk(logits[0], min(BEST, logits.shape[-1]))  # (T, n)
        sure = rounded(np.exp(np.take_along_axis(log_softmax(logits[0]), best, -1)))
        rows.append(
            [[list(each) for each in zip(said(ids), p, strict=True)] for ids, p in zip(best, sure, strict=True)]
        )
    return rows


def neurons_of(stream: Stream, raised: Any, said: Callable[[Any], list[int]]) -> dict[str, Any]:
    """Return the neurons that fire most at each layer and token, `[[number, activation], …]`, and what they are.

    `fired[number]` is a neuron's index in its layer, the tokens of the text where it fires most with this sign,
    `[[token, activation], …]`, and the tokens whose logits it raises most, or `null` where nobody can say.
    """
    neurons = stream.neurons[:, 0]  # (L, T, F)
    if not neurons.size:
        return {"neurons": [], "fired": []}
    _, best = topk(np.abs(neurons), min(FIRING, neurons.shape[-1]))
    values = np.take_along_axis(neurons, best, -1)
    numbers: dict[tuple[int, int, int], int] = {}
    firing = [
        [
            [
                [numbers.setdefault((n, int(i), 1 if a > 0 else -1), len(numbers)), digits(a)]
                for i, a in zip(*of, strict=True)
            ]
            for of in zip(*layer, strict=True)
        ]
        for n, layer in enumerate(zip(best, values, strict=True))
    ]
    ups = raised(neurons, list(numbers)) if raised else {}
    fired = []
    for n, index, sign in numbers:
        along = sign * neurons[n, :, index]  # (T,)
        places = [t for t in np.argsort(-along, kind="stable")[:PLACES] if along[t] > 0]
        up = ups.get((n, index, sign))
        at = [[int(t), digits(neurons[n, t, index])] for t in places]
        fired.append([index, at, None if up is None else said(up)])
    return {"neurons": firing, "fired": fired}


def raised_by(model: Any, stack: Any) -> Callable[..., dict[tuple[int, int, int], np.ndarray]] | None:
    """Return the function that finds which tokens' logits neurons raise most, by their way straight to the output.

    There is one only where a pre-norm stack adds a neuron's row of the second map to the stream as it is, and the
    output layer reads this through the final norm: its scale does not change the order.
    """
    plain = stack.layers[0].has_network and not hasattr(stack.layers[0].feed_forward_norm, "of_output")
    if stack.final_norm is None or not plain or not hasattr(model, "output"):
        return None
    few, norm = model.parameters.quantized.values(), stack.final_norm
    table = model.output.table
    table = table.floats(model.ops) if table in few else model.ops.to_numpy(table.value)  # (V, C)

    def raised(neurons: np.ndarray, keys: list[tuple[int, int, int]]) -> dict[tuple[int, int, int], np.ndarray]:
        strongest = sorted(keys, key=lambda key: -float((key[2] * neurons[key[0], :, key[1]]).max()))
        found, most = {}, MOST_PRODUCTS // (table.size * len(stack.layers))
        for n, block in enumerate(stack.layers):
            here = [key for key in strongest if key[0] == n][:most]
            one = np.zeros((len(here) + 1, neurons.shape[-1]), neurons.dtype)  # the last row is for the bias
            for row, (_, index, sign) in zip(one, here, strict=False):
                row[index] = sign
            ways = block.feed_forward.contract.forward(model.ops.activations(model.ops.asarray(one)))[0]
            ways = model.ops.to_numpy(ways[:-1] - ways[-1:])  # (n, C)
            ways = (ways if norm.rms else ways - ways.mean(-1, keepdims=True)) * model.ops.to_numpy(norm.gain)
            found |= zip(here, topk(ways @ table.T, min(BEST, len(table)))[1], strict=True)
        return found

    return raised


def rounded(array: np.ndarray) -> list[list[float]]:
    """Return numbers `(rows, columns)` with four digits each."""
    return [[digits(each) for each in row] for row in array]


def digits(number: Any) -> float:
    """Return a number with four digits. Raises `ValueError` for one that is not finite."""
    if not np.isfinite(number):
        raise ValueError("the model's numbers are not finite: there is nothing to see")
    return float(f"{number:.4g}")
