"""The payload of a page: a model's configuration, its tokenizer and its weights, as JSON in the template.

`src/engine/types.js` describes it for the reader of the JavaScript (`Payload`).
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.scenes import check_pictures
from ..decoding import Describer, Generator, Tokenizer, Translator
from ..decoding.tokenizer import without_text
from ..layers import AttentionConfig, BiasConfig, StackConfig
from ..models import GPT, Captioner, CaptionerConfig, Transformer, most_tokens
from ..ops.rope import bucket_of
from .cutting import tokenizer_as_json
from .pictures import Picture
from .storage import StorageLoss, of_columns, quantised

MOST_BYTES = 200_000_000
"""A heavier page would take long to open: this one, of 37 million float32 or 149 million int8, takes some seconds."""

LONGEST = 256
"""In tokens or patches: all heads' maps of more are more than a page can show."""

TEMPLATE = Path(__file__).with_name("page.html")
PLACEHOLDER = b"%PAYLOAD%"
PAGE_BYTES = 200_000
"""About the size of a page without the weights."""


def check_model(model: Any, tokenizer: Tokenizer, int8: bool = False) -> None:
    """Raise `ValueError`, in one sentence, for a model that the page can't show."""
    if not isinstance(model, Transformer | Captioner | GPT):
        other = getattr(getattr(model, "config", None), "kind", type(model).__name__)
        shown = "models that translate or continue texts or describe pictures"
        raise ValueError(f"the explorer shows {shown}, not one of kind {other!r}")
    count, kind = model.parameters.count, model.config.decoder.block.attention.kind
    if kind != "softmax":
        raise ValueError(f"the model's attention is {kind!r}: the explorer shows weights, which only softmax has")
    if model.config.decoder.block.feed_forward.d_ff == 0:
        raise ValueError("the model's blocks are attention alone: the explorer shows those with a feed-forward network")
    as_float32, as_int8 = (PAGE_BYTES + size * count * 4 / 3 for size in (4, 1))
    if (as_int8 if int8 else as_float32) > MOST_BYTES:
        raise ValueError(
            f"the model has {count:,} parameters and its page would weigh {as_float32 / 1e6:,.0f} MB, or "
            f"{as_int8 / 1e6:,.0f} MB as int8: a page may weigh {MOST_BYTES / 1e6:,.0f} MB"
        )
    tokenizer_as_json(tokenizer, model.config)
    user: Any = Generator if isinstance(model, GPT) else Describer if isinstance(model, Captioner) else Translator
    _ = user(model, tokenizer)  # they belong together
    if isinstance(model, Captioner):
        check_pictures(model.config)
        if model.config.num_patches > LONGEST:
            raise ValueError(
                f"the model reads {model.config.num_patches} patches: the explorer shows {LONGEST} at most"
            )
    if not np.isfinite(model.ops.to_numpy(model.parameters.data)).all():
        raise ValueError("the model's parameters are not finite: there is nothing to see")


def payload(
    model: Any,
    tokenizer: Any,
    name: str,
    languages: tuple[str, str] | None,
    examples: Sequence[str] | Sequence[Picture],
    loss: StorageLoss | None = None,
) -> dict[str, Any]:
    """Return the payload of a model that `check_model` accepts; with a `loss`, matrices are stored as int8.

    examples: sentences to try, or the pictures of a captioner.
    """
    tensors, weights = _stored(model, int8=loss is not None)
    return {
        "format": "minitransformer explorer",
        "version": 1,
        "name": name,
        "languages": list(languages) if languages else None,
        "examples": [each if isinstance(each, str) else each.name for each in examples],
        "pictures": [_picture(each) for each in examples if isinstance(each, Picture)],
        "config": model_config(model, tokenizer),
        "tokenizer": tokenizer_as_json(tokenizer, model.config),
        "storage": "float32" if loss is None else "int8",
        "loss": None if loss is None else _camel(loss._asdict()),
        "tensors": tensors,
        "weights": base64.b64encode(weights).decode(),
    }


def _picture(picture: Picture) -> dict[str, str]:
    pixels = picture.pixels.astype("<f4").tobytes()
    return {"caption": picture.caption, "pixels": base64.b64encode(pixels).decode()}


def in_page(content: Mapping[str, Any]) -> bytes:
    """Return the template with a payload in it; `<` is escaped, so that no text can end the element that holds it."""
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    before, _, after = TEMPLATE.read_bytes().partition(PLACEHOLDER)
    return before + text.encode("ascii") + after


