"""The races on a CPU: `python tests/benchmarks [RACE ...]`, or `make bench-cpu` for all of them.

    training       a training step without padding, against PyTorch eager, with fused Adam, compiled
    steps          the same without threads of our own, and without keeping freed memory
    tricks         the same with each op as printed that is made faster, in one process
    ragged         the same on real batches of Multi30k
    translation    greedy and beam search, against PyTorch with a cache and Hugging Face `generate`
    engine         sentences and files of them with the same weights, against CTranslate2
    tokenization   learning and encoding byte pairs, against `tokenizers` and subword-nmt
    growth         time and memory against length, width, layers, batch and vocabulary
    memory         whether a long training grows it
    language       `train --kind gpt` on Multi30k's English, all of it and by turns, against PyTorch
    continuation   GPT-2 of 124 million parameters continues a text, and reads one, against Hugging Face `generate`
    processes      a training step that processes share, against threads of one; what they send each other
    imports        seconds that `import minitransformer` takes beyond NumPy's

Each writes `results/RACE.json`; then the pictures beside them and the tables of `README.md` are made from these files.
Leave the machine alone meanwhile: on two busy cores the contestants that share work among threads lose most.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import engine_jobs
import report
import results
from race import Job, Result, race
from steps import SHAPES, STEPS, TRICKS, compare
from workloads import (
    FULL_BATCHES,
    NUM_RAGGED_BATCHES,
    TARGET_TOKENS,
    TRANSLATION_SHAPE,
    configuration,
    ragged_batches,
    real_text,
    save_batches,
)

from minitransformer.cli.recipes import RECIPES
from minitransformer.data.preparation import TextChoice, prepare
from minitransformer.decoding import Translator
from minitransformer.grammar.generation import sample
from minitransformer.models import GPT, GPTConfig
from minitransformer.pretrained import save

DROPOUTS = (0.0, 0.1)
LANGUAGE_STEPS = 1000
ENGINE_STEPS, ENGINE_SENTENCES = 500, (1, 500, 1000)
PEERS: dict[str, dict[str, Any]] = {
    "PyTorch eager": {},
    "PyTorch fused Adam": {"fused": True},
    "PyTorch fused Adam, memory kept": {"fused": True, "keeps_memory": True},
    "PyTorch compile, fused Adam": {"compiled": True, "fused": True},
}
REHEARSAL = {"shape": "XS", "dropout": 0.1}
Race = dict[str, Any]


def training(arguments: argparse.Namespace) -> Iterator[Race]:
    """S, M and B, with and without dropout."""
    for shape in ("S", "M", "B"):
        sentences, length = FULL_BATCHES[shape]
        for dropout in DROPOUTS:
            common = {"shape": shape, "dropout": dropout}
            jobs = {"ours": Job("numpy_jobs", "training", common, rehearsal=REHEARSAL)}
            for name, options in PEERS.items():
                rehearsal = REHEARSAL if name == "PyTorch eager" else None
                jobs[name] = Job("torch_jobs", "training", common | options, rehearsal=rehearsal)
            found = race(jobs, arguments.rounds, arguments.threads, _same_losses)
            yield common | {"sentences": sentences, "tokens": 2 * sentences * length} | _contestants(found)


def tricks(arguments: argparse.Namespace) -> Iterator[Race]:
    """A training step with each op that is not its formula as printed, against the formula. One thread."""
    for shape in SHAPES:
        for trick in TRICKS:
            yield {"op": trick.op, "shape": shape, "threads": 1, "contestants": compare(trick.op, shape)}


def steps(arguments: argparse.Namespace) -> Iterator[Race]:
    """A training step of S and of M without each of the steps towards speed; greedy search with BLAS's threads."""
    for shape in ("S", "M"):
        common = {"shape": shape, "dropout": 0.0}
        names = ["nothing", *(step.name for step in STEPS)]
        jobs = {name: Job("numpy_jobs", "training", common | {"undone": name}) for name in names}
        found = race(jobs, arguments.rounds, arguments.threads, _same_losses)
        yield common | _contestants({"ours": found.pop("nothing")} | found)
    for busy in (False, True):
        for sentences in (1, 64):
            common = {"num_sentences": sentences, "num_beams": 1}
            jobs = {
                "ours": Job("numpy_jobs", "translation", common),
                "BLAS threads": Job("numpy_jobs", "translation", common | {"blas_threads": True}),
            }
            with _busy_core() if busy else nullcontext():
                found = race(jobs, arguments.rounds, arguments.threads)
            yield {"sentences": sentences, "busy": busy} | _contestants(found)


