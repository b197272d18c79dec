"""Tiny random models of `transformers`, and their logits and gradients in float64 without its float32 detours."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from minitransformer.pretrained import ARCHITECTURES

tr: Any = transformers  # whose configurations have no types that a checker could follow
tr.utils.logging.set_verbosity_error()
tr.utils.logging.disable_progress_bar()

KINDS = tuple(ARCHITECTURES)
TITLES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
TITLES |= {"gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3"}
"""Llama and its relatives, with the beginning of the names of their classes."""
BERTS = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
BERTS |= {"distilbert": "DistilBert"}
HEADS = ("ForMaskedLM", "ForSequenceClassification", "Model", "ForTokenClassification", "ForQuestionAnswering")
"""BERT and its relatives, and the ends of those names."""
VITS = {"vit": "ViT", "deit": "DeiT"}
"""ViT and its relative."""


def random_model(kind: str, seed: int) -> Any:
    """A model with random sizes, options and weights of order one; every seed draws other ones."""
    draw = random.Random(f"{kind} {seed}")
    torch.manual_seed(seed)
    heads, width = draw.choice([1, 2, 3, 4]), draw.choice([2, 4, 6])
    sizes = {"vocab_size": draw.randint(11, 37)}
    act = draw.choice(["gelu_new", "gelu", "relu", "silu"])
    d_ff, depth, tied = draw.randint(3, 19), draw.randint(1, 3), draw.random() < 0.5
    if kind == "gpt2":
        values = {"n_embd": heads * width, "n_head": heads, "n_layer": depth, "n_positions": draw.randint(9, 20)}
        values |= {"n_inner": draw.choice([None, d_ff]), "activation_function": act, "tie_word_embeddings": tied}
        values |= {"layer_norm_epsilon": draw.choice([1e-5, 1e-3])}
        model = tr.GPT2LMHeadModel(tr.GPT2Config(**sizes, **values))
    elif kind in TITLES:
        kv = draw.choice([each for each in (1, 2, 3, 4) if heads % each == 0])
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": draw.choice([10000.0, 500.0])}
        if draw.random() < 0.5:
            rope |= {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
            rope |= {"original_max_position_embeddings": draw.choice([8, 16, 64])}
        values = {"hidden_size": heads * width, "num_attention_heads": heads, "num_key_value_heads": kv}
        values |= {"head_dim": draw.choice([width, 8]), "intermediate_size": d_ff, "num_hidden_layers": depth}
        values |= {"max_position_embeddings": 32, "rope_parameters": rope, "tie_word_embeddings": tied}
        values |= {"rms_norm_eps": 1e-5, **own_options(kind, draw, depth)}
        config = getattr(tr, f"{TITLES[kind]}{'Text' * (kind == 'gemma3_text')}Config")
        model = getattr(tr, f"{TITLES[kind]}ForCausalLM")(config(**sizes, **values))
    elif kind == "distilbert":
        values = {"dim": heads * width, "n_heads": heads, "n_layers": depth, "hidden_dim": d_ff, "activation": act}
        values |= {"max_position_embeddings": draw.randint(9, 20), "num_labels": 2}
        model = getattr(tr, f"DistilBert{HEADS[seed % 5]}")(tr.DistilBertConfig(**sizes, **values))
    elif kind in BERTS:
        values: dict[str, Any] = {"hidden_size": heads * width, "num_attention_heads": heads}
        values |= {"num_hidden_layers": depth, "intermediate_size": d_ff, "hidden_act": act}
        values |= {"max_position_embeddings": draw.randint(9, 20)}
        values |= {"type_vocab_size": draw.choice([2, 3]), "layer_norm_eps": draw.choice([1e-12, 1e-5])}
        head = HEADS[seed % 5]
        classes = 2 if head == "ForQuestionAnswering" else draw.choice([2, 3, 5])
        if kind != "bert":
            pad = draw.choice([0, 1, 1, 3])
            values |= {"pad_token_id": pad, "type_vocab_size": draw.choice([1, 2])}
            values["max_position_embeddings"] += pad + 1
            values |= {"hidden_act": "gelu"} if head == "ForMaskedLM" else {}
        config = getattr(tr, f"{BERTS[kind]}Config")(**sizes, **values, num_labels=classes)
        model = getattr(tr, BERTS[kind] + head)(config)
    elif kind in ("t5", "mt5"):
        form = draw.choice(["relu", "gated-gelu", "gated-silu", "gelu"])
        values = {"d_model": draw.choice([6, 10, 16]), "num_heads": heads, "d_kv": draw.choice([3, 4]), "d_ff": d_ff}
        values |= {"num_layers": depth, "num_decoder_layers": draw.randint(1, 2), "feed_forward_proj": form}
        values |= {"relative_attention_num_buckets": draw.choice([8, 16, 32]), "decoder_start_token_id": 0}
        values |= {"relative_attention_max_distance": draw.choice([20, 128]), "tie_word_embeddings": tied}
        title = kind.replace("t5", "T5").replace("m", "M")
        model = getattr(tr, f"{title}ForConditionalGeneration")(getattr(tr, f"{title}Config")(**sizes, **values))
        if not tied:  # version 1.1, whose output layer transformers 5 reads from the file
            model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    elif kind in VITS:
        size = draw.choice([2, 3, 4])
        values = {"hidden_size": heads * width, "num_attention_heads": heads, "num_hidden_layers": depth}
        values |= {
            "intermediate_size": d_ff,
            "hidden_act": act,
            "patch_size": size,
            "num_channels": draw.choice([1, 3]),
        }
        values |= {"image_size": size * draw.randint(1, 4), "layer_norm_eps": draw.choice([1e-12, 1e-5])}
        config = getattr(tr, f"{VITS[kind]}Config")(**values, num_labels=draw.choice([2, 3, 7]))
        teacher = "WithTeacher" * (kind == "deit" and seed % 2)
        model = getattr(tr, f"{VITS[kind]}ForImageClassification{teacher}")(config)
    elif kind == "marian":
        other = draw.choice([1, heads])
        pad = sizes["vocab_size"] - 1
        values = {"d_model": heads * width, "encoder_attention_heads": heads, "decoder_attention_heads": other}
        values |= {"encoder_ffn_dim": d_ff, "decoder_ffn_dim": draw.randint(3, 19), "encoder_layers": depth}
        values |= {"decoder_layers": draw.randint(1, 2), "activation_function": act, "max_position_embeddings": 24}
        values |= {"scale_embedding": draw.random() < 0.5, "pad_token_id": pad, "decoder_start_token_id": pad}
        model = tr.MarianMTModel(tr.MarianConfig(**sizes, **values))
    else:
        raise NotImplementedError(f"random models of {kind} are to be written here, and in `ours` their arguments")
    drawn = {name: parameter for name, parameter in model.named_parameters() if "embed_positions" not in name}
    drawn |= {name: buffer for name, buffer in model.named_buffers() if name == "final_logits_bias"}
    for name, tensor in drawn.items():
        gain = "norm" in name.lower() and not kind.startswith("gemma")  # where it is 1 + gamma
        tensor.data = torch.randn_like(tensor) * 0.4 + (1.0 if gain else 0.0)
    return model.eval()


def own_options(kind: str, draw: random.Random, depth: int) -> dict[str, Any]:
    """Options that Llama or one relative alone has."""
    window = draw.choice([None, 2, 3, 5])
    if kind == "llama":
        return {"attention_bias": draw.random() < 0.5, "mlp_bias": draw.random() < 0.5}
    if kind == "mistral":
        return {"sliding_window": window}
    if kind in ("qwen2", "qwen3"):
        full = draw.choice([1, 2, 3])  # every so many layers
        layers = ["full_attention" if (i + 1) % full == 0 else "sliding_attention" for i in range(depth)]
        found: dict[str, Any] = {"use_sliding_window": window is not None, "sliding_window": window or 4}
        found |= {"layer_types": layers} if window else {}
        return found | ({"attention_bias": draw.random() < 0.5} if kind == "qwen3" else {})
    found = {"attention_bias": draw.random() < 0.5}
    if kind == "gemma":
        return found | {"hidden_act": draw.choice(["gelu", "gelu_pytorch_tanh"])}
    every = draw.choice([1, 2, 3])
    layers = ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(depth)]
    found |= {"layer_types": draw.choice([None, layers, layers]), "sliding_window": window or 4}
    found |= {"query_pre_attn_scalar": draw.choice([3, 8]), "final_logit_softcapping": draw.choice([None, 3.0])}
    if kind == "gemma2":
        found |= {"attn_logit_softcapping": draw.choice([None, 2.0])}
    else:
        theta = {"full_attention": 1e6, "sliding_attention": draw.choice([100.0, 1e4])}
        found |= {"rope_parameters": {name: {"rope_type": "default", "rope_theta": t} for name, t in theta.items()}}
    return found


def inputs(kind: str, model: Any, seed: int) -> dict[str, np.ndarray]:
    """Return the arguments that `transformers` takes, with padding on the right; the padding's ids are other tokens."""
    generator, config = np.random.default_rng(seed), model.config
    if kind in VITS:
        return {"pixel_values": generator.normal(size=(3, config.num_channels, config.image_size, config.image_size))}
    time = 9

    def ids(length: int) -> np.ndarray:
        first = config.pad_token_id + 1 if kind in BERTS else 1  # RoBERTa's positions don't count padding
        return generator.integers(first, config.vocab_size - 1, (3, length))

    def mask(length: int) -> np.ndarray:
        windowed = getattr(config, "sliding_window", None) is not None  # then a place of padding may see no token
        shortest = length - 1 if windowed else 2
        return (np.arange(length) < generator.integers(shortest, length + 1, (3, 1))).astype(np.int64)

    if kind in ("t5", "mt5", "marian"):
        target, start = ids(7), config.decoder_start_token_id or 0
        target[:, 0] = start
        given = {"input_ids": ids(time), "attention_mask": mask(time), "decoder_input_ids": target}
        return given | {"decoder_attention_mask": mask(7)}
    given = {"input_ids": ids(time), "attention_mask": mask(time)}
    if kind in BERTS and kind != "distilbert":
        given["token_type_ids"] = generator.integers(0, config.type_vocab_size, (3, time))
    return given


