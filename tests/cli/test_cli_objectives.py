"""`train --objective`: language models go on with rewards and with preferences, from the command line."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from support.cli_runs import Command, refuse
from support.word_models import word_llama

from minitransformer import GPT, Generator, GPTConfig, pretrained
from minitransformer.cli.objectives import policy_of, read_pairs
from minitransformer.data import BPETokenizer
from minitransformer.training import read_log
from minitransformer.training.checkpoint import load_checkpoint, save_checkpoint

REWARDS = """
def dogs(texts):
    return [text.count("dog") / max(1, len(text.split())) for text in texts]

def short(texts):
    return [1.0]

def broken(texts):
    return [1 / 0 for _ in texts]
"""
BRIEFLY = "--threads 1 --seed 3 --warmup-steps 1 --valid-interval 2 --checkpoint-interval 2".split()
DRAW = ["--tokens-per-batch", "256", "--max-tokens", "7", "--group", "4"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Llama of `transformers`, rewards, prompts and pairs."""
    home = tmp_path_factory.mktemp("objectives")
    torch.manual_seed(0)
    word_llama(home / "llama")
    (home / "rewards.py").write_text(REWARDS)
    (home / "prompts.txt").write_text("The dog sees\n\nThe cat\n")
    pairs = [f"The {a} sees the dog.\tThe {a} sees the {b}." for a in ("cat", "horse", "bird") for b in ("cat", "bird")]
    (home / "pairs.tsv").write_text("\n".join(pairs * 4) + "\n\nThe dog\t sees.\t likes.\n")
    return home


def test_rewards_from_the_command_line(command: Command, home: Path, tmp_path: Path) -> None:
    run = ["train", "--from", home / "llama", "--objective", "grpo", "--reward", f"{home / 'rewards.py'}:dogs"]
    run += ["--prompts", home / "prompts.txt", *DRAW, *BRIEFLY, "--peak-lr", "0.03"]
    status, out, err = command(*run, "--steps", "8", "--out", tmp_path / "whole")
    assert status == 0, err
    assert "2 prompts, 8 steps" in out
    assert "reward" in err
    records = read_log(tmp_path / "whole" / "log.jsonl")
    assert {"reward", "kl", "entropy", "length", "distinct", "validation_reward"} <= records[7].keys()
    assert records[0]["kl"] == 0 < records[7]["kl"]
    # stopped and resumed, it ends with the same bits
    assert command(*run, "--steps", "4", "--out", tmp_path / "parts")[0] == 0
    assert command("train", "--resume", tmp_path / "parts", "--steps", "8")[0] == 0
    whole, parts = (load_checkpoint(tmp_path / name / "step-00000008.safetensors") for name in ("whole", "parts"))
    assert all((whole.parameters[name] == parts.parameters[name]).all() for name in whole.parameters)
    # what it made is read by `transformers`, and is what the checkpoint holds
    model, _ = pretrained.load(tmp_path / "whole" / "model")
    assert all((whole.parameters[name] == array).all() for name, array in model.parameters.state_dict().items())
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "model")
    assert command("generate", tmp_path / "whole" / "step-00000008.safetensors", "The dog", "--max-tokens", "3")[0] == 0


def test_preferences_from_the_command_line(command: Command, home: Path, tmp_path: Path) -> None:
    run = ["train", "--from", home / "llama", "--objective", "dpo", "--pairs", home / "pairs.tsv", *BRIEFLY]
    run += ["--lora", "2", "--beta", "0.5", "--peak-lr", "0.2", "--steps", "6", "--out", tmp_path / "run"]
    status, out, err = command(*run)
    assert status == 0, err
    assert "24 training pairs, 6 steps" in out
    records = read_log(tmp_path / "run" / "log.jsonl")
    assert records[0]["loss"] == pytest.approx(0.6931, abs=1e-4)
    assert records[5]["validation_loss"] < records[1]["validation_loss"] < 0.6931
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").exists()
    assert command("train", "--resume", tmp_path / "run", "--steps", "8")[0] == 0


