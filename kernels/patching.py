"""`kernels.patch(model)`: a Hugging Face model runs on `kernels.functional`, and its weights stay where they are.

    model = AutoModelForCausalLM.from_pretrained(…)
    print(kernels.patch(model))

A module is not replaced: it gets a `forward` of its own, which hides that of its class. Attention is registered with
transformers (`ALL_ATTENTION_FUNCTIONS`) and named in the model's config. The model gets a copy of its config for this,
since other models may share the original.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import functional
from .functional.attention import padded_attention

NAME = "minitransformer"
"""The name of our attention in transformers."""


class Classes(NamedTuple):
    """The names of a model's classes that are not PyTorch's own."""

    attention: tuple[str, ...]
    rms_norm: str | None = None
    gated_mlp: str | None = None


MODELS = {
    "llama": Classes(("LlamaAttention",), "LlamaRMSNorm", "LlamaMLP"),
    "mistral": Classes(("MistralAttention",), "MistralRMSNorm", "MistralMLP"),
    "qwen2": Classes(("Qwen2Attention",), "Qwen2RMSNorm", "Qwen2MLP"),
    "qwen3": Classes(("Qwen3Attention",), "Qwen3RMSNorm", "Qwen3MLP"),
    "gemma": Classes(("GemmaAttention",), "GemmaRMSNorm", "GemmaMLP"),
    "gpt2": Classes(("GPT2Attention",)),
    "bert": Classes(("BertSelfAttention", "BertCrossAttention")),
}
"""The models that are known, by `config.model_type`."""

GELU = ("gelu", functional.gelu, "geglu", functional.geglu)
GELU_TANH = (
    "gelu", partial(functional.gelu, approximate="tanh"), "geglu", partial(functional.geglu, approximate="tanh")
)  # fmt: skip
SILU = ("silu", functional.silu, "swiglu", functional.swiglu)
ACTIVATIONS: dict[str, tuple[str, Callable[..., Tensor], str, Callable[..., Tensor]]] = {
    "GELUActivation": GELU, "GELUTanh": GELU_TANH, "NewGELUActivation": GELU_TANH, "SiLUActivation": SILU, "SiLU": SILU
}  # fmt: skip
"""The function of each class of activation, and that of its gated MLP, with their names. A model keeps all others."""


@dataclass
class Patch:
    """The swaps of `patch` in a model, as a text for `print`; `undo()` or the end of a `with` undoes them."""

    model: str
    swapped: dict[str, int] = field(default_factory=dict)
    _undo: list[Callable[[], Any]] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        lines = [f"{count:6} × {what}" for what, count in self.swapped.items()]
        return "\n".join([f"{self.model} runs on kernels.functional:", *lines])

    def undo(self) -> None:
        """Restore the model as it was before; a second call does nothing."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def swap(self, what: str, owner: Any, name: str, value: Any) -> None:
        """Call `set`, and count the swap under the name `what`."""
        self.set(owner, name, value)
        self.swapped[what] = self.swapped.get(what, 0) + 1

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of the object itself, and note how to undo it."""
        own = vars(owner)
        self._undo.append(partial(setattr, owner, name, own[name]) if name in own else partial(delattr, owner, name))
        setattr(owner, name, value)

    def hook(self, module: nn.Module, function: Callable[..., None]) -> None:
        """Call a function with the module and its arguments before each forward."""
        self._undo.append(module.register_forward_pre_hook(function, with_kwargs=True).remove)


def patch(model: nn.Module) -> Patch:
    """Swap norms, activations, gated MLPs, attention and the causal loss of a model that is in `MODELS`.

    Outputs, losses and gradients stay the same up to rounding (with dropout in attention: other draws of the same
    generator), and so do the parameters and their names. An activation that has no function here, and the losses of
    other heads, stay as they are. A patched model can be copied, pickled and compiled. Until `undo()` its config is a
    copy: options that are set meanwhile are set in the copy, and are lost.
    Raises `ValueError` for a model that is not known or is patched already, `TypeError` for an object that is no model
    of transformers.
    """
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model, nn.Module) or kind is None:
        raise TypeError(f"model is a {type(model).__name__}, expected a model of transformers")
    if kind not in MODELS:
        known = ", ".join(sorted(MODELS))
        raise ValueError(f"model is a {type(model).__name__} ({kind}), which is not known; known are: {known}")
    norms = _layer_norm, _rms_norm, _rms_norm_about_one
    if any(getattr(vars(module).get("forward"), "func", None) in norms for module in model.modules()):
        raise ValueError(f"model is a {type(model).__name__} that is patched already: undo() that first")
    report = Patch(type(model).__name__)
    _patch_modules(model, MODELS[kind], report)
    _patch_attention(model, MODELS[kind].attention, report)
    _patch_loss(model, report)
    return report


# --- Modules --------------------------------------------------------------------------------------------------


def _patch_modules(model: nn.Module, classes: Classes, report: Patch) -> None:
    gated = {id(module.act_fn) for module in model.modules() if hasattr(module, "gate_proj")}
    for module in model.modules():
        kind = type(module).__name__
        if type(module) is nn.LayerNorm:
            report.swap("LayerNorm → layer_norm", module, "forward", partial(_layer_norm, module))
        elif kind == classes.rms_norm:
            norm = _rms_norm_about_one if kind == "GemmaRMSNorm" else _rms_norm
            report.swap(f"{kind} → rms_norm", module, "forward", partial(norm, module))
        elif kind == classes.gated_mlp and (activation := type(module.act_fn).__name__) in ACTIVATIONS:
            *_, name, gate = ACTIVATIONS[activation]
            report.swap(f"{kind} → {name}", module, "forward", partial(_gated_mlp, gate, module))
        elif kind in ACTIVATIONS and id(module) not in gated:
            name, function, *_ = ACTIVATIONS[kind]
            report.swap(f"{kind} → {name}", module, "forward", function)


def _layer_norm(module: nn.LayerNorm, x: Tensor) -> Tensor:
    return functional.layer_norm(x, module.normalized_shape, module.weight, module.bias, module.eps)


def _rms_norm(module: Any, x: Tensor) -> Tensor:
    if x.dtype != module.weight.dtype:  # transformers rounds to x's type first, and the weight then decides
        return type(module).forward(module, x)
    return functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon).to(x.dtype)


def _rms_norm_about_one(module: Any, x: Tensor) -> Tensor:
    """Apply Gemma's RMSNorm, whose factor is 1 + weight, in float32."""
    return functional.rms_norm(x, module.weight.shape, 1 + module.weight.float(), module.eps)