def ours(kind: str, model: Any, given: dict[str, np.ndarray]) -> tuple[np.ndarray, tuple]:
    """Return the same outputs, by our model."""
    if kind in VITS:
        return model.forward(given["pixel_values"])
    if kind in ("t5", "mt5", "marian"):
        masks = {"source_mask": given["attention_mask"], "target_mask": given["decoder_attention_mask"]}
        return model.forward(given["input_ids"], given["decoder_input_ids"], **masks)
    if kind in BERTS:
        return model.forward(given["input_ids"], given.get("token_type_ids"), given["attention_mask"])
    return model.forward(given["input_ids"], given["attention_mask"])


def theirs(model: Any, given: dict[str, np.ndarray]) -> Tensor:
    """The logits of `transformers`, those of an answer's ends side by side, or hidden states without a head."""
    dtype = next(model.parameters()).dtype
    tensors = {name: torch.from_numpy(array) for name, array in given.items()}
    tensors = {name: each.to(dtype) if each.is_floating_point() else each for name, each in tensors.items()}
    out = model(**tensors)
    if "start_logits" in out:
        return torch.stack((out.start_logits, out.end_logits), dim=-1)
    return out.logits if "logits" in out else out.last_hidden_state


def rms(self: Any, x: Tensor) -> Tensor:
    is_gemma = type(self).__name__.startswith("Gemma")
    eps, gain = (self.eps, 1 + self.weight) if is_gemma else (self.variance_epsilon, self.weight)
    return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def turned(rope: dict[str, Any], width: int) -> Tensor:
    """Llama's frequencies in float64, as the paper of Llama 3.1 stretches them."""
    frequencies = rope["rope_theta"] ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    if rope["rope_type"] == "default":
        return frequencies
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * frequencies / rope["factor"] + smooth * frequencies


