"""Hugging Face's side of the race of translations."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from race import Work
from transformers import MarianConfig, MarianMTModel  # pyright: ignore[reportMissingImports]
from workloads import TARGET_TOKENS, TRANSLATION_SHAPE, configuration, sources

from minitransformer.system.allocator import keep_freed_memory


@contextmanager
def translation(
    threads: int, num_sentences: int, num_beams: int, torch_threads: int | None = None
) -> Iterator[tuple[list[int], Work]]:
    """`generate` on a Marian model of the same shape, its weights random; the answer is the shape of its output."""
    keep_freed_memory()
    torch.set_num_threads(torch_threads or threads)
    ours = configuration(TRANSLATION_SHAPE)
    torch.manual_seed(0)
    model: Any = MarianMTModel(
        MarianConfig(
            vocab_size=ours.vocab_size,
            d_model=ours.d_model,
            encoder_layers=ours.num_layers,
            decoder_layers=ours.decoder_layers,
            encoder_attention_heads=ours.num_heads,
            decoder_attention_heads=ours.num_heads,
            encoder_ffn_dim=ours.d_ff,
            decoder_ffn_dim=ours.d_ff,
            max_position_embeddings=ours.max_length,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=ours.pad_id,
            bos_token_id=ours.bos_id,
            eos_token_id=ours.eos_id,
            decoder_start_token_id=ours.bos_id,
            forced_eos_token_id=None,
        )
    ).eval()
    source = torch.from_numpy(sources(num_sentences))

    @torch.inference_mode()
    def work() -> torch.Tensor:
        return model.generate(
            source,
            attention_mask=torch.ones_like(source),
            num_beams=num_beams,
            min_new_tokens=TARGET_TOKENS,
            max_new_tokens=TARGET_TOKENS,
            do_sample=False,
        )

    sentences, tokens = work().shape
    yield [sentences, tokens - 1], work  # the first token is bos
