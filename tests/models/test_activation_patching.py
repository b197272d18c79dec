"""Activation patching: nothing patched changes nothing, all patched is the other run, and estimates are gradients."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model_cases import moved
from support.pretrained_cases import exact, random_model
from test_tree import SEEN_INSIDE, OneBlock, T, V, any_config, inputs_of

import kernels
from minitransformer.gradcheck import error
from minitransformer.inside import Recording, Site, effects, estimated_effects, grid, logit_difference, patch, record
from minitransformer.models import BERTConfig, GPTConfig, ModelConfig, RecurrentConfig, ViTConfig, build_model
from minitransformer.pretrained import load

CONFIG = GPTConfig(V, d_model=8, num_heads=4, d_ff=5, num_layers=2, max_length=T, num_kv_heads=2)
IDS, OTHERS = np.random.default_rng(0).integers(0, V, (2, 2, T))


@pytest.mark.parametrize("kind", SEEN_INSIDE)
@settings(max_examples=15)
@given(data=st.data())
def test_all_of_another_run_is_the_other_run_and_nothing_changes_nothing(
    kind: type[ModelConfig], data: st.DataObject
) -> None:
    """On NumPy bit for bit, and on PyTorch the same: the last state decides all, and so do all parts together."""
    model, runs = moved(any_config(data.draw, kind)), list[Any]()
    for seed in (0, 1):
        *inputs, _ = inputs_of(model.config, np.random.default_rng(seed))
        runs.append(inputs[:1] if kind in (BERTConfig, GPTConfig, ViTConfig) else inputs[:2])
    own, other = (record(model, *inputs) for inputs in runs)
    *_, stream = other.streams.values()
    last = Site("stream", len(stream.states) - 1)
    np.testing.assert_array_equal(patch(model, {}, *runs[0]), own.logits)
    np.testing.assert_array_equal(patch(model, {last: last.of(own)}, *runs[0]), own.logits)
    np.testing.assert_array_equal(patch(model, {last: last.of(other)}, *runs[0]), other.logits)
    parts = {Site(part, n): added[n] for part, added in stream.contributions.items() for n in range(len(added))}
    everywhere = {Site("stream", 0): stream.states[0]} | parts
    np.testing.assert_array_equal(patch(model, everywhere, *runs[0]), other.logits)
    head = Site("self_attention", 0, head=stream.heads["self_attention"].shape[3] - 1, position=0)
    patched = patch(model, {head: head.of(other)}, *runs[0])
    twin = build_model(model.config, kernels.torch_ops("cpu", "float64"), "float64")
    twin.parameters.load_state_dict(model.parameters.state_dict())
    assert error(patch(twin, {head: head.of(other)}, *runs[0]), patched) <= 1e-10


def test_a_head_and_a_position_are_their_own_and_no_other() -> None:
    model = moved(CONFIG)
    own, other = record(model, IDS), record(model, OTHERS)
    for n, block in enumerate(model.decoder.layers):
        whole, change = Site("self_attention", n), np.zeros((2, T, 4, 2))
        change[:, 3, 2] = other.streams["decoder"].heads["self_attention"][n][:, 3, 2]
        change[:, 3, 2] -= own.streams["decoder"].heads["self_attention"][n][:, 3, 2]
        added = whole.of(own) + change.reshape(2, T, 8) @ block.self_attention.output.weight.value
        head = Site("self_attention", n, head=2, position=3)
        found = patch(model, {head: head.of(other)}, IDS)
        np.testing.assert_array_equal(patch(model, {head: other}, IDS), found)
        assert error(found, patch(model, {whole: added}, IDS)) <= 1e-12
        assert abs(found[:, 3] - own.logits[:, 3]).max() > 1e-4
        np.testing.assert_array_equal(found[:, :3], own.logits[:, :3])  # causal: nothing before it knows
        for sites in (grid(other, "feed_forward", by="position")[n], grid(other, "self_attention", by="head")[n]):
            together = patch(model, {site: site.of(other) for site in sites}, IDS)
            whole = replace(sites[0], head=None, position=None)
            assert error(together, patch(model, {whole: whole.of(other)}, IDS)) <= 1e-12
    last = Site("stream", 1, position=-1)
    np.testing.assert_array_equal(last.of(own), own.streams["decoder"].states[1][:, -1])
    off = patch(model, {Site("self_attention", 1): 0.0}, IDS)
    assert error(off, patch(model, {Site("self_attention", 1): np.zeros(8)}, IDS)) == 0


def test_a_block_that_stands_in_several_places_is_patched_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPTConfig, "model", OneBlock)
    model = moved(replace(CONFIG, num_layers=3))
    own, other, measure = record(model, IDS), record(model, OTHERS), logit_difference(3)
    sites = [Site("stream", 1), Site("feed_forward", 1), Site("self_attention", 2, head=1)]
    np.testing.assert_array_equal(patch(model, {sites[0]: sites[0].of(other)}, IDS)[:, -1], other.logits[:, -1])
    near = moved_run(own, other, 1e-6)
    found, estimate = (of(model, sites, near, measure, IDS) for of in (effects, estimated_effects))
    np.testing.assert_allclose(estimate, found, rtol=1e-3)


def moved_run(own: Recording, other: Recording, by: float) -> Recording:
    """A run whose values are a little of the way from one's to another's."""

    def between(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        return mine + by * (theirs - mine)

    def parts(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: between(mine[name], theirs[name]) for name in mine}

    streams = {}
    for side, mine in own.streams.items():
        theirs = other.streams[side]
        added, heads = parts(mine.contributions, theirs.contributions), parts(mine.heads, theirs.heads)
        streams[side] = replace(mine, states=between(mine.states, theirs.states), contributions=added, heads=heads)
    return replace(own, streams=streams)


@pytest.mark.parametrize("first", [True, False])
def test_an_estimate_becomes_the_effect_as_the_difference_becomes_small(first: bool) -> None:
    """It is the first term of a series: with a tenth of the difference a hundredth of its error is left."""
    model = moved(replace(CONFIG, norm_first=first))
    own, other = record(model, IDS), record(model, OTHERS)
    wanted = np.array([3, 4])
    grids = [grid(own, "stream", by="position")[:2], grid(own, "self_attention", by="head")]
    for sites in [*grids, grid(own, "self_attention", by="position")]:
        errors = []
        for step in (1e-3, 1e-4):
            near, given = moved_run(own, other, step), (logit_difference(wanted, 5), IDS)
            found, estimate = effects(model, sites, near, *given), estimated_effects(model, sites, near, *given)
            assert error(estimate / step, found / step) <= 50 * step
            errors.append(np.linalg.norm(found - estimate))
        assert 80 < errors[0] / errors[1] < 125
    assert abs(effects(model, grids[1], 0.0, logit_difference(wanted, 5), IDS)).min() > 0  # switched off


def test_patches_and_gradients_are_those_of_transformers_and_autograd(tmp_path: Path) -> None:
    model = random_model("gpt2", 1)
    model.save_pretrained(tmp_path)
    mine, _ = load(tmp_path, dtype="float64")
    rng = np.random.default_rng(0)
    ids, others = rng.integers(0, model.config.vocab_size, (2, 2, 4))
    width, layers = model.config.n_embd // model.config.n_head, range(model.config.n_layer)
    other, seen = record(mine, others), dict[tuple[str, int], torch.Tensor]()
    with exact(model) as twin:
        for n in layers:
            block = twin.transformer.h[n]

            def keep(name: str, x: torch.Tensor, n: int = n) -> torch.Tensor:
                x = x.detach().requires_grad_() if not x.requires_grad else x
                x.retain_grad()
                seen[name, n] = x
                return x

            block.attn.c_proj.register_forward_pre_hook(lambda _, x, k=keep: (k("heads", x[0]),))
            block.mlp.register_forward_hook(lambda _, x, y, k=keep: k("network", y))
        logits = twin(input_ids=torch.from_numpy(ids)).logits
        (logits[:, -1, 3] - logits[:, -1, 5]).mean().backward()
        heads = {key: (x.detach().numpy(), x.grad.numpy()) for key, x in seen.items()}  # pyright: ignore
        measure = logit_difference(3, 5)
        found = estimated_effects(mine, grid(other, "self_attention", by="head"), other, measure, ids)
        for n in layers:
            for h in range(model.config.n_head):
                x, dx = (each[..., h * width : (h + 1) * width] for each in heads["heads", n])
                site = Site("self_attention", n, head=h)
                assert found[n, h] == pytest.approx(((site.of(other) - x) * dx).sum(), rel=1e-9, abs=1e-12)
        found = estimated_effects(mine, grid(other, "feed_forward", by="position"), other, measure, ids)
        for n in layers:
            x, dx = heads["network", n]
            change = (Site("feed_forward", n).of(other) - x) * dx
            np.testing.assert_allclose(found[n], change.sum((0, 2)), rtol=1e-9, atol=1e-12)
    site = Site("self_attention", layers[-1], head=model.config.n_head - 1, position=2)
    with exact(model) as twin, torch.no_grad():

        def patched(_: Any, x: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            x[0][:, 2, -width:] = torch.from_numpy(site.of(other))
            return x

        twin.transformer.h[-1].attn.c_proj.register_forward_pre_hook(patched)
        expected = twin(input_ids=torch.from_numpy(ids)).logits.numpy()
    assert error(patch(mine, {site: site.of(other)}, ids), expected) <= 1e-9


def test_what_can_t_be_patched_says_so() -> None:
    model = moved(replace(CONFIG, d_ff=0))
    own = record(model, IDS)
    for site, says in (
        (Site("feed_forward", 0), "part is 'feed_forward', expected one of stream, self_attention, and heads"),
        (Site("stream", 0, head=1), "part is 'stream' with a head, expected"),
        (Site("self_attention", 2), "layer is 2, expected 0 to 1 for 'self_attention'"),
        (Site("stream", 3), "layer is 3, expected 0 to 2 for 'stream'"),
        (Site("self_attention", 0, head=4), "head is 4, expected 0 to 3"),
        (Site("stream", 0, position=6), "position is 6, expected -6 to 5"),
        (Site("stream", 0, stack="encoder"), "a gpt model has no layers to look into: it has no encoder of blocks"),
    ):
        with pytest.raises(ValueError, match=says):
            patch(model, {site: 0.0}, IDS)
    with pytest.raises(ValueError, match=r"has shape \(3, 8\), expected \(2, 6, 8\)"):
        patch(model, {Site("stream", 1): np.zeros((3, 8))}, IDS)
    with pytest.raises(ValueError, match="part is 'stream', expected 'self_attention' by head"):
        grid(own, "stream", by="head")
    with pytest.raises(ValueError, match="by is 'place', expected 'position' or 'head'"):
        grid(own, "stream", by="place")  # type: ignore[arg-type]
    for measure in (lambda logits: logits.mean(), lambda logits: logits[:, -1, 0]):
        for changes in (effects, estimated_effects):
            with pytest.raises(TypeError, match="a measure returns one number and its gradient"):
                changes(model, [Site("stream", 0)], own, measure, IDS)
    recurrent = build_model(RecurrentConfig(vocab_size=9, d_model=8))
    with pytest.raises(ValueError, match="a recurrent model has no layers to look into: it has no stack of blocks"):
        patch(recurrent, {Site("stream", 0): 0.0}, [[3]], [[1]])
