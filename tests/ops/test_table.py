"""The table of ops: what layers and models call."""

import dataclasses

import pytest

import minitransformer.ops
from minitransformer.ops import Ops, entries, numpy_ops
from minitransformer.textbook import textbook_ops

PAIRS = """
    linear relu softmax layernorm add_layernorm dropout embedding attention cross_entropy linear_cross_entropy
    tanh sigmoid conv1d additive_attention linear_attention gelu silu gated rmsnorm add_rmsnorm patches rope
"""


def test_every_entry_is_the_functions_of_its_name():
    pairs = dict(numpy_ops.pairs())
    assert set(pairs) >= set(PAIRS.split())
    there = {name.removesuffix("_forward") for name in vars(minitransformer.ops) if "_forward" in name}
    assert set(pairs) == there - {"quantized_linear"}  # its weight is no array, which the lists drawn from pairs need
    pairs["quantized_linear"] = numpy_ops.quantized_linear
    assert dataclasses.asdict(Ops(**entries(vars(minitransformer.ops)))) == dataclasses.asdict(numpy_ops)
    names = {f"{op}_{way}" for op in pairs for way in ("forward", "backward")}
    others = {field.name for field in dataclasses.fields(Ops)} - set(pairs) - {"repeated", "has_threads"}
    assert names | others <= set(vars(minitransformer.ops))
    for name, pair in pairs.items():
        assert pair.forward is getattr(minitransformer.ops, f"{name}_forward")
        assert pair.backward is getattr(minitransformer.ops, f"{name}_backward")


@pytest.mark.parametrize("backend", ["torch", "textbook"])
def test_no_backend_leaves_an_op_to_numpy(backend):
    """The defaults of `Ops` are NumPy's: a table that forgets one would have NumPy compute on its arrays."""
    import kernels

    table = {"torch": kernels.torch_ops("cpu"), "textbook": textbook_ops}[backend]
    for pair in (*(pair for _, pair in table.pairs()), table.quantized_linear):
        for function in (pair.forward, pair.backward):
            missing = f"the {backend} table has no {function.__name__}"
            assert not function.__module__.startswith("minitransformer.ops"), missing
