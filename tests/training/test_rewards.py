"""Training on rewards and preferences: what is drawn, its weights, and trainings that go where they are sent."""

from typing import Any

import numpy as np
import pytest

from minitransformer import GPT, Generator, GPTConfig, Trainer, TrainingSettings
from minitransformer.training import rewards as rewards_module
from minitransformer.training.objectives import group_advantages, reward_loss_forward
from minitransformer.training.preferences import Preferences, PreferenceSettings
from minitransformer.training.rewards import RewardSettings, Rollouts, judged, rows_of, score


class Letters:
    """A tokenizer of four letters; 2 begins and ends a text."""

    vocab_size = 7

    def encode(self, text):
        return ["abcd".index(letter) + 3 for letter in text]

    def decode(self, ids):
        return "".join("abcd"[id - 3] for id in ids if id >= 3)

    def tokens(self, ids):
        return list(map(str, ids))


TOKENIZER = Letters()


def model_of(seed=0, dtype="float32", **options):
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 1, "max_length": 12, "dropout": 0.0}
    marks = {"attention_dropout": 0.0, "bos_id": 2, "eos_id": 2, "init_std": 0.2}
    return GPT(GPTConfig(TOKENIZER.vocab_size, **sizes | marks | options), dtype=dtype, seed=seed)


def settings_of(steps, **options):
    values = {"tokens_per_batch": 32 * 12, "peak_lr": 2e-2, "warmup_steps": 2, "label_smoothing": 0.0, "threads": 1}
    return TrainingSettings(steps=steps, **values | {"valid_interval": 100, "checkpoint_interval": 2} | options)


def shares_of_a(texts):
    """The reward of a text: the share of its letters that are a."""
    return [text.count("a") / max(1, len(text)) for text in texts]


# --- What is drawn --------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_logits(monkeypatch):
    model, rng = model_of(dtype="float64"), np.random.default_rng(0)
    ids, targets = rng.integers(0, TOKENIZER.vocab_size, (2, 5, 7))
    targets[1, 3:] = -100
    logits = model.forward(ids)[0]
    log_pi = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    counted = targets != -100
    expected = np.where(counted, np.take_along_axis(log_pi, np.where(counted, targets, 0)[..., None], -1)[..., 0], 0)
    for block in (1 << 24, 1):  # all at once, and row by row
        monkeypatch.setattr(rewards_module, "BLOCK_LOGITS", block)
        log_probs, entropy = score(model, ids, targets)
        np.testing.assert_allclose(log_probs, expected, atol=1e-13)
        np.testing.assert_allclose(entropy, -(np.exp(log_pi) * log_pi).sum(-1) * counted, atol=1e-13)


def test_rows_count_what_was_drawn():
    ids, targets = rows_of([[2], [2, 5, 6]], [[7, 8, 2], [9]])
    np.testing.assert_array_equal(ids, [[2, 7, 8], [2, 5, 6]])
    np.testing.assert_array_equal(targets, [[7, 8, 2], [-100, -100, 9]])


