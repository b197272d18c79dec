"""The cost of a token with few bits, with keys and values in bytes, and with drafts: greedy texts of a language model.

python tests/benchmarks/tokens.py MODEL --draft layers:2 prompt runs/small/step-00000300.safetensors
python tests/benchmarks/tokens.py SmolLM2-135M-Instruct.Q4_1.gguf --prompt "Once upon a time" --tokens 40

All ways take turns, on one thread: a ratio is the median of those within a round, and its brackets are the smallest and
the largest. With a draft a token costs fewer calls of the model, and the draft's own work; what is accepted is counted.
"""

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from minitransformer.cli.backend import NUMPY
from minitransformer.cli.generate import opened_draft
from minitransformer.cli.model_argument import open_model
from minitransformer.decoding import Draft, Generator, Sampling, with_tokenizer
from minitransformer.system.threads import Threads

GREEDY = Sampling(temperature=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--draft", nargs="*", default=["prompt"])
    parser.add_argument("--draft-tokens", type=int, default=4)
    parser.add_argument("--prompt", default="The old")
    parser.add_argument("--tokens", type=int, default=40, help="tokens that each text has at most")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    model: Any
    model, tokenizer, _ = with_tokenizer(args.model, open_model(args.model, NUMPY))
    ways: dict[str, Callable[[], Generator]] = {"float32": lambda: Generator(model, tokenizer)}
    for bits in (8, 4):
        few = model.quantized(bits)
        ways[f"{bits} bits"] = lambda few=few: Generator(few, tokenizer)
    ways["keys and values in bytes"] = lambda: Generator(model, tokenizer, cache_in_bytes=True)
    drafts: dict[str, Draft] = {}
    for name in args.draft:
        chosen = argparse.Namespace(model=args.model, draft=name, draft_tokens=args.draft_tokens)
        drafts[f"draft {name}"] = opened_draft(chosen, model, tokenizer, NUMPY)
        ways[f"draft {name}"] = lambda draft=drafts[f"draft {name}"]: Generator(model, tokenizer, draft)
    times: dict[str, list[float]] = {name: [] for name in ways}
    before = len(ways["float32"]().encode(args.prompt))
    with Threads(1):
        for turn in range(args.rounds + 1):
            for name, made in ways.items():
                generator = made()
                start = perf_counter()
                (text,) = generator.generate(args.prompt, args.tokens, GREEDY)
                seconds = perf_counter() - start
                if turn:  # the first warms up
                    times[name].append(seconds / (len(generator.encode(args.prompt + text)) - before))
    print(f"{'greedy':40}  ms a token  ÷ float32")
    for name, each in times.items():
        ratios = [time / plain for time, plain in zip(each, times["float32"], strict=True)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        counted = drafts.get(name)
        said = f"  {counted.accepted / max(1, counted.proposed):.0%} of what it proposed accepted" if counted else ""
        print(f"{name:40}  {1e3 * statistics.median(each):10.2f}  {ratio}{said}")


if __name__ == "__main__":
    main()
