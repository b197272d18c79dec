"""The arithmetic of kernels as machine code, where a compiler may fuse a product with a sum, and so round otherwise."""

import re
from collections import Counter
from collections.abc import Iterable

import pytest
from support.kernels.machine_code import SAMPLE, Text, arithmetic, compiled, float_instructions, of_itself

NVIDIAS, AMDS = ("cuda:90", "cuda:75"), ("hip:gfx942", "hip:gfx1100")
QUICK = [("cuda:90", call) for call in SAMPLE]
SPLITTER = "0f46000400"
"""2¹³ + 1, as PTX writes it."""


def of_targets(targets: Iterable[str], *calls: str) -> pytest.MarkDecorator:
    """The targets of calls; in every run of the tests only those of `QUICK`."""
    pairs = [(target, call) for target in targets for call in calls]
    slow = [() if pair in QUICK else pytest.mark.slow for pair in pairs]
    return pytest.mark.parametrize(
        ("target", "call"), [pytest.param(*pair, marks=marks) for pair, marks in zip(pairs, slow, strict=True)]
    )


ADAM = ["adam", "adam, scale in memory", "adam, all in memory", "adam, shadow"]


def assert_nothing_is_fused(kernel: Text, unfused: Text) -> None:
    """The kernel is what it is without fusion, so what it computes does not depend on what the compiler likes."""
    assert kernel["assembly"].replace(".rn.f32", ".f32") == unfused["assembly"].replace(".rn.f32", ".f32")
    if "sass" in kernel:  # NVIDIA's assembler fuses too, even what it makes of a quotient
        assert float_instructions(kernel["sass"]) == float_instructions(unfused["sass"])


@of_targets(NVIDIAS + AMDS, *ADAM, "global_norm")
def test_adam_leaves_the_compiler_nothing_to_fuse(target, call):
    for kernel, unfused in zip(*compiled(target, call), strict=True):
        assert_nothing_is_fused(kernel, unfused)


@pytest.mark.slow
@pytest.mark.parametrize("target", NVIDIAS)
def test_adam_computes_the_same_wherever_its_numbers_stand(target):
    kernels = [compiled(target, call)[0][0]["assembly"] for call in ADAM]
    expected = arithmetic(kernels[0])
    assert sum(count for name, count in expected.items() if name.startswith("fma")) >= 3
    for kernel in kernels[1:]:
        assert arithmetic(kernel) == expected


@of_targets(NVIDIAS, "cross_entropy")
def test_the_gradient_of_logits_leaves_the_compiler_nothing_to_fuse(target, call):
    """So that twice the dloss is twice the gradient, wherever dloss stands. (AMD's 2ˣ is made of fused products.)"""
    forward, _, backward = zip(*compiled(target, call), strict=True)
    assert_nothing_is_fused(*backward)
    with pytest.raises(AssertionError):  # its sums are fused: the check can fail
        assert_nothing_is_fused(*forward)


@of_targets(NVIDIAS + AMDS, "layernorm", "add_layernorm")
def test_one_channel_has_no_gradient(target, call):
    """`dy · gamma` less its mean, itself: a number less that number, never a product less what it was rounded to."""
    _, backward, _ = compiled(target, call)[0]
    differences = of_itself(backward["llir"])
    assert differences
    assert all("@llvm.fma" in made for made in differences)


@of_targets(NVIDIAS, "linear_attention")
def test_linear_attention_splits_a_rounded_product(target, call):
    """`far = 8193 x` and `far − (far − x)`: fused with a difference, the product would not be rounded, nor x."""
    kernels = [kernel["assembly"] for kernel in compiled(target, call)[0]]
    used = [ptx for ptx in kernels if SPLITTER in ptx]
    assert len(used) == (5 if target == "cuda:90" else 0)  # a T4 has no tf32, and rounds nothing
    for ptx in used:
        products = re.findall(rf"^.*{SPLITTER}.*$", ptx, re.MULTILINE)
        far = [re.search(rf"fma\.rn\.f32\s+(%r\d+), %r\d+, {SPLITTER}, 0f00000000;", p) for p in products]
        registers = {found[1] for found in far if found}
        assert len(registers) == len(products)
        minuends = Counter(re.findall(r"sub\.(?:rn\.)?f32\s+%r\d+, (%r\d+),", ptx))
        assert all(minuends[register] == 2 for register in registers)
