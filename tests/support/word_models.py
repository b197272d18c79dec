"""Small models of `transformers` that know a few words, and the sentences that are made of these."""

import json
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors

tr: Any = transformers
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
NAMES, VERBS = "dog cat horse bird".split(), "sees hears likes finds".split()
LINES = [f"The {a} {verb} the {'old ' * (a < b)}{b}." for a in NAMES for verb in VERBS for b in NAMES]
WORDS = sorted({word for line in LINES for word in line.replace(".", " .").split()})
SHARED = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def word_tokenizer(folder: Path, before: list[str], after: list[str]) -> tuple[tokenizers.Tokenizer, dict[str, int]]:
    """Write a tokenizer of whole words, whose special tokens are first: RoBERTa's <s> is 0, its padding 1."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    ids = {word: i for i, word in enumerate([*special, *WORDS, *(f"<extra_id_{i}>" for i in reversed(range(100)))])}
    inner = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace()])
    inner.decoder = decoders.WordPiece(prefix="##")
    inner.add_special_tokens([*special, *(word for word in ids if "extra" in word)])
    around = [*before, "$A", *after]
    marks = [(each, ids[each]) for each in {*before, *after}]
    inner.post_processor = processors.TemplateProcessing(single=around, pair=[*around, "$B"], special_tokens=marks)
    folder.mkdir(exist_ok=True)
    inner.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "<pad>", "eos_token": "</s>", "mask_token": "<mask>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    return inner, ids


def word_llama(folder: Path) -> None:
    """Write a Llama with its tokenizer."""
    _, ids = word_tokenizer(folder, ["<s>"], [])
    config = tr.LlamaConfig(**SIZES, **SHARED, vocab_size=len(ids), num_key_value_heads=1, max_position_embeddings=64)
    tr.LlamaForCausalLM(config).save_pretrained(folder)
