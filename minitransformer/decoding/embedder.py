"""The embedder: a BERT makes one vector of a whole text. Source: Reimers & Gurevych 2019 (Sentence-BERT), §3.

    x      = the mean of the tokens' hidden states, or the first token's, or the largest of each entry
    vector = x / |x|, where the model's folder says so

Texts of similar meaning get vectors of similar directions: the cosine of the angle between them says how similar.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..config import Config, choice, flag, whole
from ..models import BERT, CLIP, BERTConfig, Model, most_tokens
from ..system.progress import tqdm
from .batches import padded_batches
from .loading import FromCheckpoint
from .tokenizer import Tokenizer, check_vocabulary, encode_between_marks
from .translator import WINDOW

PARTS = ["Transformer", "Pooling", "Normalize"]
"""The parts of a model of sentence-transformers that are known here, in this order; the last may be missing."""

KINDS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
"""Our names of poolings, by the switches in files of sentence-transformers before 5.4."""

SHORTEST = 1e-12
"""A shorter vector is divided by this, not by its length; PyTorch's number for it."""


@dataclass(frozen=True)
class Pooling(Config):
    """How the vector of a text is made from the hidden states of its tokens, marks included.

    kind: their `mean`, the first one (`cls`), or the largest of each entry (`max`); normalized: divided by its length;
    max_tokens: where a longer text is cut, with its marks, `None`: where the model ends; lower_case: texts are written
    small first; prompt: what stands before each text.
    """

    kind: Literal["mean", "cls", "max"] = choice("mean", "cls", "max", default="mean")
    normalized: bool = flag(False)
    max_tokens: int | None = whole(None, least=3)
    lower_case: bool = flag(False)
    prompt: str = ""


def pooling_of(model: Model[Any]) -> Pooling:
    """Return the pooling that the folder of a loaded model says, in sentence-transformers' files; or the mean.

    Raises `ValueError` for files that are damaged, and, naming it, for a part that is not supported.
    """
    try:
        return _pooling(getattr(model.origin, "beside", {}))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the files of sentence-transformers are damaged or not all there: {error}") from None


def _pooling(files: Mapping[str, Any]) -> Pooling:
    modules = files.get("modules.json", [])
    parts = [each["type"].rpartition(".")[2] for each in modules]
    if parts not in ([], PARTS[:2], PARTS):
        raise ValueError(f"vectors made by {', '.join(parts)} are not supported, only by {', '.join(PARTS)}")
    pooling = files[f"{modules[1]['path']}/config.json"] if modules else {}
    switches = [str(KINDS.get(name, name)) for name, on in pooling.items() if name.startswith("pooling_mode_") and on]
    kind: Any = pooling.get("pooling_mode") or " and ".join(switches) or "mean"
    if kind not in KINDS.values():
        raise ValueError(f"pooling by {kind} is not supported, only by one of {', '.join(KINDS.values())}")
    general = files.get("config_sentence_transformers.json", {})
    name = general.get("default_prompt_name")
    prompt = "" if name is None else str(general["prompts"][name])
    if prompt and not pooling.get("include_prompt", True):
        raise ValueError("pooling without the tokens of a prompt is not supported")
    own = next((each for name, each in files.items() if name.startswith("sentence_")), {})
    return Pooling(kind, "Normalize" in parts, own.get("max_seq_length"), own.get("do_lower_case", False), prompt)


class Embedder(FromCheckpoint):
    """Makes vectors of texts: `Embedder(*pretrained.load(folder)).embed(["A dog barks.", "A cat."])`.

    pooling: by default that of the model's folder. The head of a BERT has no part in it. Raises `ValueError` for a
    model that is no BERT, for one that has fewer tokens than the tokenizer, and as `pooling_of` does.
    """

    def __init__(self, model: Model[BERTConfig], tokenizer: Tokenizer, pooling: Pooling | None = None) -> None:
        if isinstance(model, CLIP):
            raise ValueError("a CLIP's vectors of texts are for pictures: `Matcher` compares the two in Python")
        if not isinstance(model, BERT):
            raise ValueError(f"a model of kind {model.config.kind!r} makes no vectors of texts: a BERT does")
        check_vocabulary(model.config, tokenizer)
        self.model, self.tokenizer = model, tokenizer
        self.pooling = pooling_of(model) if pooling is None else pooling
        options = getattr(tokenizer, "options", {})
        limit = self.pooling.max_tokens or options.get("model_max_length")
        longest = most_tokens(model.config)
        self.longest = min(longest, limit) if isinstance(limit, int) and limit > 2 else longest

    def embed(self, texts: str | Iterable[str], batch_tokens: int = 2048, progress: bool = False) -> NDArray[Any]:
        """Return the vector of each text, `(N, C)`, in the type in which the model computes; a single str is one text.

        Texts of about the same length go together, `batch_tokens` at once with their padding, which changes no vector;
        progress: show a bar on a terminal. A text that is longer than the pooling or the model allows is cut. Raises
        `ValueError` for a text without a token, and for one with a token that the model lacks, and `FloatingPointError`
        if the model says NaN.
        """
        given = [texts] if isinstance(texts, str) else texts
        none = np.zeros((0, self.model.config.d_model), self.model.dtype)
        return np.concatenate([none, *(vectors for _, vectors in self.stream(given, batch_tokens, progress))])

    def stream(
        self, texts: Iterable[str], batch_tokens: int = 2048, progress: bool = False
    ) -> Iterator[tuple[list[str], NDArray[Any]]]:
        """Yield some thousand texts at a time with their vectors, in order; else as `embed`."""
        texts = iter(texts)
        with tqdm(unit=" texts", desc="embed", disable=None if progress else True) as bar:
            while window := list(islice(texts, WINDOW)):
                encoded = list(map(self.encode, window))
                vectors = np.zeros((len(window), self.model.config.d_model), self.model.dtype)
                for batch, ids, mask in padded_batches(encoded, self.model.config.pad_id, batch_tokens):
                    hidden = self.model.ops.to_numpy(self.model.hidden_states(ids, mask=mask))  # (B, T, C)
                    vectors[batch] = self._pooled(hidden, mask[..., None])
                    bar.update(len(batch))
                if not np.isfinite(vectors).all():
                    raise FloatingPointError(
                        "the vectors are NaN: the model's parameters are not finite or far too large"
                    )
                yield window, vectors

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text with the marks around it. Raises as `embed` does."""
        text = (self.pooling.prompt + text).strip()
        text = text.lower() if self.pooling.lower_case else text
        ids = encode_between_marks(self.model.config, self.tokenizer, text, self.longest)
        if not ids:
            raise ValueError("a text must hold a token: this model has no mark that begins a text")
        return ids

    def _pooled(self, hidden: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
        """hidden `(B, T, C)`, mask `(B, T, 1)` → the texts' vectors `(B, C)`."""
        if self.pooling.kind == "mean":
            vectors = (hidden * mask).sum(1) / mask.sum(1)
        elif self.pooling.kind == "cls":
            vectors = hidden[:, 0]
        else:
            vectors = np.where(mask, hidden, -np.inf).max(1)
        return unit(vectors) if self.pooling.normalized else vectors


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return vectors `(..., C)` divided by their lengths: the product of two is then the cosine between them."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), SHORTEST)
