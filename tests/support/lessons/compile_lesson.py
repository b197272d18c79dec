"""`python compile_lesson.py FOLDER NUMBER TARGET`: compile a lesson's kernels, solved, for a GPU; no GPU is needed.

To be run in a process of its own, without the interpreter. Prints a line for each kernel and dtype.
"""

import ast
import importlib.util
import sys
from pathlib import Path

import torch

from course.sources import number_of, solved_notebook, sources
from kernels.proof.pretending import pretending

sys.path.append(str(Path(__file__).parents[2]))

from support.kernels.compilation import describe

IMPORTS = "import math\n\nimport numpy as np\nimport torch\nimport triton\nimport triton.language as tl\n\n"
KEPT = ("@triton.jit", "LOWEST =", "LOG2_E =")
CONSTANTS = {"BLOCK": 128, "ROWS": 4, "QUERIES": 32, "KEYS": 16, "D": 64, "TILE": 16, "CAUSAL": True, "MASKED": True}
NUMBERS = {"scale": 0.2, "dscale": 0.1, "eps": 1e-5}
FLOAT32 = ("lse_ptr", "delta_ptr", "mean_ptr", "rstd_ptr", "gamma_ptr", "dgamma_ptr", "dbeta_ptr")
"""What a lesson keeps in float32 whatever its numbers are."""


def write_kernels(number: str, path: Path) -> None:
    """The kernels of a lesson and the constants that they use, as a module: Triton wants their source in a file."""
    notebook = solved_notebook(next(source for source in sources() if number_of(source) == number))
    parts = []
    for cell in (cell.source for cell in notebook.cells if cell.cell_type == "code"):
        for node in ast.parse(cell).body:
            first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
            parts.append("\n".join(cell.split("\n")[first - 1 : node.end_lineno]))
    path.write_text(IMPORTS + "\n\n".join(part for part in parts if part.startswith(KEPT)), encoding="utf-8")


def value_of(argument: str, dtype: torch.dtype):
    """Anything of the right kind: what is compiled is never run."""
    if argument.endswith("_ptr"):
        dtype = torch.int32 if argument == "stop_ptr" else torch.float32 if argument in FLOAT32 else dtype
        return torch.empty(8, dtype=dtype)
    return NUMBERS.get(argument, 70)


def main(folder: str, number: str, target: str) -> None:
    path = Path(folder) / f"kernels_of_{number}.py"
    write_kernels(number, path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pretending(target) as launches:
        for name, kernel in list(vars(module).items()):
            if not name.endswith("_kernel"):
                continue
            for dtype in (torch.float32, torch.float16):
                constants = {argument: CONSTANTS[argument] for argument in kernel.arg_names if argument in CONSTANTS}
                rest = [value_of(argument, dtype) for argument in kernel.arg_names if argument not in CONSTANTS]
                launches.clear()
                kernel[(2, 2)](*rest, **constants)
                found = describe(*launches[0])
                print(name, dtype, found["spilled"], found["shared"])


if __name__ == "__main__":
    main(*sys.argv[1:])
