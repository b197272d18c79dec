"""Lesson 17's numbers: the speeds of GPUs by their data sheets, and the operations and bytes of each kernel.

Floating-point operations are counted as the lesson says: each addition, multiplication, maximum, exponential or root is
one; the integer arithmetic of dropout's hash is none. Bytes are the least: each input is read once, each output written
once, in half precision but for Adam. So the sizes and the bytes are those of the benchmark, which times them.
"""

from dataclasses import dataclass
from typing import Any

HALF = 2
"""Bytes of a float16 or bfloat16."""


@dataclass(frozen=True)
class Gpu:
    """The numbers of a data sheet: dense operations a second in numbers of `kind`, and bytes a second of memory."""

    name: str
    year: int
    kind: str
    flops: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """Operations for each byte where both limits meet."""
        return self.flops / self.bandwidth


GPUS = (
    Gpu("P100", 2016, "float32", 10.6e12, 0.732e12),
    Gpu("T4", 2018, "float16", 65e12, 0.320e12),
    Gpu("A100", 2020, "bfloat16", 312e12, 2.039e12),
    Gpu("H100", 2022, "bfloat16", 989e12, 3.35e12),
    Gpu("H200", 2023, "bfloat16", 989e12, 4.8e12),
)
"""NVIDIA's data sheets: Tesla P100 (SXM2, 16 GB), T4, A100 80GB SXM, H100 SXM, H200 SXM; without sparsity."""


def gpu_named(name: str) -> Gpu | None:
    """Return the data sheet of a GPU by its driver's name for it, "NVIDIA H200", or None for an unknown GPU."""
    return next((gpu for gpu in GPUS if gpu.name in name.replace("-", " ").split()), None)


@dataclass(frozen=True)
class Work:
    """A task of the benchmark's: `op`, `what` and `size` are as its ledger has them."""

    op: str
    what: str
    size: dict[str, Any]
    flops: float
    moved: float

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flops / self.moved

    @property
    def name(self) -> str:
        """The op and, for attention, its size."""
        return self.op if self.op != "attention" else f"attention, T {self.size['Tq']:,}, D {self.size['D']}"

    def measured(self, entries: list[dict[str, Any]]) -> float | None:
        """Return the seconds of the package's kernel in a ledger's entries, or None."""
        for entry in entries:
            same = (entry["op"], entry["what"]) == (self.op, self.what)
            if same and self.size.items() <= entry["size"].items():
                ms = entry["contestants"]["ours"].get("ms")
                return None if ms is None else ms / 1e3
        return None


def _rows(op: str, what: str, columns: int, operations: float, passes: int) -> Work:
    elements = 2**27
    size = {"rows": elements // columns, "columns": columns}
    return Work(op, what, size, operations * elements, passes * HALF * elements)


def _attention(T: int, D: int, what: str) -> Work:
    B, H = 16_384 // T, 2048 // D
    size = {"kind": "full", "B": B, "H": H, "Tq": T, "Tk": T, "D": D}
    factor, arrays = (1.0, 4) if what == "forward" else (3.5, 12)  # q, k, v → out; then also out, dout → dq, dk, dv
    return Work("attention", what, size, factor * 4 * B * H * T * T * D, arrays * HALF * B * H * T * D)


def _cross_entropy(what: str) -> Work:
    N, V = 8192, 37_000
    operations, passes = (5, 1) if what == "forward" else (9, 3)
    return Work("cross_entropy", what, {"rows": N, "V": V}, operations * N * V, passes * HALF * N * V)


def _fused_loss() -> Work:
    N, C, V = 25_088, 512, 37_000
    # 6 passes over the logits: a product writes them, a kernel reads them twice and writes, two products read them.
    moved = HALF * (6 * N * V + 3 * N * C + 2 * V * C) + 4 * V * C
    return Work("linear_cross_entropy", BOTH, {"rows": N, "C": C, "V": V}, 6 * N * C * V + 9 * N * V, moved)


def _embedding(what: str) -> Work:
    N, V, C = 2**18, 37_000, 512
    passed = 2 * N if what == "forward" else N + V
    return Work("embedding", what, {"rows": N, "V": V, "columns": C}, N * C, HALF * passed * C)


FORWARD, BACKWARD, BOTH = "forward", "backward", "forward + backward"

WORKS = (
    _rows("relu", FORWARD, 2048, 1, 2),
    _rows("relu", BACKWARD, 2048, 1, 3),
    _rows("dropout", FORWARD, 512, 1, 2),
    _embedding(FORWARD),
    _embedding(BACKWARD),
    _rows("softmax", FORWARD, 2048, 5, 2),
    _rows("softmax", BACKWARD, 2048, 4, 3),
    _rows("layernorm", FORWARD, 512, 7, 2),
    _rows("layernorm", BACKWARD, 512, 13, 3),
    _rows("add_layernorm", FORWARD, 512, 9, 3),
    _rows("add_layernorm", BACKWARD, 512, 16, 5),
    _cross_entropy(FORWARD),
    _cross_entropy(BOTH),
    Work("adam", "step", {"P": 2**27}, 13 * 2**27, 28 * 2**27),
    _fused_loss(),
    _attention(4096, 64, FORWARD),
    _attention(4096, 128, FORWARD),
    _attention(4096, 128, BOTH),
    _attention(16_384, 128, FORWARD),
)
"""Every op with kernels of the package's, at one of the sizes at which the benchmark times it."""