def test_the_grammar_judges(command: Command, home: Path, tmp_path: Path) -> None:
    run = ["train", "--from", home / "llama", "--objective", "reinforce", "--reward", "grammar", *DRAW, *BRIEFLY]
    status, out, err = command(*run, "--steps", "2", "--out", tmp_path / "run")
    assert status == 0, err
    assert "1 prompt, 2 steps" in out
    assert read_log(tmp_path / "run" / "log.jsonl")[1]["reward"] == 0


def test_options_that_do_not_go_together(command: Command, home: Path, tmp_path: Path) -> None:
    llama, file = ["--from", home / "llama"], home / "rewards.py"
    grpo, dpo = ["--objective", "grpo"], ["--objective", "dpo"]
    (tmp_path / "bad.py").write_text("import nothing_of_that_name")
    (tmp_path / "one.tsv").write_text("a better text\n")
    (tmp_path / "few.tsv").write_text("The dog.\tThe cat.\n")
    (tmp_path / "blank").write_text("\n \n")
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    (tmp_path / "long").write_text("The dog\n" + "dog " * 70)
    (tmp_path / "equal.tsv").write_text("a\ta\n")
    for arguments, says in (
        (["--reward", "grammar"], "--reward goes with --objective"),
        (["--group", "4"], "--group goes with --objective"),
        ([*grpo, "--reward", "grammar"], "--objective goes with --from MODEL"),
        ([*llama, *grpo], "--objective grpo needs --reward, grammar or FILE.py:FUNCTION"),
        ([*llama, *dpo], "--objective dpo needs --pairs FILE"),
        ([*llama, *dpo, "--pairs", file, "--kl", "0.1"], "--kl does not go with --objective dpo"),
        ([*llama, *grpo, "--reward", "grammar", "--beta", "1"], "--beta does not go with --objective grpo"),
        ([*llama, *grpo, "--reward", "grammar", "--text", file], "--text does not go with --objective"),
        ([*llama, *grpo, "--reward", "grammar", "--group", "1"], "group is 1, expected 2 to 4096"),
        ([*llama, *grpo, "--reward", "grammar", "--clip", "2"], "clip is 2.0, expected a finite number above 0 and at"),
        ([*llama, *grpo, "--reward", "beauty"], "--reward is 'beauty', expected grammar or FILE.py:FUNCTION"),
        ([*llama, *grpo, "--reward", f"{file}:cats"], "has no function 'cats'"),
        ([*llama, *grpo, "--reward", f"{tmp_path / 'no.py'}:cats"], "no.py"),
        ([*llama, *grpo, "--reward", f"{tmp_path / 'bad.py'}:cats"], "bad.py fails: ModuleNotFoundError"),
        ([*llama, *grpo, *DRAW, "--reward", f"{file}:broken"], "broken fails: ZeroDivisionError: division by zero"),
        (
            [*llama, *grpo, *DRAW, "--reward", f"{file}:short"],
            "the reward returned [1.0], expected 32 numbers up to 1e+30, one a text",
        ),
        ([*llama, *grpo, "--reward", "grammar", "--prompts", tmp_path / "blank"], "holds no prompt"),
        ([*llama, *grpo, "--reward", "grammar", "--updates", "3", "--steps", "4"], "steps is 4, expected a multiple"),
        ([*llama, *grpo, "--reward", "grammar", "--label-smoothing", "0.1"], "label_smoothing is 0.1, expected 0"),
        ([*llama, *grpo, "--reward", f"{tmp_path / 'exits.py'}:a"], "exits.py fails: SystemExit: 0"),
        (
            [*llama, *grpo, "--reward", "grammar", "--prompts", tmp_path / "long"],
            "long, line 2: a prompt has 71 tokens",
        ),
        ([*llama, *dpo, "--pairs", tmp_path / "equal.tsv"], "equal.tsv, line 1: the two texts are equal"),
        ([*llama, *dpo, "--pairs", tmp_path / "one.tsv"], "one.tsv, line 1: expected a better text, a tab and a worse"),
        ([*llama, *dpo, "--pairs", tmp_path / "few.tsv"], "few.tsv has 1 pair, expected 20 or more"),
    ):
        refuse(command, "train", *arguments, "--out", tmp_path / "run", says=says)
        writes = "the reward returned" in says or "broken fails" in says
        assert (tmp_path / "run").exists() == writes
        shutil.rmtree(tmp_path / "run", ignore_errors=True)


