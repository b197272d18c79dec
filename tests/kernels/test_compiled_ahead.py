"""Compiling ahead: by many processes, each kernel once, and where the launches look for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_supervisor import HERE

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")

sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "gpu"))

import supervisor

LAUNCHED = """
import json, sys
from pathlib import Path
import torch
from triton import knobs
from kernels.attention import host
import ahead, measured
from timing import Machine

class Here(ahead.Shapes):
    "The same in host memory: as on a GPU, tensors lie somewhere."
    ops, dtype = Machine.ops, torch.bfloat16

found = []
knobs.compilation.listener = lambda *, src, cache_hit, **rest: found.append((src.fn.__name__, cache_hit))
gpu = json.loads(sys.argv[1])
sections, claims = sys.argv[2].split(), Path(sys.argv[3])
claims.mkdir(exist_ok=True)
measured.KERNELS = dict.fromkeys(sys.argv[4].split())
host.TUNED_FROM = 1
if sys.argv[5] == "ahead":
    machine = ahead.Shapes("meta", True, **gpu)
    print(json.dumps([ahead.compile_ahead(machine, sections, claims), len(list(ahead.launches(machine, sections)))]))
else:
    machine, checks = Here("cpu", True, **gpu), measured.checks
    checks.check = lambda op, dtype, device, *chosen: [
        checks.launched(op, case, dtype, device) for case in checks.chosen(op, dtype, *chosen)
    ]
    with ahead.compiling(machine, claims):
        knobs.runtime.jit_cache_hook = None
        for launch in ahead.launches(machine, sections):
            launch()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_nothing_that_is_imported_beforehand_asks_for_a_gpu():
    """In a process that was copied from one that has, none would work."""
    program = (
        "import importlib, torch\n"
        "def never(*arguments): raise AssertionError('the GPU was asked')\n"
        "for name in ('_lazy_init', 'init', 'is_available', 'device_count', 'current_device'):\n"
        "    setattr(torch.cuda, name, never)\n"
        "from supervisor import PRELOADED\n"
        "for module in PRELOADED: importlib.import_module(module)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=HERE.parents[1])
    assert supervisor.PRELOADED


KEYS = """
import importlib, json, os, pkgutil
import kernels
from triton.runtime.jit import JITFunction

names = [module.name for module in pkgutil.walk_packages(kernels.__path__, "kernels.")]
names = [name for name in names if not name.startswith("kernels.patching")]
functions = {
    f"{function.module}.{function.__name__}": function
    for name in names for function in vars(importlib.import_module(name)).values() if isinstance(function, JITFunction)
}
child = os.fork() == 0
if not child:
    os.wait()
print(json.dumps({name: functions[name].cache_key for name in sorted(functions, reverse=child)}))
"""


def test_a_kernels_name_in_the_cache_does_not_depend_on_which_was_compiled_first():
    """Triton names a kernel by its globals too, but forgets those of a function that it has not seen before."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    said = subprocess.check_output([sys.executable, "-c", KEYS], env=environment, cwd=HERE.parents[1])
    reverse, forward = map(json.loads, said.splitlines())
    assert len(forward) > 100
    assert {name for name in forward if forward[name] != reverse[name]} == set()


@pytest.mark.slow
@pytest.mark.parametrize("sections", ["checks", "attention", "rows", "swap"])
def test_a_launch_finds_what_was_compiled_ahead(tmp_path, sections):
    """Two processes share the work; then no kernel that is launched on real memory needs compiling."""
    hopper = {
        "target": "cuda:90", "warp_size": 32, "shared_memory": 227 * 1024, "processors": 132, "names": ["bfloat16"]
    }  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(how: str) -> subprocess.Popen:
        command = [sys.executable, "-c", LAUNCHED, json.dumps(hopper), sections, str(tmp_path / how), "relu adam", how]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=HERE.parents[1])

    compiled = 0
    for process in [run("ahead"), run("ahead")]:
        said, _ = process.communicate()
        assert process.returncode == 0
        mine, launches = json.loads(said.splitlines()[0])
        compiled += mine
    assert compiled == len(list((tmp_path / "ahead").iterdir())) - launches > 0  # those were claimed too
    said, _ = run("later").communicate()
    later = json.loads(said)
    assert len(later) >= compiled
    assert [name for name, hit in later if not hit] == []
