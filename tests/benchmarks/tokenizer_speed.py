"""How fast the tokenizer learns and encodes Multi30k's 58,000 English and German training captions.

    python tests/benchmarks/tokenizer_speed.py [--data DIR]

Without `--data`, the files are those of `--dataset multi30k`, downloaded where need be.
"""

import argparse
import statistics
import time

from minitransformer.data import BPETokenizer, multi30k

VOCAB_SIZE, ROUNDS = 8000, 5


def main() -> None:
    """Prints the seconds of training and the megabytes of UTF-8 encoded a second, with a warm word cache."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with train.en.gz and train.de.gz")
    folder = parser.parse_args().data
    corpus = multi30k.from_folder(folder, "de") if folder else multi30k.load("de")
    lines = [line for pair in corpus.train.read() for line in pair]
    megabytes = sum(len(line.encode()) for line in lines) / 1e6

    start = time.perf_counter()
    tokenizer = BPETokenizer.train(lines, VOCAB_SIZE)
    print(f"{len(lines):,} lines, {megabytes:.1f} MB: {VOCAB_SIZE:,} tokens in {time.perf_counter() - start:.1f} s")

    speeds = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        for line in lines:
            tokenizer.encode(line)
        speeds.append(megabytes / (time.perf_counter() - start))
    print(f"encoding: {speeds[0]:.1f} MB/s at first, {statistics.median(speeds[1:]):.1f} MB/s with a warm word cache")


if __name__ == "__main__":
    main()
