"""A kernel's arithmetic as the compiler makes it: the text of a few kernels, for GPUs that are not here.

`python machine_code.py TARGET CALL...` compiles in a process of its own, since here Triton interprets; each kernel as
ever, and most once more where the compiler may not fuse a product with a sum.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache, partial
from typing import Any

AS_FUSED = ("layernorm", "add_layernorm", "linear_attention")
"""Calls that no test looks at without fusion, nor at what NVIDIA's assembler makes of them: each look takes seconds."""

SAMPLE = ("adam", "layernorm", "linear_attention")
"""Calls that every run of the tests looks at: compiled together, apart from the others."""

Text = dict[str, str]
"""A kernel as Triton hands it to LLVM's back end ("llir"), as "assembly", and for NVIDIA as "sass"."""


def compiled(target: str, call: str) -> list[list[Text]]:
    """The kernels that a call launches: as they are compiled, and, but for `AS_FUSED`, without fusion.

    Of a loss "sass" is only that of its last kernel, the backward.
    """
    return _compiled(target, *(name for name in calls() if (name in SAMPLE) == (call in SAMPLE)))[call]


@cache
def _compiled(target: str, *names: str) -> dict[str, list[list[Text]]]:
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, __file__, target, *names], capture_output=True, text=True, env=inherited)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def calls() -> dict[str, Any]:
    """By name: an update of Adam with its numbers here and there, a loss, linear attention, norms of one channel."""
    import torch

    import kernels
    from minitransformer.ops import Dropout

    flat, one, column = torch.zeros(4096), torch.ones(()), torch.zeros(64, 1)
    heads = torch.zeros(1, 2, 64, 16, dtype=torch.float16)
    adam = partial(kernels.adam_step, flat, flat, flat, flat)

    def both(op: str, *arguments: Any, **options: Any) -> None:
        out, cache = getattr(kernels, f"{op}_forward")(*arguments, **options)
        getattr(kernels, f"{op}_backward")(out, cache)

    return {
        "adam": partial(adam, step=7, lr=0.1, grad_scale=0.5),
        "adam, scale in memory": partial(adam, step=7, lr=0.1, grad_scale=one),
        "adam, all in memory": partial(adam, step=one.long(), lr=one, grad_scale=one),
        "adam, shadow": partial(adam, step=7, lr=0.1, grad_scale=0.5, shadow=flat.half()),
        "global_norm": partial(kernels.global_norm, flat),
        "cross_entropy": partial(both, "cross_entropy", torch.zeros(64, 100), torch.zeros(64, dtype=torch.int64), 0.1),
        "linear_attention": partial(both, "linear_attention", heads, heads, heads, causal=True),
        "layernorm": partial(both, "layernorm", column, column[0], column[0]),
        "add_layernorm": partial(both, "add_layernorm", column, column, column[0], column[0], dropout=Dropout(0.1, 1)),
    }


def main(target: str, *names: str) -> None:
    """Print what `compiled` reads."""
    from kernels.proof.pretending import pretending

    wanted = {name: call for name, call in calls().items() if name in names}
    found: dict[str, list[list[Text]]] = {name: [] for name in wanted}
    with pretending(target) as launches:
        for fusion in "10":
            os.environ["TRITON_DEFAULT_FP_FUSION"] = fusion
            for name, call in wanted.items():
                if fusion == "0" and name in AS_FUSED:
                    continue
                launches.clear()
                call()
                looked_at = {"cross_entropy": launches[-1:]}.get(name, launches if name not in AS_FUSED else [])
                found[name].append([_text(launch[1].asm, launch in looked_at) for launch in launches])
                for function, _ in launches:
                    function.device_caches.clear()  # whose keys know nothing of the variable
    print(json.dumps(found))


def _text(asm: Any, with_sass: bool) -> Text:
    from compilation import said_by  # beside this script

    text = {"llir": asm["llir"], "assembly": asm["ptx" if "ptx" in asm else "amdgcn"]}
    return text | {"sass": said_by("nvdisasm", asm["cubin"], "-c")} if with_sass and "cubin" in asm else text


# --- Reading it -----------------------------------------------------------------------------------------------

INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+ )?\s*([a-z]\w*(?:\.\w+)+)\s+(%[a-z]+\d+), (.*);", re.MULTILINE)
ARITHMETIC = re.compile(r"(add|sub|mul|fma|div|sqrt|rsqrt|rcp|neg)\.[\w.]*f32$")


def arithmetic(ptx: str) -> Counter[str]:
    """The float32 instructions of PTX, each with what made its operands: as `fma.rn.f32(given, given, mul.f32)`.

    What is loaded, handed over or carried around a loop is given; the order of a product's factors is not told apart.
    """
    made: dict[str, set[str]] = {}
    for name, register, _ in INSTRUCTION.findall(ptx):
        made.setdefault(register, set()).add(name)

    def maker(operand: str) -> str:
        names = [name for name in made.get(operand, ()) if ARITHMETIC.match(name)]
        return names[0] if len(names) == len(made.get(operand, ())) == 1 else "given"

    found: Counter[str] = Counter()
    for name, _, rest in INSTRUCTION.findall(ptx):
        if ARITHMETIC.match(name):
            operands = [maker(operand) for operand in rest.split(", ")]
            if name.startswith(("mul", "fma")):
                operands[:2] = sorted(operands[:2])
            found[f"{name}({', '.join(operands)})"] += 1
    return found


def float_instructions(sass: str) -> Counter[str]:
    """Count the instructions of each kind."""
    return Counter(re.findall(r"\b(?:F(?:FMA|MUL|ADD)|MUFU)[.\w]*", sass))


def of_itself(llir: str) -> list[str]:
    """Return the makers of numbers from which that same number is subtracted, such as `call float @llvm.fma.f32(…)`."""
    made = dict(re.findall(r"^ *(%[\w.]+) = (?:tail )?(.*)$", llir, re.MULTILINE))
    return [made[number] for number in re.findall(r" = fsub \S+ (%[\w.]+), \1\b", llir)]


if __name__ == "__main__":
    main(*sys.argv[1:])
