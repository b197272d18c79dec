"""Lesson 24: the folder that a stranger left. It has the form of the published GPT-2's, and is small.

The model in it is ours: trained for some seconds on the English sentences of the course's grammar. So the lesson needs
no network, and what it reads can speak.
"""

import json
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.data.bpe import learn_merges
from minitransformer.grammar import pairs
from minitransformer.models import GPT, GPTConfig
from minitransformer.pretrained import save
from minitransformer.pretrained.files import find_tensors
from minitransformer.system.threads import blas_threads
from minitransformer.training.optimizer import Adam

from .tokenizer import CHARACTER, merged, words

END = "<|endoftext|>"
LONGEST = 9  # words of a sentence
SENTENCES, MERGES, STEPS, ROWS, LENGTH = 12_000, 800, 700, 16, 40
ABOUT = """A language model in the form of a GPT-2's folder. It is NOT OpenAI's GPT-2.
lessons/course/lesson_24/stranger.py made it on this machine: a small GPT, trained for
some seconds on English sentences of the course's grammar, written with
minitransformer.pretrained.save, and narrowed to bfloat16.
"""
BYTES = {"BF16": 2, "F32": 4, "F64": 8, "U8": 1}
"""The bytes of one number, by its type in the file."""


def leave(place: Path) -> Path:
    """Train the model, and write its folder into a place; return the folder."""
    folder = place / "from-a-stranger"
    folder.mkdir(exist_ok=True)
    sentences = short_sentences("train", SENTENCES)
    vocabulary, merges = _learned(sentences[:1000])
    ids = _numbers(sentences, vocabulary, merges)
    with blas_threads(1):
        model = _trained(ids, len(vocabulary))
    save(model, folder)
    _as_published(folder, model.config.max_length, model.config.num_layers)
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(vocabulary, merges), ensure_ascii=False), "utf-8")
    options = {"tokenizer_class": "GPT2Tokenizer", "bos_token": END, "eos_token": END, "unk_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(options), "utf-8")
    (folder / "README.md").write_text(ABOUT, "utf-8")
    return folder


def without_tokenizer(folder: Path) -> Path:
    """Return a copy of a folder without its tokenizer, which `load` would read with the library tokenizers."""
    alone = folder.parent / "weights-alone"
    alone.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, alone)
    return alone


def handed_back(folder: Path, called: str, weights: Mapping[str, np.ndarray]) -> Path:
    """Return a new folder beside one, with the same configuration and these weights, in float32."""
    back = folder.parent / called
    shutil.copytree(folder, back, dirs_exist_ok=True)
    as_bytes = {name: ("F32", list(w.shape), w.astype("<f4").tobytes()) for name, w in weights.items()}
    (back / "model.safetensors").write_bytes(safetensors(as_bytes))
    return back


def their_packages() -> tuple[Any, Any]:
    """Return the modules torch and transformers. Raises ImportError where one is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a progress bar that a notebook may lack
        import torch
        import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    return torch, transformers


def random_weights(config: GPTConfig, noise: float = 0.0) -> dict[str, np.ndarray]:
    """Return the weights of a model as it starts, by the file's names, float64; every number is moved by noise."""
    model, rng = GPT(config, seed=1), np.random.default_rng(0)
    model.parameters.data += noise * rng.standard_normal(model.parameters.data.shape).astype(np.float32)
    with tempfile.TemporaryDirectory() as place:
        save(model, Path(place))
        found = find_tensors(Path(place))
        return {name.removeprefix("transformer."): each.read().astype(np.float64) for name, each in found.items()}


def short_sentences(split: str, count: int) -> list[str]:
    """Return the short sentences among the first English ones of a split of the grammar."""
    return [english for english, _ in pairs(split, seed=0, count=count) if len(english.split()) <= LONGEST]


# --- The tokenizer --------------------------------------------------------------------------------------------


def _learned(sentences: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary, with the end mark last, and the merges, oldest first."""
    counts = Counter(word for sentence in sentences for word in words(sentence))
    characters = "".join(sorted({character for word in counts for character in word}))
    merges = learn_merges(counts, characters, MERGES)
    tokens = [*CHARACTER.values(), *(left + right for left, right in merges), END]
    return {token: index for index, token in enumerate(tokens)}, merges


def _numbers(sentences: list[str], vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> np.ndarray:
    """Return all sentences as one array of ids, with the end mark after each."""
    age = {pair: number for number, pair in enumerate(merges)}
    known: dict[str, list[int]] = {}
    ids = []
    for sentence in sentences:
        for word in words(sentence):
            if word not in known:
                known[word] = [vocabulary[piece] for piece in merged(word, age)]
            ids += known[word]
        ids.append(vocabulary[END])
    return np.array(ids)


def _tokenizer(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the content of `tokenizer.json`."""
    end = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary[END], "content": END, **end}],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }


# --- The model ------------------------------------------------------------------------------------------------


def _trained(ids: np.ndarray, vocab_size: int) -> GPT:
    """A small GPT-2 that has read the line of ids."""
    end = vocab_size - 1
    config = GPTConfig(
        vocab_size, d_model=64, num_heads=4, d_ff=256, num_layers=2, max_length=LENGTH, dropout=0.0,
        attention_dropout=0.0, bos_id=end, eos_id=end,
    )  # fmt: skip
    model = GPT(config)
    adam, rng = Adam(model.parameters, model.ops), np.random.default_rng(0)
    for step in range(1, STEPS + 1):
        first = rng.integers(0, len(ids) - LENGTH - 1, ROWS)
        rows = ids[first[:, None] + np.arange(LENGTH + 1)]  # (ROWS, LENGTH + 1)
        model.parameters.zero_grad()
        _, cache = model.loss(rows[:, :-1], rows[:, 1:])
        model.loss_backward(1.0, cache)
        adam.step(6e-3 * min(step / 50, 1.0) * (1 - step / (STEPS + 1)))
    return model


def _as_published(folder: Path, length: int, num_layers: int) -> None:
    """Return the tensors in the form of the published file: without the first part of their names, and with masks.

    And as bfloat16, as most models are published today.
    """
    path = folder / "model.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    tensors: dict[str, tuple[str, list[int], bytes]] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            numbers = np.frombuffer(data[start + first : start + last], np.float32)
            tensors[name.removeprefix("transformer.")] = "BF16", entry["shape"], narrowed(numbers).tobytes()
    for layer in range(num_layers):
        mask = np.tril(np.ones((1, 1, length, length), np.uint8))
        tensors[f"h.{layer}.attn.bias"] = "U8", list(mask.shape), mask.tobytes()
    path.write_bytes(safetensors(tensors))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}, indent=2) + "\n", "utf-8")


def narrowed(numbers: np.ndarray) -> np.ndarray:
    """Round float32 to the nearest bfloat16, ties to even; return its bits as uint16."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def safetensors(tensors: dict[str, tuple[str, list[int], bytes]]) -> bytes:
    """A whole file: its tensors by name, each with its type, its shape and its bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    stop = 0
    for name, (kind, shape, content) in sorted(tensors.items()):
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [stop, stop + len(content)]}
        stop += len(content)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(content for _, (_, _, content) in sorted(tensors.items()))
