"""Every kernel compiled for GPUs that are not here: registers, spills, shared memory, tensor cores.

    python tests/support/kernels/compilation.py cuda:90 [PART OF AN EXAMPLE'S NAME ...]   a row for each kernel, as JSON

Each target takes a process of its own, without Triton's interpreter.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels.proof.pretending import TARGETS, pretending

TENSOR_INSTRUCTIONS = ("wgmma", "tcgen05.mma", "mma.sync", "v_mfma", "v_wmma")

WATCHED = ("HGMMA", "WARPGROUP.DEPBAR", "MUFU.EX2", "FFMA", "SHFL")
"""Instructions of Hopper's loops that are counted: a product of a group of warps, a wait for such, exp2, a · b + c, and
a number handed to another thread."""

Row = dict[str, Any]


def compile_in_a_process(target: str, *parts: str, packages: str = "") -> list[Row]:
    """The rows of one target; `packages` is a folder whose Triton is taken before the one that is installed."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    root = str(Path(__file__).parents[3])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [packages, root, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, __file__, target, *parts]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"compiling for {target} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def compile_for(target: str, parts: Sequence[str] = ()) -> list[Row]:
    """The rows of one target, of all examples or of those whose names hold one of `parts`.

    To be called in a process of its own, without the interpreter.
    """
    from examples import examples  # beside this script

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
    """Return the output of one of NVIDIA's tools, which Triton brings along, for machine code."""
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
    """Count a loop's exponentials that are computed after a product was issued and before the first wait for one."""
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
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("parts", nargs="*", metavar="PART", help="part of an example's name (default: all examples)")
    arguments = parser.parse_args()
    print(json.dumps(compile_for(arguments.target, arguments.parts)))


if __name__ == "__main__":
    main()
