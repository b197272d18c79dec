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

LAUNCHED = """
import json, sys
from dataclasses import replace
from pathlib import Path
import torch
from triton import knobs
from kernels.attention import host
import ahead, measured
from timing import Machine

class Here(Machine):
    "The same in host memory: as on a GPU, tensors lie somewhere."
    dtype = torch.bfloat16

found = []
knobs.compilation.listener = lambda *, src, cache_hit, **rest: found.append((src.fn.__name__, cache_hit))
sections, claims, lane = sys.argv[1].split(), Path(sys.argv[2]), sys.argv[4]
claims.mkdir(exist_ok=True)
measured.KERNELS = dict.fromkeys(sys.argv[3].split())
host.TUNED_FROM = 1
hopper = replace(ahead.HOPPER, smoke=True, dtypes=(torch.bfloat16,))
if lane != "later":
    print(json.dumps(*ahead.compile_ahead(hopper, sections, claims, int(lane), 2)))
else:
    checks, ceilings = measured.checks, {"matmul_tflops": 1.0, "copy_gbs": 1.0}
    machine = Here(**vars(hopper) | {"device": "cpu", "ceilings": ceilings})
    checks.check = lambda op, dtype, device, some: [checks.launched(op, case, dtype, device) for case in some]
    with ahead.compiling(machine, claims):
        knobs.runtime.jit_cache_hook = None
        for launch in ahead.launches(machine, sections):
            launch()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_who_starts_processes_asks_for_no_gpu():
    """In a copy of a process that has, none would work: nothing that is imported does, nor the lists of tasks."""
    program = (
        "import torch\n"
        "def never(*arguments): raise AssertionError('the GPU was asked')\n"
        "for name in ('_lazy_init', 'init', 'is_available', 'device_count', 'current_device'):\n"
        "    setattr(torch.cuda, name, never)\n"
        "import lease, measured\n"
        "from timing import Machine\n"
        "machine = Machine('cuda', smoke=False, dtypes=(torch.bfloat16,))\n"
        "for tasks in measured.TASKS.values(): list(tasks(machine))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


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
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(lane: str) -> subprocess.Popen:
        command = [sys.executable, "-c", LAUNCHED, sections, str(tmp_path / "claims"), "relu adam", lane]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=HERE.parents[1])

    compiled = 0
    for process in [run("0"), run("1")]:
        said, _ = process.communicate()
        assert process.returncode == 0
        compiled += int(said.splitlines()[0])
    assert compiled == len(list((tmp_path / "claims").iterdir())) > 0
    said, _ = run("later").communicate()
    later = json.loads(said)
    assert len(later) >= compiled
    assert [name for name, hit in later if not hit] == []
