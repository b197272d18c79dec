"""The trainer: what a step computes, what is told, and that neither threads nor accumulation change the result."""

import math
import re
import signal
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.blas import blas_threads
from support.toy_training import SETTINGS, TOKENIZER, backwards, toy_model, toy_trainer
from threadpoolctl import threadpool_limits

from minitransformer.data.batching import collate
from minitransformer.data.token_dataset import Batches, TokenDataset
from minitransformer.layers import DropoutStream
from minitransformer.training import DataParallel, TrainingDiverged, read_log
from minitransformer.training.checkpoint import list_checkpoints, load_checkpoint
from minitransformer.training.optimizer import Adam, noam
from minitransformer.training.terminal import stop_request


def trained(threads, accumulate=2, steps=6, **options):
    model = toy_model("float64")
    settings = replace(SETTINGS, threads=threads, accumulate=accumulate, steps=steps, **options)
    toy_trainer(None, settings, model=model).train()
    return model.parameters.data


def difference(a, b):
    return np.abs(a - b).max() / max(1, np.abs(b).max())


def test_threads_agree_up_to_rounding_and_each_repeats_exactly():
    """With dropout on: the masks do not depend on how a batch is split."""
    one, two, five = trained(1), trained(2), trained(5)
    assert difference(two, one) <= 1e-10
    assert difference(five, one) <= 1e-10
    assert difference(one, toy_model("float64").parameters.data) > 1e-3  # something was learnt
    np.testing.assert_array_equal(two, trained(2))
    np.testing.assert_array_equal(five, trained(5))


@pytest.mark.parametrize("threads", [1, 2])
def test_accumulated_batches_give_what_one_large_batch_gives(threads):
    """Losses weighted by their targets, and sentences numbered through: 3 ragged batches, all in one, and the model."""
    dataset = backwards(40, seed=3)
    sources, targets = zip(*(dataset[i] for i in range(40)), strict=True)
    batches = [collate(sources[i:j], targets[i:j]) for i, j in ((0, 5), (5, 33), (33, 40))]
    whole = collate(sources, targets)
    gradients, losses = [], []
    for step_batches in (batches, [whole]):
        model = toy_model("float64")
        with DataParallel(model, threads) as workers:
            losses.append(workers.gradients(step_batches, label_smoothing=0.1, seed=4, step=9))
        gradients.append(model.parameters.grad.copy())
    loss, _ = toy_model("float64").loss(*whole.inputs, label_smoothing=0.1, dropout=DropoutStream(4, 9))
    assert losses == [pytest.approx(float(loss), rel=1e-12)] * 2
    assert difference(*gradients) <= 1e-12


@pytest.mark.parametrize("threads", [1, 2])
def test_blas_has_one_thread_in_a_training_and_what_it_had_after_it(monkeypatch, threads):
    seen = []
    with threadpool_limits(2):
        trainer = toy_trainer(None, replace(SETTINGS, threads=threads))
        for owner, name in ((trainer.optimizer, "grad_norm"), (trainer.model, "loss")):
            call = getattr(owner, name)
            monkeypatch.setattr(owner, name, lambda *a, call=call, **o: seen.append(blas_threads()) or call(*a, **o))
        trainer.train()
        assert blas_threads() == {2}
    assert len(seen) > 3 * SETTINGS.steps  # a norm and two batches a step, and the validations
    assert all(each == {1} for each in seen)


def test_the_trainer_s_first_step_by_hand():
    """Batch (0, 0), its smoothed loss under the dropout of (seed, step 1), its gradient, Adam at eq. 3's rate.

    Gradients that were left over from before play no part.
    """
    settings = replace(SETTINGS, steps=1, accumulate=1, threads=1, peak_lr=None, clip_norm=None, label_smoothing=0.2)
    trainer = toy_trainer(None, settings)
    trainer.model.parameters.grad[...] = np.nan
    trainer.train()
    model = toy_model()
    batch = trainer.dataset.batches(settings.tokens_per_batch, settings.seed, model.config).batch(0, 0)
    _, cache = model.loss(batch.source, batch.target_in, batch.target_out, 0.2, DropoutStream(settings.seed, 1))
    model.loss_backward(1.0, cache)
    Adam(model.parameters, model.ops).step(noam(1, 16, settings.warmup_steps))
    np.testing.assert_array_equal(trainer.model.parameters.data, model.parameters.data)


