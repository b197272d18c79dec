"""`python -m kernels.machine` proves every op as machine code, and writes the results to the manifest."""

import argparse
import os
import sys
import time


def main() -> int:
    """Prove the ops that are named, or those whose instructions have changed; return 1 if one fails."""
    os.environ.pop("TRITON_INTERPRET", None)  # before Triton is imported: the interpreter compiles nothing
    from .. import KERNELS
    from ..proof import ledger
    from ..proof.checks import Refused
    from . import proof
    from .execute import ORDERS

    description = "Prove kernels as machine code of a gfx1100, executed on this CPU."
    parser = argparse.ArgumentParser(prog="python -m kernels.machine", description=description)
    parser.add_argument("ops", nargs="*", metavar="OP", help=f"of {', '.join(KERNELS)} (default: what has changed)")
    parser.add_argument("--all", action="store_true", help="every op, changed or not")
    parser.add_argument("--sample", type=int, metavar="N", help="N pairs of an op and a dtype, changed or not")
    parser.add_argument("--order", choices=ORDERS, default="together", help="how waves take turns (default together)")
    parser.add_argument("--check", action="store_true", help="prove nothing: name what has changed; 1 if anything has")
    arguments = parser.parse_args()
    if unknown := [op for op in arguments.ops if op not in KERNELS]:
        parser.error(f"{unknown[0]} is no op with kernels: {', '.join(KERNELS)}")
    manifest, failures = ledger.manifest(), 0
    pairs = [pair for pair in proof.PAIRS if not arguments.ops or pair.op in arguments.ops]
    if arguments.sample is not None:
        pairs = proof.sample(arguments.sample)
    elif arguments.check or not (arguments.all or arguments.ops):
        pairs = list(proof.stale(manifest, pairs))
        if not pairs:
            print("nothing has changed since it was proved as machine code")
    if arguments.check:
        for pair in pairs:
            print(f"not yet proved as machine code: {pair.op}, {pair.dtype}")
        return int(bool(pairs))
    for pair in pairs:
        start = time.perf_counter()
        try:
            found = proof.prove(pair, arguments.order)
        except Refused as refused:
            print(f"{pair.op}: {refused}", file=sys.stderr)
            failures += 1
            continue
        seconds = time.perf_counter() - start
        print(f"{pair.op}, {pair.dtype}: {found['instructions']:,} instructions in {seconds:.1f} s", flush=True)
        before = manifest.get(pair.op, {"dtypes": {}})["dtypes"]
        manifest[pair.op] = proof.entry_of(pair.op, before | {pair.dtype: found})
    if arguments.sample is None and not failures:
        proof.write({op: manifest[op] for op in KERNELS if op in manifest})
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