def ragged(arguments: argparse.Namespace) -> Iterator[Race]:
    """Batches of Multi30k, as the trainer makes them."""
    batches = ragged_batches(real_text(arguments.data))
    sizes = {
        "sentences": sum(batch.num_sentences for batch in batches),
        "tokens": sum(batch.num_source_tokens + batch.num_target_tokens for batch in batches),
    }
    padded = sum(batch.source.size + batch.target_in.size for batch in batches)
    with tempfile.TemporaryDirectory() as folder:
        token_file = Path(folder) / "batches.npz"
        save_batches(token_file, batches)
        for shape in ("tiny", "M"):
            common = {"shape": shape, "dropout": 0.1}
            options = common | {"token_file": str(token_file)}
            jobs = {"ours": Job("numpy_jobs", "training", options, warm_up=1)}
            for name in ("PyTorch eager", "PyTorch fused Adam, memory kept"):
                jobs[name] = Job("torch_jobs", "training", options | PEERS[name], warm_up=1)
            found = race(jobs, arguments.rounds, arguments.threads, _same_losses)
            yield common | sizes | {"padding": 1 - sizes["tokens"] / padded} | _contestants(found)


def translation(arguments: argparse.Namespace) -> Iterator[Race]:
    """One sentence and 64, greedy and with four beams; greedy also beside a process that keeps a core busy."""
    peers = {"PyTorch with a cache": "torch_jobs", "Hugging Face": "huggingface_jobs"}
    for busy, beams in ((False, 1), (False, 4), (True, 1)):
        for sentences in (1, 64):
            common = {"num_sentences": sentences, "num_beams": beams}
            jobs = {"ours": Job("numpy_jobs", "translation", common)}
            for name, module in peers.items():
                jobs[name] = Job(module, "translation", common)
                jobs[f"{name}, 1 thread"] = Job(module, "translation", common | {"torch_threads": 1})
            with _busy_core() if busy else nullcontext():
                found = race(jobs, arguments.rounds, arguments.threads, _same_translations)
            yield {"sentences": sentences, "beams": beams, "busy": busy} | _contestants(found)