def test_every_batch_once_an_epoch(monkeypatch):
    trainer = toy_trainer(None, SETTINGS)
    seen, batch = [], trainer.batches.batch
    monkeypatch.setattr(trainer.batches, "batch", lambda *place: seen.append(place) or batch(*place))
    trainer.train()
    places = [(epoch, index) for epoch in range(9) for index in range(len(trainer.batches))]
    assert len(seen) == SETTINGS.steps * SETTINGS.accumulate > len(trainer.batches)
    assert seen == places[: len(seen)]


def test_more_threads_than_sentences():
    batch = Batches(backwards(2, seed=0), 200).batch(0, 0)
    for threads in (1, 7):
        with DataParallel(toy_model(), threads) as workers:
            assert math.isfinite(workers.gradients([batch], label_smoothing=0.1, seed=2, step=3))


@pytest.mark.parametrize("threads", [1, 2])
def test_validation_loss_is_the_mean_over_all_tokens(threads):
    dataset, model = backwards(50, seed=7), toy_model("float64")
    with DataParallel(model, threads) as workers:
        loss = workers.mean_loss(Batches(dataset, 64).epoch(0))
    total = 0.0
    for source, target in (dataset[i] for i in range(50)):
        batch = collate([source], [target])
        logits, _ = model.forward(batch.source, batch.target_in)
        log_probabilities = logits[0] - np.log(np.exp(logits[0]).sum(-1, keepdims=True))
        total -= log_probabilities[np.arange(len(target) + 1), batch.target_out[0]].sum()
    assert loss == pytest.approx(total / (dataset.target_lengths.sum() + 50), rel=1e-12)


def test_it_learns_and_logs(tmp_path):
    bleus = iter(range(100))
    settings = replace(SETTINGS, steps=60, accumulate=1, tokens_per_batch=256, peak_lr=None, clip_norm=None)
    model = toy_model(dropout=0.0, attention_dropout=0.0)
    trainer = toy_trainer(tmp_path, settings, model=model, evaluate=lambda model, figures: {"bleu": next(bleus)})
    outcome = trainer.train()
    log = read_log(tmp_path / "log.jsonl")
    assert [record["step"] for record in log] == list(range(1, 61))
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]
    num_batches, pairs = len(trainer.batches), backwards(150, seed=0)
    tokens_per_epoch = int(pairs.source_lengths.sum() + pairs.target_lengths.sum()) + 2 * len(pairs)
    for record in log:
        step = record["step"]
        assert record["epoch"] == (step - 1) // num_batches
        assert record["learning_rate"] == pytest.approx(noam(step, 16, 10))
        assert math.isfinite(record["grad_norm"])
        assert record["tokens_per_second"] > 0
        if step % num_batches == 0:
            assert record["tokens"] == step // num_batches * tokens_per_epoch
    validated = [record for record in log if "validation_loss" in record]
    assert [record["step"] for record in validated] == [9, 18, 27, 36, 45, 54, 60]
    assert [record["bleu"] for record in validated] == list(range(7))
    for record in validated:
        assert record["perplexity"] == pytest.approx(math.exp(record["validation_loss"]))
    assert (outcome.step, outcome.reason) == (60, "finished")
    assert outcome.checkpoint is not None
    assert [path.stem for path in list_checkpoints(tmp_path)] == ["step-00000056", "step-00000060"]
    checkpoint = load_checkpoint(outcome.checkpoint)
    assert checkpoint.tokenizer == TOKENIZER.to_json()
    copy = toy_model(dropout=0.0, attention_dropout=0.0)
    checkpoint.restore(copy)
    np.testing.assert_array_equal(copy.parameters.data, model.parameters.data)


def test_clipping_takes_a_shorter_first_moment():
    trainers = [toy_trainer(None, replace(SETTINGS, steps=1, clip_norm=norm)) for norm in (None, 0.01)]
    for trainer in trainers:
        trainer.train()
    free, clipped = (np.linalg.norm(trainer.optimizer.m) for trainer in trainers)
    assert clipped == pytest.approx(0.1 * 0.01, rel=1e-5)  # (1 - β₁) times the gradient
    assert free > 10 * clipped


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e38])
def test_divergence_names_the_step_and_keeps_the_last_checkpoint(tmp_path, poison):
    def break_model(model, figures):
        model.parameters.named["tokens.table"].data[...] = poison
        return {}

    trainer = toy_trainer(tmp_path, evaluate=break_model)
    with pytest.raises(TrainingDiverged, match=r"step 10 is (nan|inf).*step-00000008\S* is from before$"):
        trainer.train()
    checkpoint = load_checkpoint(list_checkpoints(tmp_path)[-1])
    assert checkpoint.step == 8
    assert all(np.isfinite(array).all() for array in checkpoint.parameters.values())
    assert [record["step"] for record in read_log(tmp_path / "log.jsonl")] == list(range(1, 10))


