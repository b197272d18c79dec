"""What the compiler makes of every kernel on GPUs that are not here: registers, spills, shared memory, tensor cores.

    python -m kernels.compilation cuda:90 [PART OF AN EXAMPLE'S NAME ...]      a row for each kernel, as JSON

Nothing is described twice: the host wrappers run on small tensors in host memory, under a driver that pretends to be
another GPU, and what they would launch is compiled with Triton's own machinery instead. Each target takes a process of
its own, without Triton's interpreter.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

TARGETS = {
    "cuda:75": 64,  # T4
    "cuda:80": 163,  # A100
    "cuda:86": 99,  # RTX 30
    "cuda:89": 99,  # RTX 40, L4
    "cuda:90": 227,  # H100, H200
    "cuda:100": 227,  # B200
    "cuda:120": 99,  # RTX 50
    "hip:gfx942": 64,  # MI300
    "hip:gfx1100": 64,  # RX 7900
}
"""GPUs that learners may have, and the KiB of shared memory that a block may have there."""

WARP_SIZES = {"gfx942": 64}
"""Threads of a warp, where they are not 32."""

TENSOR_INSTRUCTIONS = ("wgmma", "tcgen05.mma", "mma.sync", "v_mfma", "v_wmma")

WATCHED = ("HGMMA", "WARPGROUP.DEPBAR", "MUFU.EX2", "FFMA", "SHFL")
"""Instructions of Hopper's loops that are counted: a product of a group of warps, a wait for such, exp2, a · b + c, and
a number handed to another thread."""

Row = dict[str, Any]


def compile_in_a_process(target: str, *parts: str, packages: str = "") -> list[Row]:
    """The rows of one target; `packages` is a folder whose Triton is taken before the one that is installed."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "kernels.compilation", target, *parts]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root)
    if done.returncode:
        raise RuntimeError(f"compiling for {target} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def compile_for(target: str, parts: Sequence[str] = ()) -> list[Row]:
    """The rows of one target, of all examples or of those whose names hold one of `parts`.

    To be called in a process of its own, without the interpreter.
    """
    from .examples import examples

    rows: dict[str, Row] = {}
    with pretending(target) as launches:
        for name, call in examples(target):
            if parts and not any(part in name for part in parts):
                continue
            launches.clear()
            call()
            if not launches:
                raise RuntimeError(f"{name} launches nothing")
            for function, kernel in launches:
                rows.setdefault(kernel.hash, {"target": target, "op": name} | describe(function, kernel))
    return list(rows.values())


@contextmanager
def pretending(
    target: str, shared_memory: int = 0, warp_size: int = 0, then: Callable[..., None] | None = None
) -> Iterator[list[Any]]:
    """Launches compile for `target` instead; each kernel is collected here with what was made of it.

    The bytes of shared memory and the threads of a warp are those of `TARGETS` and `WARP_SIZES` unless given. `then`
    is called after each with the kernel, what was made of it, the grid, and the arguments by name.
    """
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    from .. import tuning

    kind, arch = target.split(":")
    gpu = GPUTarget(kind, int(arch) if kind == "cuda" else arch, warp_size or WARP_SIZES.get(arch, 32))
    launches: list[Any] = []
    launch: Any = JITFunction.run
    touched: dict[int, Any] = {}

    def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if id(kernel) not in touched:
            touched[id(kernel)] = kernel
            kernel.device_caches.clear()  # what is compiled for one GPU must not be taken for the other
        made = launch(kernel, *arguments, grid=grid, warmup=True, **options)
        launches.append((kernel, made))
        if then is not None:
            then(kernel, made, grid, dict(zip(kernel.arg_names, arguments, strict=False)) | options)
        return made

    setattr(JITFunction, "run", compile_only)  # noqa: B010 - a method for another, which a checker would refuse
    one_device = {"get_current_device": lambda: 0, "get_current_stream": lambda device: 0}  # all that compiling needs
    driver.set_active(cast(Any, SimpleNamespace(**one_device, get_current_target=lambda: gpu)))
    try:
        shared_memory = shared_memory or TARGETS[target] * tuning.KIBIBYTE
        with tuning.pretending(tuning.Capability(kind, gpu.arch, shared_memory)):
            yield launches
    finally:
        setattr(JITFunction, "run", launch)  # noqa: B010
        driver.set_active(cast(Any, None))  # Triton looks again for the one that is there
        for kernel in touched.values():
            kernel.device_caches.clear()


def describe(function: Any, kernel: Any) -> Row:
    """A kernel's row."""
    source = kernel.src
    constants = {function.arg_names[path[0]]: value for path, value in source.constants.items()}
    assembly = kernel.asm["ptx" if "ptx" in kernel.asm else "amdgcn"]
    described = any(kind.startswith("tensordesc") for kind in _flat(source.signature.values()))
    usage = _nvidia_usage(assembly, kernel.asm["cubin"]) if "cubin" in kernel.asm else _amd_usage(assembly)
    return {
        "kernel": function.fn.__name__,
        "dtype": next(kind for kind in _flat(source.signature.values()) if kind.startswith("*")).removeprefix("*"),
        "constants": {name: value for name, value in constants.items() if value is not None},
        "num_warps": kernel.metadata.num_warps,
        "num_stages": kernel.metadata.num_stages,
        "shared": kernel.metadata.shared,
        **({"descriptors": True} if described else {}),
        **usage,
        "tensor_cores": next((name for name in TENSOR_INSTRUCTIONS if name in assembly), None),
        "dots": "tt.dot" in kernel.asm["ttir"],
    }


def _flat(kinds: Iterable[Any]) -> Iterator[str]:
    """The types of a signature, those in tuples too."""
    for kind in kinds:
        if isinstance(kind, tuple):
            yield from _flat(kind)
        else:
            yield kind


def _nvidia_usage(assembly: str, cubin: bytes) -> Row:
    """Registers, and bytes of stack, where spills go, by NVIDIA's own tool.

    Of kernels with Hopper's products also their loops: whether a product waits for another, PTX does not show.
    """
    hopper = "wgmma" in assembly
    said = said_by("cuobjdump", cubin, "-res-usage", *(["-sass"] if hopper else []))
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert found is not None, said
    usage = {"registers": int(found[1]), "spilled": int(found[2])}
    return usage | {"loops": loops_of_products(said)} if hopper else usage


def said_by(tool: str, cubin: bytes, *options: str) -> str:
    """What one of NVIDIA's tools, which Triton brings along, says of machine code."""
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([path, *options, file.name], capture_output=True, text=True, check=True).stdout


def loops_of_products(sass: str) -> list[Row]:
    """Each loop with products in machine code as `cuobjdump -sass` prints it: its instructions, and those `WATCHED`.

    A jump from behind a loop to a place in or before it is none: warps that wait try again.
    """
    code = [(int(place, 16), text) for place, text in re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", sass, re.M)]
    loops, last = [], -1
    for end, text in code:
        back = re.search(r"\bBRA\S* .*\b0x([0-9a-f]+)", text)
        if back and last < int(back[1], 16) < end:
            inside = [text for place, text in code if int(back[1], 16) <= place <= end]
            counts = {name: sum(bool(re.search(rf"\b{name}\b", text)) for text in inside) for name in WATCHED}
            if counts["HGMMA"]:
                loops.append({"instructions": len(inside)} | counts | {"in flight": exponentials_in_flight(inside)})
                last = end
    return loops


def exponentials_in_flight(loop: list[str]) -> int:
    """How many exponentials of a loop are computed after a product was issued and before the first wait for one."""
    issued = next(i for i, text in enumerate(loop) if "HGMMA" in text)
    waited = next((i for i, text in enumerate(loop) if i > issued and "WARPGROUP.DEPBAR" in text), len(loop))
    return sum("MUFU.EX2" in text for text in loop[issued:waited])


def _amd_usage(assembly: str) -> Row:
    """Vector registers, and how many of them were spilled, from the notes in the assembly."""
    counts = {
        name: max(map(int, re.findall(rf"\.{name}:\s+(\d+)", assembly)), default=0)
        for name in ("vgpr_count", "vgpr_spill_count")
    }
    return {"registers": counts["vgpr_count"], "spilled": counts["vgpr_spill_count"]}


def main() -> None:
    """Compile for one target."""
    description = "What the compiler makes of every kernel, without a GPU."
    parser = argparse.ArgumentParser(prog="python -m kernels.compilation", description=description)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("parts", nargs="*", metavar="PART", help="part of an example's name (default: all examples)")
    arguments = parser.parse_args()
    print(json.dumps(compile_for(arguments.target, arguments.parts)))