@contextmanager
def exact(model: Any) -> Iterator[Any]:
    """The model in float64: norms, rotations and sinusoids too, which `transformers` computes in float32."""
    functions: Any = nn.functional
    softmax = functions.softmax
    functions.softmax = lambda x, dim, dtype=None: softmax(x, dim)  # not in float32
    try:
        yield exact_parts(model)
    finally:
        functions.softmax = softmax


def exact_parts(model: Any) -> Any:
    """The model with parts that compute in float64."""
    model = model.double()
    if hasattr(model, "set_attn_implementation") and model.config.model_type not in ("t5", "mt5", "gpt2", "gemma2"):
        model.set_attn_implementation("sdpa")  # the eager one takes its softmax in float32
    for module in model.modules():
        name = type(module).__name__
        if name.endswith(("T5LayerNorm", "RMSNorm")):
            module.forward = MethodType(rms, module)
        elif name.endswith("RotaryEmbedding"):
            ropes = model.config.rope_parameters
            ropes = {None: ropes} if "rope_theta" in ropes else ropes  # Gemma 3 has one for each kind of layer
            frequencies = {each: turned(rope, model.config.head_dim) for each, rope in ropes.items()}
            for each, angles in frequencies.items():
                theirs = getattr(module, f"{each}_inv_freq" if each else "inv_freq", angles)
                assert torch.allclose(angles.float(), theirs.float(), rtol=1e-5)

            def forward(self: Any, x: Tensor, position_ids: Tensor, kind: Any = None, known: Any = frequencies) -> Any:
                angles = position_ids[..., None].double() * known[kind]
                angles = torch.cat((angles, angles), dim=-1)
                return angles.cos(), angles.sin()

            module.forward = MethodType(forward, module)
        elif name.endswith("ScaledWordEmbedding"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float64)
        elif name == "MarianSinusoidalPositionalEmbedding":
            count, width = module.weight.shape
            angles = torch.arange(count).double()[:, None] * 10000 ** (-torch.arange(0, width, 2).double() / width)
            module.weight.data = torch.cat((angles.sin(), angles.cos()), dim=1)
        if isinstance(module, nn.Embedding):
            module.padding_idx = None  # whose row gets no gradient
    return model


def rewrite(folder: Path, change: Any) -> None:
    """Change the tensors of a folder's file: `change(tensors) -> tensors`."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = {name: tensor.contiguous().clone() for name, tensor in change(load_file(path)).items()}
    save_file(tensors, path, {"format": "pt"})