@pytest.mark.parametrize(("poison", "where"), [(np.nan, "parameters"), (np.inf, "parameters"), (np.inf, "moments")])
@pytest.mark.parametrize("interval", [4, 8])
def test_what_is_not_finite_is_not_saved_and_takes_no_good_checkpoint_s_place(tmp_path, poison, where, interval):
    """It goes bad just before the checkpoint of step 8, of which one is kept."""

    def spoil(model, figures):
        (trainer.optimizer.v if where == "moments" else model.parameters.data)[3] = poison
        return {}

    settings = replace(SETTINGS, valid_interval=8, checkpoint_interval=interval, keep=1)
    trainer = toy_trainer(tmp_path, settings, evaluate=spoil)
    kept = ["step-00000004"] if interval == 4 else []
    before = r"\S*step-00000004\S* is" if kept else "there is no checkpoint"
    said = f"^step 8 leaves numbers that are not finite: try a lower learning rate, .*; {before} from before$"
    with pytest.raises(TrainingDiverged, match=said):
        trainer.train()
    assert [path.stem for path in list_checkpoints(tmp_path)] == kept


def test_an_infinite_gradient_does_not_reach_the_parameters(monkeypatch):
    trainer = toy_trainer(None)
    before = trainer.model.parameters.data.copy()
    monkeypatch.setattr(trainer.optimizer, "grad_norm", lambda: math.inf)
    with pytest.raises(TrainingDiverged, match="the gradient norm of step 1 is inf"):
        trainer.train()
    np.testing.assert_array_equal(trainer.model.parameters.data, before)


def test_time_limit(tmp_path):
    outcome = toy_trainer(tmp_path, replace(SETTINGS, minutes=1e-6)).train()
    assert (outcome.step, outcome.reason) == (1, "out of time")
    assert [path.stem for path in list_checkpoints(tmp_path)] == ["step-00000001"]
    assert "validation_loss" in read_log(tmp_path / "log.jsonl")[-1]


def test_progress_says_what_happens(capfd, monkeypatch):
    settings = replace(SETTINGS, steps=9)
    toy_trainer(None, settings, progress=True).train()
    assert re.fullmatch(r"step 9: validation loss 2\.\d+, perplexity \d+\.\d+\n", capfd.readouterr().err)  # in a file
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    toy_trainer(None, settings, progress=True, evaluate=lambda model, figures: {"bleu": 12.5}).train()
    said = capfd.readouterr()
    assert said.out == ""
    assert "9/9" in said.err
    assert "tokens/s, lr" in said.err
    assert "step 9: validation loss 2." in said.err
    assert "BLEU 12.50" in said.err


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        trainer = toy_trainer(folder)
        with pytest.raises(OSError, match=f"cannot make the folder {folder}: (Not a directory|File exists)"):
            trainer.train()


def test_a_signal_is_kept_until_asked_for_and_the_second_acts():
    with stop_request() as stop:
        assert not stop.requested
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_first_signal_is_answered(capfd: pytest.CaptureFixture[str]) -> None:
    for speaks in (False, True):
        with stop_request(speaks):
            signal.raise_signal(signal.SIGTERM)
        assert ("stopping after this step; another Ctrl-C" in capfd.readouterr().err) == speaks


def test_an_ignored_signal_stays_ignored():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_request() as stop:
            signal.raise_signal(signal.SIGINT)
        assert not stop.requested
    finally:
        signal.signal(signal.SIGINT, previous)


def test_data_that_does_not_fit_the_model():
    with pytest.raises(ValueError, match="token id 11, but the vocabulary has 9"):
        toy_trainer(None, model=toy_model(vocab_size=9))
    with pytest.raises(ValueError, match="pad_id, bos_id, eos_id are 0, 2, 1 in the model, but 0, 1, 2 in the data"):
        toy_trainer(None, model=toy_model(bos_id=2, eos_id=1))


@pytest.mark.parametrize("long", ["dataset", "valid"])
def test_sentences_longer_than_the_model_takes(long):
    data: dict[str, Any] = {name: TokenDataset.from_pairs([([3, 4], [5])]) for name in ("dataset", "valid")}
    toy_trainer(None, model=toy_model(max_length=3), **data)
    data[long] = TokenDataset.from_pairs([([3], [5, 4, 3])])
    with pytest.raises(ValueError, match="max_length is 3, but the longest sentence has 4 tokens"):
        toy_trainer(None, model=toy_model(max_length=3), **data)
