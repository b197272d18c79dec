"""Loaded models write what `transformers` writes, token by token: greedily and with beams, padded, with end marks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.pretrained_cases import tr

from minitransformer.decoding import beam_search
from minitransformer.decoding.search import Start
from minitransformer.models import GPT, IGNORED
from minitransformer.pretrained import load

V, WIDTH, LONGEST, BATCH = 53, 24, 12, 8
STACKS = {"layers": 2, "attention_heads": 4, "ffn_dim": 31}


def t5(title: str = "T5", **options: Any) -> Any:
    sizes = {"vocab_size": V, "d_model": WIDTH, "num_layers": 2, "num_heads": 4, "d_kv": 5, "d_ff": 31}
    config = getattr(tr, f"{title}Config")(**sizes, n_positions=LONGEST, decoder_start_token_id=0, **options)
    model = getattr(tr, f"{title}ForConditionalGeneration")(config)
    if not options["tie_word_embeddings"]:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def marian() -> Any:
    marks = {"pad_token_id": V - 1, "decoder_start_token_id": V - 1, "eos_token_id": 2, "bos_token_id": 1}
    sizes: dict[str, Any] = {"vocab_size": V, "d_model": WIDTH, "max_position_embeddings": LONGEST}
    sizes |= {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in STACKS.items()}
    return tr.MarianMTModel(tr.MarianConfig(**sizes, **marks, scale_embedding=True, activation_function="silu"))


def relative(title: str, reads: str = "", **options: Any) -> Any:
    """A Llama, or a relative."""
    sizes = {"vocab_size": V, "hidden_size": WIDTH, "intermediate_size": 31, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 40}
    return getattr(tr, f"{title}ForCausalLM")(getattr(tr, f"{title}{reads}Config")(**sizes, **options))


THEIRS = {
    "gpt2": lambda: tr.GPT2LMHeadModel(
        tr.GPT2Config(vocab_size=V, n_positions=40, n_embd=WIDTH, n_layer=2, n_head=4, bos_token_id=2, eos_token_id=2)
    ),
    "llama": lambda: relative("Llama"),
    "mistral": lambda: relative("Mistral", sliding_window=4),
    "qwen2": lambda: relative("Qwen2", use_sliding_window=True, sliding_window=3, max_window_layers=0),
    "qwen3": lambda: relative("Qwen3", head_dim=6),
    "gemma": lambda: relative("Gemma", head_dim=6),
    "gemma2": lambda: relative("Gemma2", head_dim=6, sliding_window=4, query_pre_attn_scalar=5),
    "gemma3": lambda: relative("Gemma3", "Text", head_dim=6, sliding_window=4, sliding_window_pattern=2),
    "mt5": lambda: t5("MT5", tie_word_embeddings=False),
    "t5": lambda: t5(tie_word_embeddings=True),
    "t5 1.1": lambda: t5(tie_word_embeddings=False, feed_forward_proj="gated-gelu"),
    "marian": marian,
}


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", THEIRS)
def test_the_same_tokens_as_transformers(name: str, beams: int, tmp_path: Path) -> None:
    """Prompts and sources have different lengths; with an end mark, which is any token, some texts end early."""
    torch.manual_seed(1)
    theirs = THEIRS[name]().eval()
    for parameter_name, parameter in theirs.named_parameters():  # sharper opinions: no two tokens are nearly as good
        if "embed_positions" not in parameter_name:
            parameter.data *= 12 if name == "marian" and parameter.ndim == 2 else 3
    theirs.save_pretrained(tmp_path)
    model, _ = load(tmp_path)
    config, rng = model.config, np.random.default_rng(0)
    ids, lengths = rng.integers(3, V - 1, (BATCH, 9)), rng.integers(1, 10, (BATCH, 1))
    goes_on = isinstance(model, GPT)  # and its prompts are padded on the left
    real = np.arange(9) >= 9 - lengths if goes_on else np.arange(9) < lengths
    pad, bos = (0, 0) if goes_on else (config.pad_id, config.bos_id)
    ids = np.where(real, ids, pad)
    start = Start(ids[:, -1], np.full(BATCH, LONGEST)) if goes_on else None
    source = np.where(real, ids, IGNORED)[:, :-1] if goes_on else ids
    options = {} if goes_on else {"suppress_tokens": sorted({pad, bos})}
    theirs.generation_config.forced_eos_token_id = None

    def same(eos: int) -> list[list[int]]:
        model.config = SimpleNamespace(pad_id=pad, bos_id=bos, eos_id=eos, max_length=config.max_length)
        found = beam_search(model, source, beams, 0.0, start=start)
        theirs.generation_config.eos_token_id = eos if eos >= 0 else None
        written = theirs.generate(
            torch.from_numpy(ids),
            attention_mask=torch.from_numpy(real.astype(int)),
            max_new_tokens=LONGEST,
            num_beams=beams,
            do_sample=False,
            length_penalty=0.0,
            pad_token_id=pad,
            **options,
        )[:, ids.shape[1] if goes_on else 1 :].tolist()
        expected = [row[: row.index(eos)] if eos in row else row for row in written]
        assert [best.ids for (best,) in found] == expected
        return expected

    whole = same(-1)
    assert {len(row) for row in whole} == {LONGEST}
    assert len({tuple(row) for row in whole}) > BATCH / 2
    if beams == 1:  # an ended text leaves its place in the beam here, and not there: then the beams may differ
        assert len({len(row) for row in same(whole[0][LONGEST // 2])}) > 1
