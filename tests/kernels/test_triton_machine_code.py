"""The arithmetic of kernels as machine code, where a compiler may fuse a product with a sum, and so round otherwise."""

import pytest
from machine_code import arithmetic, compiled, float_instructions, of_itself

OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("cuda:75", "hip:gfx942", "hip:gfx1100")]
every_target = pytest.mark.parametrize("target", ["cuda:90", *OTHERS])
ADAM = ["adam", "adam, scale in memory", "adam, all in memory", "adam, shadow"]


@every_target
@pytest.mark.parametrize("call", [*ADAM, "global_norm"])
def test_adam_leaves_the_compiler_nothing_to_fuse(target, call):
    """So its bits are the same whatever else differs between two kernels made of it."""
    for kernel, unfused in zip(*compiled(target)[call], strict=True):
        assert kernel["assembly"].replace(".rn.f32", ".f32") == unfused["assembly"].replace(".rn.f32", ".f32")
        if "sass" in kernel:  # NVIDIA's assembler fuses too, even what it makes of a quotient
            assert float_instructions(kernel["sass"]) == float_instructions(unfused["sass"])


@pytest.mark.parametrize("target", ["cuda:90", OTHERS[0]])
def test_adam_computes_the_same_wherever_its_numbers_stand(target):
    kernels = [compiled(target)[call][0][0]["assembly"] for call in ADAM]
    expected = arithmetic(kernels[0])
    assert sum(count for name, count in expected.items() if name.startswith("fma")) >= 3
    for kernel in kernels[1:]:
        assert arithmetic(kernel) == expected


@every_target
@pytest.mark.parametrize("call", ["layernorm", "add_layernorm"])
def test_one_channel_has_no_gradient(target, call):
    """`dy · gamma` less its mean, itself: a number less that number, never a product less what it was rounded to."""
    _, backward, _ = compiled(target)[call][0]
    differences = of_itself(backward["llir"])
    assert differences
    assert all("@llvm.fma" in made for made in differences)
