"""The model is the paper's: `torch.nn.Transformer`, with the same weights, gives the same numbers."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
import torch
from support.model_cases import Pairs, model_of, ragged
from support.prove import Proof
from support.torch_twins import inside, sinusoids
from torch import Tensor, nn

from minitransformer.gradcheck import error
from minitransformer.layers import Stack, TokenEmbedding
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.ops import numpy_ops


class TorchModel(nn.Module):
    """PyTorch's parts of the paper's model, put together as a user of PyTorch would."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.transformer = nn.Transformer(
            config.d_model, config.num_heads, config.num_layers, config.decoder_layers, config.d_ff,
            dropout=0.0, layer_norm_eps=config.layernorm_eps, batch_first=True, norm_first=config.norm_first,
        )  # fmt: skip
        if not config.norm_first:  # post-norm layers end with a norm already: the paper has no second one
            self.transformer.encoder.norm = self.transformer.decoder.norm = None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == self.config.pad_id  # here True = may not attend
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return nn.functional.linear(hidden, self.embedding.weight)

    def embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) * self.config.d_model**0.5 + sinusoids(ids.shape[1], self.config.d_model)


def as_torch_names_it(ours: Mapping[str, Tensor], norm_first: bool) -> dict[str, Tensor]:
    """Our named tensors (weights, or their gradients) under the names and in the shapes of `TorchModel`."""
    theirs = {"embedding.weight": ours["tokens.table"]}

    def copy(linear: Mapping[str, Tensor], target: str) -> None:
        theirs[f"transformer.{target}weight"] = linear["weight"].T
        theirs[f"transformer.{target}bias"] = linear["bias"]

    def copy_norm(source: str, target: str) -> None:
        theirs[f"transformer.{target}.weight"] = ours[f"{source}.gamma"]
        theirs[f"transformer.{target}.bias"] = ours[f"{source}.beta"]

    norms = {
        "encoder": ("self_attention", "feed_forward"),
        "decoder": ("self_attention", "cross_attention", "feed_forward"),
    }
    for stack, names in norms.items():
        for index in {int(name.split(".")[0]) for name in inside(ours, f"{stack}.layers")}:
            layer = f"{stack}.layers.{index}"
            part = partial(inside, inside(ours, layer))
            copy(part("self_attention.query_key_value"), f"{layer}.self_attn.in_proj_")
            copy(part("self_attention.output"), f"{layer}.self_attn.out_proj.")
            copy(part("feed_forward.expand"), f"{layer}.linear1.")
            copy(part("feed_forward.contract"), f"{layer}.linear2.")
            if stack == "decoder":  # one matrix for Q, K and V here too
                query, rest = part("cross_attention.query"), part("cross_attention.key_value")
                joined = {name: torch.cat([query[name], rest[name]], dim=-1) for name in query}
                copy(joined, f"{layer}.multihead_attn.in_proj_")
                copy(part("cross_attention.output"), f"{layer}.multihead_attn.out_proj.")
            for number, name in enumerate(names, start=1):
                copy_norm(f"{layer}.{name}_norm", f"{layer}.norm{number}")
        if norm_first:
            copy_norm(f"{stack}.final_norm", f"{stack}.norm")
    return theirs


def torch_twin(model: Transformer) -> TorchModel:
    """`TorchModel` with copies of the model's weights; loading is strict, so none is left out."""
    assert isinstance(model.config, TransformerConfig)
    twin = TorchModel(model.config).double()
    state = {name: torch.tensor(value) for name, value in model.parameters.state_dict().items()}
    twin.load_state_dict(as_torch_names_it(state, model.config.norm_first))
    return twin


@pytest.fixture(params=[False, True], ids=["post-norm", "pre-norm"])
def model(request: pytest.FixtureRequest) -> Transformer:
    return model_of(d_model=8, num_layers=3, num_decoder_layers=2, norm_first=request.param)


@pytest.fixture
def batch() -> Pairs:
    return ragged([5, 3, 1], [4, 6, 2])


pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")  # of nn.Transformer


def test_the_same_logits_and_gradients(proof: Proof, model, batch):
    logits, cache = model.forward(batch.source, batch.target_in)
    dlogits = np.random.default_rng(0).standard_normal(logits.shape)
    model.backward(dlogits, cache)

    twin = torch_twin(model)
    expected = twin(torch.tensor(batch.source), torch.tensor(batch.target_in))
    expected.backward(torch.tensor(dlogits))

    assert error(logits, expected.detach()) <= 1e-9
    gradients = {name: torch.tensor(parameter.grad) for name, parameter in model.parameters.named.items()}
    ours = as_torch_names_it(gradients, model.config.norm_first)
    theirs = {name: parameter.grad for name, parameter in twin.named_parameters() if parameter.grad is not None}
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        worst = error(ours[name], gradient)
        proof.record("Transformer, against nn.Transformer", "autograd", worst)
        assert worst <= 1e-9, name


@pytest.mark.parametrize(("preset", "million", "papers"), [("base", 63.1, 65), ("big", 214.2, 213)])
def test_table_3_s_models_have_as_many_parameters_as_torch_s(preset, million, papers):
    """Counted without making them. A joined vocabulary of "about 37000 tokens" (§5.1) gives the paper's figures."""
    sizes = getattr(TransformerConfig, preset)(37_000)
    tokens = TokenEmbedding(numpy_ops, sizes.vocab_size, sizes.d_model)
    stacks = [Stack(numpy_ops, tree, tokens, "float32") for tree in (sizes.encoder, sizes.decoder)]
    parameters = {id(p): math.prod(p.shape) for stack in stacks for _, p in stack.named_parameters()}  # tokens once
    ours = sum(parameters.values())
    assert ours == sizes.num_parameters
    with torch.device("meta"):  # shapes without memory
        theirs = sum(parameter.numel() for parameter in TorchModel(sizes).parameters())
    assert ours == theirs
    assert ours == pytest.approx(million * 1e6, abs=5e4)
    assert ours == pytest.approx(papers * 1e6, rel=0.03)