def test_a_generator_draws_from_the_models_distribution():
    """With the end mark, and as often as the model says: the first token of 4,000 texts, by χ²."""
    model = model_of(3)
    writer = Generator(model, TOKENIZER)
    drawn = writer.draw([[2]] * 4000, 4, seed=1)
    assert all(2 not in ids[:-1] for ids in drawn)
    assert any(ids[-1] == 2 for ids in drawn)
    assert max(map(len, drawn)) == 4
    logits = model.forward(np.array([[2]]))[0][0, 0].astype(np.float64)
    expected = 4000 * np.exp(logits) / np.exp(logits).sum()
    seen = np.bincount([ids[0] for ids in drawn], minlength=len(expected))
    chi2 = ((seen - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    assert chi2 < freedom + 4 * np.sqrt(2 * freedom)
    assert writer.draw([[2]] * 4000, 4, seed=1) == drawn
    assert writer.draw([[2]] * 4000, 4, seed=2) != drawn


def test_a_batch_has_its_figures_and_the_same_one_is_drawn_again():
    model, reference = model_of(1), model_of(2)
    writer = Generator(model, TOKENIZER)
    rollouts = Rollouts(writer, shares_of_a, RewardSettings(group=4, max_tokens=6, kl=0.1), reference=reference)
    batch, again = (rollouts.batches(8 * 7 * 4, 5, model.config).batch(3, 0) for _ in range(2))
    for one, other in zip(batch.inputs, again.inputs, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(batch.masks["weights"], again.masks["weights"])
    assert batch.num_sentences == 8 * 4
    texts = [TOKENIZER.decode([token for token in row if token not in (-100, 2)]) for row in batch.targets.tolist()]
    assert batch.figures["reward"] == pytest.approx(np.mean(shares_of_a(texts)))
    assert batch.figures["distinct"] == len(set(texts)) / 32
    assert batch.figures["length"] == pytest.approx((batch.targets != -100).sum() / 32)
    inputs: Any = batch.inputs
    ours, entropy = score(model, *inputs)
    theirs, counted = score(reference, *inputs)[0], batch.targets != -100
    delta = (theirs - ours)[counted]
    assert batch.figures["kl"] == pytest.approx((np.exp(delta) - delta - 1).mean(), rel=1e-5)
    assert batch.figures["kl"] > 0
    assert batch.figures["entropy"] == pytest.approx(entropy[counted].mean(), rel=1e-6)


def test_groups_are_those_of_a_prompt():
    """A text is compared with those of its own prompt: the reward may differ between prompts and changes nothing."""
    model, prompts = model_of(1), ["ab", "c"]
    seen = []

    def reward(texts):
        seen.append(list(texts))
        return [10.0 * text.startswith("c") + each for text, each in zip(texts, shares_of_a(texts), strict=True)]

    rollouts = Rollouts(Generator(model, TOKENIZER), reward, RewardSettings("reinforce", 4, 5, kl=0.0), prompts)
    longest = max(map(len, rollouts.encoded)) + 5
    batch = rollouts.batches(2 * 4 * longest, 0, model.config).batch(0, 0)
    (texts,) = seen
    assert sorted(text.startswith("c") for text in texts) == [False] * 4 + [True] * 4
    assert all(text.startswith("ab") for text in texts if not text.startswith("c"))
    advantages = [(row[row != 0][:1].tolist() or [0])[0] for row in batch.masks["weights"]]
    assert np.abs(advantages).max() < 2
    assert sum(advantages[:4]) == pytest.approx(0, abs=1e-6)
    assert batch.targets[0, 0] == -100 or len(Generator(model, TOKENIZER).encode("c")) == 1  # a prompt does not count


def test_a_step_compares_as_its_settings_say():
    """One prompt is one group; reinforce does not divide by the deviation; other rollouts have other prompts."""
    model, seen = model_of(1), []

    def reward(texts):
        seen.append(texts)
        return shares_of_a(texts)

    def weights_of(batch):
        return np.array(
            [row[counted][0] for row, counted in zip(batch.masks["weights"], batch.targets != -100, strict=True)]
        )

    for kind in ("reinforce", "grpo"):
        rollouts = Rollouts(Generator(model, TOKENIZER), reward, RewardSettings(kind, 4, 5, kl=0.0))
        batch = rollouts.batches(4 * 6 * 3, 0, model.config).batch(0, 0)
        advantages = group_advantages(np.array([shares_of_a(seen[-1])]), divided=kind == "grpo")[0]
        assert len(advantages) == 12
        np.testing.assert_allclose(weights_of(batch), advantages, rtol=1e-6, atol=1e-7)
    prompts = ["a", "b", "c", "d", "ab", "ba"]
    rollouts = Rollouts(Generator(model, TOKENIZER), reward, RewardSettings("grpo", 2, 5, kl=0.0), prompts)
    batches: Any = rollouts.batches(2 * 7 * 2, 0, model.config)
    chosen = {str(batches.batch(number, 0).inputs[0][::2, :2].tolist()) for number in range(8)}
    assert len(chosen) > 1
    few = Rollouts(Generator(model, TOKENIZER), reward, RewardSettings("grpo", 2, 5, kl=0.0), prompts[:2])
    assert few.batches(2 * 6 * 5, 0, model.config).batch(0, 0).num_sentences == 10  # prompts are drawn again


# --- Trainings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "objective",
    [
        RewardSettings("reinforce", 16, 8, kl=0.0),
        RewardSettings("grpo", 16, 8, kl=0.0),
        RewardSettings("grpo", 16, 8, kl=0.01, updates=2),
    ],
    ids=["reinforce", "grpo", "two updates"],
)
def test_a_training_gets_what_it_is_rewarded_for(objective):
    model = model_of(4)
    reference = model_of(4)
    rollouts = Rollouts(Generator(model, TOKENIZER), shares_of_a, objective, reference=reference)
    trainer = Trainer(model, rollouts, settings_of(40), progress=False)
    before = rollouts.batches(2000, 99, model.config).batch(0, 0).figures["reward"]
    trainer.train()
    after = rollouts.batches(2000, 99, model.config).batch(0, 0).figures
    assert before < 0.35
    assert after["reward"] > 0.8
    assert after["kl"] > 0.1 if "kl" in after else True


def test_the_divergence_holds_a_model_back():
    found = []
    for kl in (0.0, 1.0):
        model = model_of(4)
        settings = RewardSettings("grpo", 16, 8, kl=kl)
        rollouts = Rollouts(Generator(model, TOKENIZER), shares_of_a, settings, reference=model_of(4))
        Trainer(model, rollouts, settings_of(30), progress=False).train()
        found.append(rollouts.batches(2000, 99, model.config).batch(0, 0).figures["kl"])
    assert found[1] < found[0] / 3


@pytest.mark.parametrize("updates", [1, 2])
def test_a_training_that_stops_and_goes_on_ends_with_the_same_bits(tmp_path, updates):
    kept = {"objective": {"a": 1}}

    def trained(folder, *steps):
        model = model_of(7)
        for number, end in enumerate(steps):
            model = model_of(7)
            settings = RewardSettings(group=8, max_tokens=6, kl=0.1, updates=updates)
            rollouts = Rollouts(Generator(model, TOKENIZER), shares_of_a, settings, reference=model_of(7), kept=kept)
            trainer = Trainer(model, rollouts, settings_of(end), folder=folder, progress=False)
            if number:
                trainer.resume()
            trainer.train()
        return (folder / f"step-{steps[-1]:08d}.safetensors").read_bytes(), model.parameters.data

    (whole, data), (parts, again) = trained(tmp_path / "whole", 6), trained(tmp_path / "parts", 2, 6)
    np.testing.assert_array_equal(data, again)
    assert whole == parts


def test_two_updates_use_one_rollout_and_the_ratio_moves():
    model, judged_texts = model_of(4), []

    def reward(texts):
        judged_texts.append(texts)
        return shares_of_a(texts)

    rollouts = Rollouts(Generator(model, TOKENIZER), reward, RewardSettings(group=16, max_tokens=8, kl=0.0, updates=2))
    trainer = Trainer(model, rollouts, settings_of(2), progress=False)
    batches: Any = trainer.batches
    first = batches.batch(0, 0)
    trainer.train()
    second = batches.batch(0, 1)
    assert len(judged_texts) == 1
    np.testing.assert_array_equal(first.inputs[0], second.inputs[0])
    assert np.abs(first.masks["weights"] - second.masks["weights"]).max() > 0.01
    rollout = batches._rollout
    loss, _ = reward_loss_forward(
        score(model, *second.inputs)[0], rollout.log_probs, rollout.advantages, second.targets != -100
    )
    assert second.figures["loss"] == pytest.approx(loss, rel=1e-6)


def test_preferences_are_learned():
    better, worse = ([[*TOKENIZER.encode(text), 2] for text in texts] for texts in (["abc", "ba"], ["dd", "ccd"]))
    pairs = [([2], *pair) for pair in zip(better, worse, strict=True)] * 4
    model, reference = model_of(5), model_of(5)
    data = Preferences(model, reference, pairs, PreferenceSettings(beta=0.5))
    before = data.figures(200)
    assert before["validation_loss"] == pytest.approx(np.log(2))
    assert before["validation_agreement"] == 0.5  # all are equal
    Trainer(model, data, settings_of(20, peak_lr=5e-3), progress=False).train()
    after = data.figures(200)
    assert after["validation_loss"] < 0.2
    assert after["validation_agreement"] == 1
    rows = rows_of([[2], [2]], [better[0], worse[0]])
    preferred, other = (score(model, *rows)[0] - score(reference, *rows)[0]).sum(-1)
    assert preferred > 0 > other


# --- Refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [None, "ab", [1.0], [1.0, float("nan")], [[1.0], [2.0]], 1.0, [[], []], ["a", "b"], [1, 10**400], [1, -1e31]],
)
def test_a_reward_must_be_a_number_for_each_text(given):
    with pytest.raises(ValueError, match=r"the reward returned .*, expected 2 numbers up to 1e\+30, one a text"):
        judged(lambda texts: given, ["a", "b"])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda writer: Rollouts(writer, shares_of_a, RewardSettings(kl=0.0), []), "there are no prompts"),
        (lambda writer: Rollouts(writer, shares_of_a, RewardSettings()), "kl is 0.5, which needs the reference"),
        (lambda writer: Rollouts(writer, shares_of_a, RewardSettings(kl=0.0), ["ab" * 9]), "have at most"),
        (lambda writer: RewardSettings("reinforce", updates=2), "updates is for grpo"),
        (lambda writer: RewardSettings(group=1), "group is 1, expected 2 to 4096"),
        (lambda writer: Preferences(writer.model, writer.model, [], PreferenceSettings()), "there are no pairs"),
        (
            lambda writer: Preferences(writer.model, writer.model, [([2], [], [3])], PreferenceSettings()),
            "pair 1 has an empty prompt or text",
        ),
    ],
)
def test_bad_objectives_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make(Generator(model_of(), TOKENIZER))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 3}, "steps is 3, expected a multiple of the 2 updates of a rollout"),
        ({"steps": 4, "checkpoint_interval": 1}, "checkpoint_interval is 1, expected a multiple of the 2 updates"),
        ({"steps": 4, "accumulate": 2}, "accumulate is 2, expected 1"),
        ({"steps": 4, "label_smoothing": 0.1}, "label_smoothing is 0.1, expected 0: what was drawn is no label"),
    ],
)
def test_a_training_does_not_part_a_rollout(options, says):
    model = model_of()
    rollouts = Rollouts(Generator(model, TOKENIZER), shares_of_a, RewardSettings(kl=0.0, updates=2))
    with pytest.raises(ValueError, match=says):
        Trainer(model, rollouts, settings_of(**options), progress=False)
