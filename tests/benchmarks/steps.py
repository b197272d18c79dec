"""The steps towards speed: what each is, and what was expected of it before it was measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """`predicted`: how many times as long a training step of S and of M was expected to take without it."""

    name: str
    what: str
    predicted: tuple[float, float]
    why: str


STEPS = [
    Step(
        "threads",
        "two Python threads, each half of the batch; without it, BLAS's own two threads",
        (1.3, 1.2),
        "NumPy's loops run on one core whatever BLAS does; replicas put all of the arithmetic on both",
    ),
    Step(
        "memory",
        "freed memory stays with the process; without it, glibc returns large arrays to the system",
        (1.2, 1.3),
        "every page that comes back from the system is zeroed on first touch",
    ),
    Step(
        "layernorm",
        "row sums as matrix–vector products, in place; without it, `mean`, `var` and a new array for each operation",
        (1.25, 1.15),
        "`mean` and `var` over a short last axis start anew for each row",
    ),
    Step(
        "attention",
        "scale the query, add the mask, one buffer for scores and weights; without it, the formula as printed",
        (1.25, 1.1),
        "each operation on the (B, H, T, T) scores passes over the largest array of a layer",
    ),
    Step(
        "loss",
        "logits in blocks, only for real targets, smoothing moved past the products; without it, all logits at once",
        (1.15, 1.25),
        "N × V numbers and their gradient go through memory several times",
    ),
    Step(
        "embedding",
        "rows of equal ids are sorted together and summed; without it, `np.add.at`",
        (1.15, 1.1),
        "`np.add.at` adds element by element",
    ),
    Step(
        "relu",
        "`dy * (y > 0)`; without it, `np.where`",
        (1.08, 1.05),
        "`np.where` does not vectorise",
    ),
    Step(
        "adam",
        "in place, in blocks that stay in the cache; without it, the formula as printed",
        (1.05, 1.1),
        "eight passes over four arrays of the size of the model",
    ),
]
"""`name` is what `numpy_jobs.training` leaves out."""
