"""An architecture in words: one line for each block, as the formula that it computes. Equal ones in a row share it."""

from dataclasses import replace
from itertools import groupby

from .costs import Counted
from .layers import AttentionConfig, BlockConfig, NormConfig, StackConfig
from .models import CaptionerConfig, CLIPConfig, ViTConfig


def outline(config: Counted) -> dict[str, str]:
    """Return a line for what comes before the blocks, for each block of each stack, and for what comes after."""
    names = ("encoder", "decoder", "picture_encoder", "text_encoder")
    stacks = {name.replace("_", " "): stack for name in names if (stack := getattr(config, name, None)) is not None}
    read = [f"{config.num_patches} patches"] if isinstance(config, ViTConfig | CaptionerConfig | CLIPConfig) else []
    read += [] if isinstance(config, ViTConfig) else [f"{config.vocab_size:,} tokens"]
    rows = {"input": f"{' and '.join(read)} → {config.d_model:,}"}
    for side, stack in stacks.items():
        rows["input"] += "" if stack.positions == "none" else f", {side}: {stack.positions} positions"
        rows |= {f"{side}, {place}": line for place, line in _blocks(stack)}
    if isinstance(config, CLIPConfig):
        rows["output"] = f"{config.d_model:,} → {config.embedding:,} for a picture and for a text"
    elif not isinstance(config, ViTConfig):
        tied = " (the table of the input)" if getattr(config, "tied", True) else ""
        rows["output"] = f"{config.d_model:,} → {config.vocab_size:,} tokens{tied}"
    return rows


def _blocks(stack: StackConfig) -> list[tuple[str, str]]:
    """Return the places of blocks that are alike, counted from 1, and their line."""
    block, found = stack.block, list[tuple[str, str]]()
    lines = [_line(replace(block, attention=block.attention.of_layer(i))) for i in range(stack.num_layers)]
    for line, places in groupby(range(stack.num_layers), lines.__getitem__):
        first, *others = (place + 1 for place in places)
        found.append((f"block {first}" if not others else f"blocks {first} to {others[-1]}", line))
    return found


def _line(block: BlockConfig) -> str:
    network, norm = block.feed_forward, block.norm
    parts = [f"{_residual('attention', norm)} [{_attention(block.attention, norm)}]"]
    parts += [f"{_residual('attention to the memory', norm)}"] * block.cross
    if network.d_ff == 0:
        return "; ".join(parts)
    words = [f"{block.d_model:,} → {network.d_ff:,} → {block.d_model:,}", network.activation.replace("_", " ")]
    words += ["gated"] * network.gated + ["biases"] * network.bias
    return "; ".join([*parts, f"{_residual('network', norm)} [{', '.join(words)}]"])


def _residual(sublayer: str, norm: NormConfig) -> str:
    """Return the formula of a sub-layer in its residual connection."""
    inner = f"{sublayer}({norm.kind}(x))" if norm.first else f"{sublayer}(x)"
    inner = f"{norm.kind}({inner})" if "outputs" in norm.extra else inner
    return f"x + {inner}" if norm.first else f"{norm.kind}(x + {inner})"


def _attention(attention: AttentionConfig, norm: NormConfig) -> str:
    words = [f"{attention.num_heads} heads of {attention.d_k}"]
    if attention.kv_heads != attention.num_heads:
        words.append(f"{attention.kv_heads} of keys and values")
    if attention.kind == "linear":
        words.append("linear")
    if "heads" in norm.extra:
        words.append("queries and keys normalised")
    if attention.rotary is not None:
        words.append(f"rotary, θ {attention.rotary.theta:,.0f}")
        if attention.rotary.factor is not None:
            words.append(f"stretched by {attention.rotary.factor:g}")
    if attention.relative is not None:
        words.append({"t5": "relative positions", "alibi": "ALiBi"}[attention.relative.kind])
    if attention.window is not None:
        words.append(f"a window of {attention.window:,} tokens")
    if attention.sparse is not None:
        words.append("sparse")
    if attention.softcap is not None:
        words.append(f"scores within ±{attention.softcap:g}")
    if attention.bias:
        words.append("biases on queries, keys and values" if attention.bias == "inputs" else "biases")
    return ", ".join(words)