def engine(arguments: argparse.Namespace) -> Iterator[Race]:
    """The course's translator, and one of the preset `tiny` that learns Multi30k first: 1, 500 and 1,000 sentences.

    Only sentences that both translate alike are raced over: where the young model repeats itself, ours goes on for 50
    tokens more than the source has, and CTranslate2 for 100 in all.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained = folder / "trained"
        data = ["--data", os.path.realpath(arguments.data)] if arguments.data else ["--dataset", "multi30k"]
        size = ["--preset", "tiny", "--steps", str(ENGINE_STEPS), "--threads", str(arguments.threads)]
        command = [sys.executable, "-m", "minitransformer", "train", *data, *size, "--out", str(trained)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        test = real_text(arguments.data).test
        captions = [source for source, _ in test.read()] if test else []
        grammar = [example.english for example in islice(sample("test", seed=5), max(ENGINE_SENTENCES))]
        models = {
            "the course's": (Path("lessons/weights/en-de.safetensors"), grammar),
            "tiny": (trained / f"step-{ENGINE_STEPS:08}.safetensors", captions),
        }
        for model, (checkpoint, sentences) in models.items():
            translator = Translator.from_checkpoint(checkpoint)
            converted = engine_jobs.convert(translator, folder / model)
            theirs = engine_jobs.engine(translator, converted, workers=1, threads=1)
            for beam in (1, 4):
                both = zip(translator.translate(sentences, beam=beam), theirs(sentences, beam), strict=True)
                alike = [sentence for sentence, (a, b) in zip(sentences, both, strict=True) if a == b]
                for count in ENGINE_SENTENCES:
                    few = alike[:count]
                    text = folder / "text.json"
                    text.write_text(json.dumps(few))
                    common = {"checkpoint": str(checkpoint), "text": str(text), "beam": beam}
                    jobs = {"ours": Job("engine_jobs", "numpy_sentences", common)}
                    for workers in {1, arguments.threads}:
                        options = common | {"converted": str(converted), "workers": workers}
                        jobs[f"CTranslate2, {workers} × {arguments.threads // workers}"] = Job(
                            "engine_jobs", "engine_sentences", options
                        )
                    found = race(jobs, arguments.rounds, arguments.threads, _same_text)
                    where = engine_jobs.profile(str(checkpoint), few, beam) if count == max(ENGINE_SENTENCES) else None
                    about = {"model": model, "sentences": len(few), "beams": beam, "profile": where}
                    yield about | _contestants(found)


def tokenization(arguments: argparse.Namespace) -> Iterator[Race]:
    """Multi30k's English and German training captions."""
    lines = [line for pair in real_text(arguments.data).train.read() for line in pair]
    with _text_file(lines) as text:
        for encode in (None, "unseen", "cached"):
            common = {"text": str(text), "encode": encode}
            jobs = {
                name: Job("tokenizer_jobs", function, common, warm_up=1)
                for name, function in (
                    ("ours", "minitransformer"), ("tokenizers", "tokenizers"), ("subword-nmt", "subword_nmt")
                )
            }  # fmt: skip
            found = race(jobs, arguments.rounds, arguments.threads)
            size = {"lines": len(lines), "megabytes": text.stat().st_size / 1e6}
            yield {"encode": encode} | size | _contestants(found)


def growth(arguments: argparse.Namespace) -> Iterator[Race]:
    """One size at a time around a small model; attention alone with and without a window. One thread."""
    base = {
        "sentences": 8, "length": 64, "vocab_size": 1000, "d_model": 128, "num_heads": 4, "d_ff": 512, "num_layers": 2
    }  # fmt: skip
    sweeps: dict[str, list[dict[str, int]]] = {
        "length": [{"length": length, "sentences": 1} for length in (64, 128, 256, 512, 1024, 2048)],
        "d_model": [{"d_model": width, "d_ff": 4 * width} for width in (64, 128, 256, 512, 1024)],
        "num_layers": [{"num_layers": layers} for layers in (1, 2, 4, 8, 16)],
        "sentences": [{"sentences": sentences} for sentences in (2, 4, 8, 16, 32, 64)],
        "vocab_size": [{"vocab_size": size} for size in (1000, 4000, 16000, 64000)],
    }
    for size, points in sweeps.items():
        for point in points:
            options = base | point
            found = race({"ours": Job("numpy_jobs", "growth", options, warm_up=1)}, 1, threads=1)
            yield {"varies": size, "threads": 1} | options | _contestants(found)
    for window in (None, 32):
        for length in (64, 128, 256, 512, 1024, 2048, 4096):
            options = {"length": length, "window": window}
            found = race({"ours": Job("numpy_jobs", "attention", options, warm_up=1)}, 1, threads=1)
            yield {"varies": "attention", "threads": 1} | options | _contestants(found)


