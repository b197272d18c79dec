"""Loaded language models write what `transformers` writes, token by token: greedily, and with beams."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from minitransformer.decoding import beam_search
from minitransformer.decoding.search import Start
from minitransformer.pretrained import load

MARKS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}  # no text ends before the others
THEIRS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=53, n_positions=40, n_embd=24, n_layer=2, n_head=4, **MARKS)),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            vocab_size=53,
            hidden_size=24,
            intermediate_size=31,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=40,
            **MARKS,
        )
    ),
}


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", THEIRS)
def test_the_same_tokens_as_transformers(name, beams, tmp_path):
    torch.manual_seed(1)
    theirs = THEIRS[name]().eval()
    for parameter in theirs.parameters():  # sharper opinions, so that no two tokens are nearly as good
        parameter.data *= 3
    theirs.save_pretrained(tmp_path)
    model, _ = load(tmp_path)
    prompts, new = np.random.default_rng(0).integers(3, 53, (3, 5)), 12
    options: dict[str, Any] = {"num_beams": beams, "do_sample": False, "length_penalty": 0.0, "pad_token_id": 0}
    expected = theirs.generate(torch.from_numpy(prompts), max_new_tokens=new, **options)[:, prompts.shape[1] :]
    start = Start(prompts[:, -1], np.full(len(prompts), new))
    found = [best.ids for (best,) in beam_search(model, prompts[:, :-1], beams, 0.0, start=start)]
    assert found == expected.tolist()