def _gated_mlp(gate: Callable[[Tensor, Tensor], Tensor], module: Any, x: Tensor) -> Tensor:
    return module.down_proj(gate(module.gate_proj(x), module.up_proj(x)))


# --- Attention ------------------------------------------------------------------------------------------------


def _patch_attention(model: Any, classes: tuple[str, ...], report: Patch) -> None:
    from transformers import PreTrainedModel

    own: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            report.hook(module, _refuse_weights)
        if (config := vars(module).get("config")) is not None:
            report.set(module, "config", own.setdefault(id(config), copy(config)))
    model.set_attn_implementation(NAME)
    for name in classes:
        if count := sum(type(module).__name__ == name for module in model.modules()):
            report.swapped[f"{name} → flash attention"] = count


def _refuse_weights(module: Any, _: Any, options: dict[str, Any]) -> None:
    """Refuse `output_attentions` before the forward: a GPT-2's attention never sees it, and would return no weights."""
    if options.get("output_attentions", module.config.output_attentions):
        raise ValueError("output_attentions is set, and these kernels never make the weights: undo() the patch first")


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention with transformers' signature: query `(B, H, Tq, D)` → `(B, Tq, H, D)`, and no weights.

    A window is in the mask. Raises `ValueError` for a softcap or sinks, which no model in `MODELS` has.
    """
    for name in ("softcap", "s_aux"):
        if options.get(name) is not None:
            raise ValueError(f"attention is called with {name}, which it does not have: use another implementation")
    if attention_mask is not None and attention_mask.ndim == 4:
        out = functional.scaled_dot_product_attention(
            query, key, value, attention_mask, dropout, scale=scaling, enable_gqa=True
        )
    else:
        causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
        out = padded_attention(query, key, value, attention_mask, dropout, causal, scaling)
    return out.transpose(1, 2), None


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> Tensor | None:
    """Return only the padding, `(B, Tk)`, if the pattern is causal or full; else transformers' mask, `(B, 1, Tq, Tk)`.

    In the kernels a causal mask is aligned at the last key, so the last query must be there. It is not if a cache has
    room for later keys; then transformers' mask is used.
    """
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

    bidirectional = mask_function is bidirectional_mask_function
    aligned = bidirectional or (isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length)
    whole = attention_mask is None or attention_mask.shape[-1] >= kv_length
    if aligned and whole and (bidirectional or mask_function is causal_mask_function):
        return None if attention_mask is None else attention_mask[:, -kv_length:]
    options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **options)  # pyright: ignore[reportArgumentType]


if find_spec("transformers") is not None:  # on import, so that a patched model can be unpickled
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)


# --- Loss -----------------------------------------------------------------------------------------------------


def _patch_loss(model: Any, report: Patch) -> None:
    causal = getattr(model, "loss_type", None) in (None, "ForCausalLM") and "_loss_function" not in vars(model)
    if causal and model.can_generate():
        report.swap("causal loss → cross_entropy", model, "_loss_function", _causal_loss)


def _causal_loss(
    logits: Tensor,
    labels: Tensor,
    vocab_size: int,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Compute transformers' `ForCausalLMLoss` (t predicts label t + 1) without a float32 copy of the logits."""
    if shift_labels is None:
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    rows, targets = logits.reshape(-1, vocab_size), shift_labels.reshape(-1).to(logits.device)
    if num_items_in_batch is None:
        return functional.cross_entropy(rows, targets, ignore_index=ignore_index)
    total = functional.cross_entropy(rows, targets, ignore_index=ignore_index, reduction="sum")
    return total / torch.as_tensor(num_items_in_batch, device=total.device)
