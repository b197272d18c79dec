"""Lesson 24: the package's names of a GPT-2's parameters, by the file's."""

NAMES = {"wte": "tokens.table", "wpe": "decoder.embedding.positions.table", "ln_f": "decoder.final_norm"}
PARTS = {
    "ln_1": "self_attention_norm", "ln_2": "feed_forward_norm", "mlp.c_fc": "feed_forward.expand",
    "mlp.c_proj": "feed_forward.contract", "attn.c_attn": "self_attention.query_key_value",
    "attn.c_proj": "self_attention.output",
}  # fmt: skip


def our_name(name: str) -> str:
    """Return the package's name of a parameter, by the file's."""
    part, ending = name.rsplit(".", 1)
    if part in ("wte", "wpe"):
        return NAMES[part]
    ending = {"weight": "gamma", "bias": "beta"}[ending] if ".ln_" in f".{part}" else ending
    if part in NAMES:
        return f"{NAMES[part]}.{ending}"
    _, layer, part = part.split(".", 2)
    return f"decoder.layers.{layer}.{PARTS[part]}.{ending}"