def model_config(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Return the model's configuration as a tree, with the numbers that the page should not have to compute."""
    config, is_gpt, is_captioner = model.config, isinstance(model, GPT), isinstance(model, Captioner)
    scale = model.tokens.scale
    return {
        "kind": "gpt" if is_gpt else "captioner" if is_captioner else "transformer",
        "vocabSize": config.vocab_size,
        "dModel": config.d_model,
        "maxLength": min(most_tokens(config), LONGEST),
        "padId": None if is_gpt else config.pad_id,
        "bosId": config.bos_id,
        "eosId": config.eos_id,
        "endIds": [each for each in (config.eos_id, *config.other_eos_ids) if each is not None],
        "forbidden": without_text(config, tokenizer) if is_gpt else [config.pad_id, config.bos_id],
        "embeddingScale": scale,
        "tied": config.tied,
        "outputBias": not is_gpt and config.output_bias,
        "logitsSoftcap": config.logits_softcap if is_gpt else None,
        "image": _image(config) if is_captioner else None,
        "encoder": None if is_gpt else _stack(config.encoder),
        "decoder": _stack(config.decoder),
    }


def _image(config: CaptionerConfig) -> dict[str, int]:
    return {"channels": config.channels, "size": config.image_size, "patchSize": config.patch_size}


def _stack(stack: StackConfig) -> dict[str, Any]:
    block, norm = stack.block, stack.block.norm
    feed_forward = block.feed_forward
    return {
        "numLayers": stack.num_layers,
        "positions": stack.positions,
        "outputScale": stack.output_scale,
        "block": {
            "causal": block.causal,
            "cross": block.cross,
            "feedForward": {
                "dFf": feed_forward.d_ff,
                "activation": feed_forward.activation,
                "gated": feed_forward.gated,
            },
            "norm": {"first": norm.first, "eps": norm.eps, "kind": norm.kind.removesuffix("1p")},
        },
        "attentions": [
            _attention(block.attention.of_layer(number), block.causal) for number in range(stack.num_layers)
        ],
    }


def _attention(attention: AttentionConfig, causal: bool) -> dict[str, Any]:
    rotary, relative, sparse = attention.rotary, attention.relative, attention.sparse
    return {
        "numHeads": attention.num_heads,
        "numKvHeads": attention.kv_heads,
        "dK": attention.d_k,
        "dV": attention.d_v,
        "scale": attention.d_k**-0.5 if attention.scale is None else attention.scale,
        "softcap": attention.softcap,
        "window": attention.window,
        "sparse": sparse and _camel(sparse.to_dict()),
        "rotary": rotary and {"frequencies": rotary.frequencies(attention.d_k), "interleaved": rotary.interleaved},
        "relative": relative and _relative(relative, attention.num_heads, causal),
    }


def _relative(relative: BiasConfig, num_heads: int, causal: bool) -> dict[str, Any]:
    """Return ALiBi's slopes, or T5's bucket of each distance up to `reach`; larger distances have the last bucket."""
    if relative.kind == "alibi":
        return {"kind": "alibi", "slopes": [2 ** (-8 * head / num_heads) for head in range(1, num_heads + 1)]}
    reach = relative.max_distance
    buckets = [bucket_of(each, relative.buckets, reach, causal) for each in range(-reach, reach + 1)]
    return {"kind": "t5", "buckets": buckets, "reach": reach}


def _stored(model: Any, int8: bool) -> tuple[list[dict[str, Any]], bytes]:
    """Return the place of each array, and the bytes of all; every array begins at a multiple of 4 bytes."""
    tensors, data = list[dict[str, Any]](), bytearray()
    is_one_more = model.config.decoder.block.norm.kind == "rmsnorm1p"  # the gain is 1 + gamma

    def put(array: np.ndarray, dtype: str) -> int:
        offset = len(data)
        data.extend(np.ascontiguousarray(array, dtype).tobytes())
        data.extend(bytes(-len(data) % 4))
        return offset

    for name, parameter in model.parameters.named.items():
        array = np.asarray(model.ops.to_numpy(parameter.value), np.float32)
        array = array + 1 if name.endswith(".gamma") and is_one_more else array
        entry: dict[str, Any] = {"name": name, "shape": list(array.shape), "scalesOffset": None}
        if int8 and array.ndim == 2:
            integers, scales = quantised(name, array)
            entry |= {"offset": put(integers, "int8"), "scalesOffset": put(scales, "<f4")}
            entry["scalesOf"] = "columns" if of_columns(name) else "rows"
        else:
            entry["offset"] = put(array, "<f4")
        tensors.append(entry)
    return tensors, bytes(data)


def _camel(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with names as JavaScript writes them: num_heads becomes numHeads."""
    return {re.sub("_(.)", lambda found: found[1].upper(), name): value for name, value in values.items()}
