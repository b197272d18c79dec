"""What was verified on a GPU, and what has changed since: `python -m kernels.ledger`.

`results/<gpu>.json` holds, for each op, a hash of its code (`kernels.fingerprint`), the errors that were found or why
its check failed, versions and date, and the times of the op and of its peers in the same run. `python -m kernels.bench`
on a GPU writes it. Here the hashes are compared with those of the code as it is: no GPU is needed, nor PyTorch.
"""

import json
from pathlib import Path
from typing import Any

from .fingerprint import fingerprint

RESULTS = Path(__file__).parent / "results"

OPS = {
    "attention": ("attention", ("attention_forward", "attention_backward")),
    "softmax": ("softmax", ("softmax_forward", "softmax_backward")),
    "layernorm": ("layernorm", ("layernorm_forward", "layernorm_backward")),
    "add_layernorm": ("layernorm", ("add_layernorm_forward", "add_layernorm_backward")),
    "cross_entropy": ("cross_entropy", ("cross_entropy_forward", "cross_entropy_backward")),
    "linear_cross_entropy": (
        "linear_cross_entropy",
        ("linear_cross_entropy_forward", "linear_cross_entropy_backward"),
    ),
    "embedding": ("embedding", ("embedding_forward", "embedding_backward")),
    "dropout": ("dropout", ("dropout_forward", "dropout_backward")),
    "relu": ("relu", ("relu_forward", "relu_backward")),
    "adam": ("adam", ("adam_step", "global_norm")),
}
"""Every op that has kernels of ours: the module that it lives in, and its names there."""


def current(op: str) -> str:
    """The hash of an op's code as it is."""
    module, names = OPS[op]
    return fingerprint(module, *names)


def ledgers(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What each GPU's file says, by the GPU's name."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        ledger = json.loads(path.read_text(encoding="utf-8"))
        if "gpu" in ledger:
            found[ledger["gpu"]] = ledger
    return found


def state(op: str, ledger: dict[str, Any]) -> str:
    """What one GPU's ledger says of an op."""
    entry = ledger["ops"].get(op)
    if entry is None:
        return "not yet verified"
    same = entry["hash"] == current(op)
    if "failed" in entry:
        return f"{'failed' if same else 'changed since it failed'} its check on {entry['date']}"
    return f"{'verified' if same else 'changed since it was verified'} on {entry['date']}"


def report(folder: Path = RESULTS) -> list[str]:
    """The lines that `python -m kernels.ledger` prints."""
    found = ledgers(folder)
    if not found:
        names = ", ".join(OPS)
        return [f"not yet verified on a GPU: {names}", "to verify them, on a machine with one: make bench"]
    width = max(map(len, OPS))
    lines = []
    for gpu, ledger in found.items():
        lines.append(gpu)
        for op in OPS:
            lines.append(f"  {op:{width}}  {state(op, ledger)}")
            lines += [f"  {'':{width}}    {reason}" for reason in ledger["ops"].get(op, {}).get("failed", [])]
    return lines


def main() -> None:
    """Print what is verified and what is not."""
    print("\n".join(report()))


if __name__ == "__main__":
    main()