def test_a_resumed_training_needs_the_model_at_the_start(command: Command, home: Path, tmp_path: Path) -> None:
    run = ["train", "--from", home / "llama", "--objective", "grpo", "--reward", "grammar", *DRAW, *BRIEFLY]
    assert command(*run, "--steps", "2", "--out", tmp_path / "run")[0] == 0
    refuse(command, *run, "--out", tmp_path / "run", says="already holds a training")
    for options in (["--reward", "grammar"], ["--objective", "dpo"], ["--kl", "0.3"], ["--beta", "1"]):
        says = f"{options[0]} does not go with --resume: a training keeps its objective"
        refuse(command, "train", "--resume", tmp_path / "run", *options, says=says)
    checkpoint = load_checkpoint(tmp_path / "run" / "step-00000002.safetensors")
    shutil.copytree(tmp_path / "run", tmp_path / "without")
    (tmp_path / "without" / "start.safetensors").unlink()
    refuse(command, "train", "--resume", tmp_path / "without", "--steps", "4", says="start.safetensors")
    for other, says in ((3, "was trained with another reference"), (None, "holds a model of kind 'transformer'")):
        reference = load_checkpoint(tmp_path / "run" / "start.safetensors")
        if other is None:
            reference = load_checkpoint("lessons/weights/en-de.safetensors")
        else:
            reference.parameters["tokens.table"][0] += other
        save_checkpoint(tmp_path / "without" / "start.safetensors", reference)
        refuse(command, "train", "--resume", tmp_path / "without", "--steps", "4", says=says)
    for objective, says in (({"kind": "grpo"}, "unknown configuration fields: kind"), ([1], "expected an object")):
        checkpoint.state["objective"] = objective
        save_checkpoint(tmp_path / "without" / "step-00000002.safetensors", checkpoint)
        refuse(command, "train", "--resume", tmp_path / "without", "--steps", "4", says=says)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "start.safetensors").write_text("mine")
    refuse(command, *run, "--out", tmp_path / "other", says="start.safetensors is not the start of such a training")
    assert (tmp_path / "other" / "start.safetensors").read_text() == "mine"
    own = tmp_path / "other" / "start.safetensors"
    shutil.copy(tmp_path / "run" / "step-00000002.safetensors", own)
    refuse(command, *run, "--out", tmp_path / "other", says="start.safetensors is not the start of such a training")
    run[2] = own
    refuse(command, *run, "--out", tmp_path / "other", says="would replace what is read")


def test_what_is_trained_is_what_is_drawn(home: Path, tmp_path: Path) -> None:
    """The policy has no dropout, and each text of a pair ends with its mark, after what both begin with."""
    model = GPT(GPTConfig(300, d_model=8, num_heads=2, d_ff=8, num_layers=1, max_length=32, dropout=0.3, eos_id=2))
    config = policy_of(model, "m").config
    assert (config.dropout, config.attention_dropout) == (0, 0)
    np.testing.assert_array_equal(policy_of(model, "m").parameters.data, model.parameters.data)
    writer = Generator(*pretrained.load(home / "llama"))
    (tmp_path / "pairs").write_text("The\t dog.\t cat.\nThe dog\tThe cat\n")
    encode = writer.tokenizer.encode
    begin = writer.encode("")
    assert read_pairs(str(tmp_path / "pairs"), writer) == [
        ([*begin, *encode("The")], [*encode("dog."), 2], [*encode("cat."), 2]),
        ([*begin], [*encode("The dog"), 2], [*encode("The cat"), 2]),
    ]
    ours = BPETokenizer.train(["a dog", "a cat"] * 9, 270)  # no mark begins a text: </s> does
    own = Generator(GPT(replace(model.config, vocab_size=ours.vocab_size, bos_id=2)), ours)
    (tmp_path / "own").write_text("a dog\tdog a\na\t dog\t cat\n")
    assert read_pairs(str(tmp_path / "own"), own) == [
        ([2], [*ours.encode("a dog"), 2], [*ours.encode("dog a"), 2]),
        (ours.encode("a"), [*ours.encode("dog"), 2], [*ours.encode("cat"), 2]),
    ]
