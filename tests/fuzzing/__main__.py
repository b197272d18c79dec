"""Attacks on the command line: `python tests/fuzzing commands:3000 checkpoints:500`, or `commands:57 --alone` for one.

The exit status is 1 where something did not hold; each such case is printed with the command that repeats it.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

# Before NumPy, PyTorch and Triton are imported.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ.pop("TRITON_INTERPRET", None)
os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder is not looked for on the network
TESTS, ROOT = Path(__file__).parents[1:3]
sys.path[:0] = map(str, (TESTS, ROOT, ROOT / "lessons"))


def main() -> int:
    """Run the attacks; 1 where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="+", metavar="KIND:COUNT", help="commands or checkpoints, and how many")
    parser.add_argument("--alone", action="store_true", help="only the one of that number, and show what it says")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    import checkpoints
    import command_line
    from forked import run_all
    from world import make_world, warm_up

    sources, wrong = {"commands": command_line.attacks, "checkpoints": checkpoints.attacks}, 0
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
        base = Path(folder).resolve()
        os.environ |= {"XDG_CACHE_HOME": str(base / "cache"), "HOME": str(base)}
        make_world(base / "world")
        warm_up()
        for kind, number in (each.split(":") for each in args.kinds):
            first = int(number) if args.alone else 0
            attacks = sources[kind](args.seed, int(number) + args.alone, base / "world")[first:]
            statuses, complaints = Counter[int | None](), 0
            for index, outcome, complaint in run_all(attacks, base / "world", base):
                statuses[outcome.status] += 1
                complaints += complaint is not None
                if complaint or args.alone:
                    print(f"\n{complaint}\n{attacks[index]}\n{outcome.out[-2000:]}\n{outcome.err[-4000:]}")
                    print(f"to repeat it: python tests/fuzzing {kind}:{first + index} --alone --seed {args.seed}")
            ended = ", ".join(f"{count} with {status}" for status, count in statuses.most_common())
            print(f"{len(attacks)} {kind}, {complaints} wrong; they ended {ended}", flush=True)
            wrong += complaints
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