def memory(arguments: argparse.Namespace) -> Iterator[Race]:
    """The memory of a long training, from 6 steps to 1,002: real batches, and the largest shape on its one batch."""
    with tempfile.TemporaryDirectory() as folder:
        token_file = Path(folder) / "batches.npz"
        save_batches(token_file, ragged_batches(real_text(arguments.data)))
        for shape, file, batches in ((TRANSLATION_SHAPE, str(token_file), NUM_RAGGED_BATCHES), ("B", None, 1)):
            for steps in (6, 102, 1002):
                options = {"shape": shape, "dropout": 0.1, "token_file": file}
                job = Job("numpy_jobs", "training", options, warm_up=steps // batches)
                found = race({"ours": job}, 1, arguments.threads)
                yield {"shape": shape, "steps": steps} | _contestants(found)


def language(arguments: argparse.Namespace) -> Iterator[Race]:
    """The recipe of `train --kind gpt` on English captions: bits for a byte in the end, and the time of a step."""
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.realpath(arguments.data) if arguments.data else None
        dataset = None if data else "multi30k"
        size = RECIPES["gpt"].vocab_size
        prepare(Path(folder), TextChoice(dataset=dataset, data=data, vocab_size=size, max_length=sys.maxsize))
        common = {"folder": folder, "steps": LANGUAGE_STEPS}
        jobs = {
            "ours": Job("language_jobs", "numpy_training", common),
            "PyTorch eager": Job("language_jobs", "torch_training", common),
            "PyTorch fused Adam": Job("language_jobs", "torch_training", common | {"fused": True}),
        }
        found = race(jobs, arguments.rounds, arguments.threads, _same_bits)
        bits = {name: result.answer for name, result in found.items()}
        yield {"steps": LANGUAGE_STEPS, "bits_per_byte": bits} | _contestants(found)


def continuation(arguments: argparse.Namespace) -> Iterator[Race]:
    """Equal weights, drawn by chance: 64 tokens after a prompt of 64, then one token after prompts of 64 and 512."""
    with tempfile.TemporaryDirectory() as folder:
        save(GPT(GPTConfig.gpt2(bos_id=None, eos_id=None)), folder)
        for prompt, new in ((64, 64), (64, 1), (512, 1)):
            common = {"folder": folder, "prompt": prompt, "new": new}
            theirs = {"": {}, ", 1 thread": {"torch_threads": 1}}
            jobs = {"ours": Job("continuation_jobs", "numpy_continuation", common, warm_up=1)}
            for name, options in theirs.items():
                jobs[f"Hugging Face{name}"] = Job(
                    "continuation_jobs", "torch_continuation", common | options, warm_up=1
                )
            found = race(jobs, arguments.rounds, arguments.threads, _same_continuations)
            yield {"prompt": prompt, "new": new} | _contestants(found)


def processes(arguments: argparse.Namespace) -> Iterator[Race]:
    """Two processes and two threads; what 1 to 8 processes do; what sending early would hide of a slow link."""
    for shape in ("S", "M"):
        jobs = {
            f"{count} process{'es' * (count > 1)}, {shards or 'no'} shards": Job(
                "process_jobs", "shared_training", {"shape": shape, "processes": count, "shards": shards}
            )
            for count, shards in ((1, None), (1, 2), (1, 8), (2, 2), (2, 8))
        }
        yield {"varies": "who", "shape": shape} | _contestants(race(jobs, arguments.rounds, arguments.threads))
    for shape, computes in (("S", False), ("M", False), ("S", True)):
        for count in (1, 2, 4, 8):
            options = {"shape": shape, "processes": count, "shards": 8, "computes": computes}
            found = race({"ours": Job("process_jobs", "shared_training", options)}, arguments.rounds, threads=1)
            size = configuration(shape).num_parameters
            yield {"varies": "processes", "parameters": size} | options | _contestants(found)
    for shards in (1, 4):
        for speed in (10.0, 40.0, 160.0):
            options = {"shape": "S", "shards": shards, "megabytes_per_second": speed}
            jobs = {
                name: Job("process_jobs", "overlapped", options | {"overlap": overlap})
                for name, overlap in (("after the backward", False), ("beside it", True))
            }
            found = race(jobs, arguments.rounds, threads=1)
            yield {"varies": "link", "part": found["beside it"].answer[0]} | options | _contestants(found)


def imports(arguments: argparse.Namespace) -> Iterator[Race]:
    """In fresh interpreters, the package alone and with what a training or a translation needs."""
    for statement in ("import minitransformer", "from minitransformer import Trainer, Translator"):
        program = f"import time, numpy; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
        seconds = [
            float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
            for _ in range(arguments.rounds)
        ]
        yield {"statement": statement, "contestants": {"ours": {"seconds": seconds}}}


def _contestants(found: dict[str, Result]) -> Race:
    return {"contestants": {name: {k: v for k, v in asdict(r).items() if k != "answer"} for name, r in found.items()}}


def _same_losses(answers: dict[str, Any]) -> None:
    """Before training to 1e-4; after three steps, as Adam's first ones enlarge rounding errors, to 1e-4 of the loss."""
    ours = next(iter(answers.values()))
    for name, losses in answers.items():
        for i, (a, b) in enumerate(zip(ours, losses, strict=True)):
            trained = len(ours) == 2 and i == 1  # a race over one batch without dropout gives both
            if abs(a - b) > (1e-4 * a if trained else 1e-4):
                raise SystemExit(f"the losses differ: ours {ours}, {name} {losses}")


def _same_bits(answers: dict[str, float]) -> None:
    """To one percent: dropout differs."""
    ours = answers["ours"]
    if any(abs(bits - ours) > 0.01 * ours for bits in answers.values()):
        raise SystemExit(f"bits per byte differ by more than one percent: {answers}")


def _same_translations(answers: dict[str, Any]) -> None:
    ours = answers["ours"]
    for name, theirs in answers.items():
        if name.startswith("Hugging Face"):  # other random weights
            if theirs != [len(ours), TARGET_TOKENS]:
                raise SystemExit(f"{name} wrote {theirs}, expected {[len(ours), TARGET_TOKENS]}")
        elif theirs != ours:
            raise SystemExit(f"the translations differ: ours {ours}, {name} {theirs}")


def _same_text(answers: dict[str, list[str]]) -> None:
    """Batches are cut differently here and there, which may turn a close choice: one sentence in 200 may differ."""
    ours = answers["ours"]
    for name, theirs in answers.items():
        different = sum(a != b for a, b in zip(ours, theirs, strict=True))
        if 200 * different > len(ours):
            raise SystemExit(f"{different} of {len(ours)} translations of {name} differ from ours")


def _same_continuations(answers: dict[str, list[int]]) -> None:
    if len(set(map(tuple, answers.values()))) > 1:
        raise SystemExit(f"the continuations differ: {answers}")


@contextmanager
def _busy_core() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _text_file(lines: list[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield path


RACES = {
    each.__name__: each
    for each in (
        training, steps, tricks, ragged, translation, engine, tokenization, growth, memory, language, continuation,
        processes, imports,
    )
}  # fmt: skip


def main() -> None:
    """Runs the races that are asked for, then draws and writes what all results say."""
    parser = argparse.ArgumentParser(
        prog="python tests/benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("races", nargs="*", choices=[*RACES, []], metavar="RACE", help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="of each contestant (default 2)")
    parser.add_argument("--data", metavar="DIR", help="Multi30k's files; without it they are downloaded")
    arguments = parser.parse_args()
    shown = [word for word in sys.argv[1:] if not word.startswith("--data")]
    command = shlex.join(["python", "tests/benchmarks", *(w for w in shown if w != arguments.data)])
    for name in arguments.races or RACES:
        races = []
        for number, found in enumerate(RACES[name](arguments), start=1):
            races.append(found)
            seconds = {who: f"{1000 * min(run['seconds']):.4g} ms" for who, run in found["contestants"].items()}
            print(f"{name} {number}: {seconds}", flush=True)
            results.write(name, command, arguments.threads, races)
    missing = [name for name in RACES if not results.path(name).exists()]
    if missing:
        print(f"no report yet: {', '.join(missing)} still to run")
    else:
        report.main()


if __name__ == "__main__":
    main()
