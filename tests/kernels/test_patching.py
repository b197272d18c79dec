"""`kernels.patch`: models of Hugging Face's run on `kernels.functional` and compute what they computed."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.kernels.prove_kernel import DEVICE
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertLMHeadModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    StaticCache,
    T5Config,
    T5ForConditionalGeneration,
)

import kernels
from kernels.patching import NAME, Patch

V = 23
BERT: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 16, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "vocab_size": V, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 2,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 16,
}  # fmt: skip
TWO_LAYERS: dict[str, Any] = dict(LLAMA, num_hidden_layers=2)
MODELS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "Llama": (
        lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
        ["3 × LlamaRMSNorm → rms_norm", "1 × LlamaMLP → swiglu", "1 × LlamaAttention →", "1 × causal loss →"],
    ),
    "Llama with gelu": (
        lambda: LlamaForCausalLM(LlamaConfig(**TWO_LAYERS, hidden_act="gelu_pytorch_tanh", attention_bias=True)),
        ["5 × LlamaRMSNorm →", "2 × LlamaMLP → geglu", "2 × LlamaAttention →"],
    ),
    "Llama with relu": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, hidden_act="relu")), ["1 × LlamaAttention →"]),
    "Mistral": (
        lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=3)),
        ["3 × MistralRMSNorm → rms_norm", "1 × MistralMLP → swiglu", "1 × MistralAttention →", "1 × causal loss →"],
    ),
    "Qwen2": (
        lambda: Qwen2ForCausalLM(
            Qwen2Config(**TWO_LAYERS, use_sliding_window=True, sliding_window=3, max_window_layers=1)
        ),
        ["5 × Qwen2RMSNorm → rms_norm", "2 × Qwen2MLP → swiglu", "2 × Qwen2Attention →", "1 × causal loss →"],
    ),
    "Qwen3": (
        lambda: Qwen3ForCausalLM(Qwen3Config(**LLAMA, head_dim=6)),
        ["5 × Qwen3RMSNorm → rms_norm", "1 × Qwen3MLP → swiglu", "1 × Qwen3Attention →", "1 × causal loss →"],
    ),
    "Gemma": (
        lambda: GemmaForCausalLM(GemmaConfig(**LLAMA, head_dim=6)),
        ["3 × GemmaRMSNorm → rms_norm", "1 × GemmaMLP → geglu", "1 × GemmaAttention →", "1 × causal loss →"],
    ),
    "GPT-2": (
        lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
        ["3 × LayerNorm → layer_norm", "1 × NewGELUActivation → gelu", "1 × GPT2Attention →", "1 × causal loss →"],
    ),
    "GPT-2 with other scales": (
        lambda: GPT2LMHeadModel(
            GPT2Config(**dict(GPT2, n_layer=2), scale_attn_by_inverse_layer_idx=True, activation_function="silu")
        ),
        ["2 × SiLUActivation → silu"],
    ),
    "BERT": (
        lambda: BertForMaskedLM(BertConfig(**BERT)),
        ["4 × LayerNorm → layer_norm", "2 × GELUActivation → gelu", "1 × BertSelfAttention →"],
    ),
    "BERT that generates": (lambda: BertLMHeadModel(BertConfig(**BERT, is_decoder=True)), ["1 × causal loss →"]),
}
every_model = pytest.mark.parametrize("name", MODELS)

IDS = torch.tensor([[5, 3, 9, 14, 8, 2, 7], [4, 11, 6, 1, 20, 22, 10]], device=DEVICE)
RIGHT = torch.tensor([[1] * 7, [1, 1, 1, 1, 0, 0, 0]], device=DEVICE)
LEFT = RIGHT.flip(1)


def on_device(model: Any) -> Any:
    """The model in training mode."""
    return model.to(DEVICE).train()


def made(name: str, seed: int = 0) -> Any:
    """A model with random weights, norms among them."""
    torch.manual_seed(seed)
    model = on_device(MODELS[name][0]())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def results(model: Any, mask: Tensor | None, **options: Any) -> dict[str, Tensor]:
    """The loss, the logits at real tokens, and every parameter's gradient."""
    model.zero_grad()
    real = torch.ones_like(IDS) if mask is None else mask
    out = model(input_ids=IDS, attention_mask=mask, labels=IDS.masked_fill(real == 0, -100), **options)
    out.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": out.loss.detach(), "logits": out.logits.detach()[real.bool()], **gradients}


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        torch.testing.assert_close(
            found[name], wanted, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
        )


PADDINGS = [None, RIGHT, LEFT]
SAMPLE = {"Llama": PADDINGS, "BERT": PADDINGS[:2]}


@pytest.mark.parametrize(
    ("name", "paddings"),
    [
        *(pytest.param(name, SAMPLE.get(name, [RIGHT]), id=name) for name in MODELS),
        *(pytest.param(name, PADDINGS, id=f"{name}, all", marks=pytest.mark.slow) for name in MODELS),
    ],
)
def test_a_patched_model_computes_the_same(name, paddings):
    """Loss, outputs and every gradient, padded on either side or not at all; undone, it is what it was."""
    model, said = made(name), MODELS[name][1]
    before = [results(model, mask) for mask in paddings]
    with kernels.patch(model) as report:
        assert all(line in str(report) for line in said), str(report)
        for mask, expected in zip(paddings, before, strict=True):
            assert_alike(results(model, mask), expected)
    for mask, expected in zip(paddings, before, strict=True):
        assert_alike(results(model, mask), expected, 0)


OPERATORS = {
    "layer_norm": "layernorm", "rms_norm": "rmsnorm", "swiglu": "gated", "geglu": "gated",
    "flash attention": "attention",
}  # fmt: skip


@every_model
def test_the_patch_uses_these_functions_and_leaves_nothing_behind(name):
    """Each function that the report names is called; afterwards every module has only what it had."""
    model = made(name)
    before, parameters = [set(vars(module)) for module in model.modules()], dict(model.named_parameters())
    report = kernels.patch(model)
    assert isinstance(report, Patch)
    assert dict(model.named_parameters()) == parameters
    profile: Any = torch.autograd.profiler.profile()
    with profile:
        model(IDS[:1, :3], labels=IDS[:1, :3])
    called = {event.key.removeprefix("minitransformer::") for event in profile.key_averages()}
    named = {what.split(" → ")[1] for what in report.swapped}
    assert {OPERATORS.get(function, function) for function in named} <= called
    report.undo()
    report.undo()
    assert [set(vars(module)) for module in model.modules()] == before
    assert model.config._attn_implementation == "sdpa"


CACHES = [{}, {"cache_implementation": "static"}, {"use_cache": False}]


@pytest.mark.parametrize(
    ("name", "caches"),
    [
        pytest.param("Llama", CACHES, id="Llama"),
        pytest.param("GPT-2", CACHES[:1], id="GPT-2"),
        pytest.param("GPT-2", CACHES, id="GPT-2, all", marks=pytest.mark.slow),
        pytest.param("Mistral", CACHES, id="Mistral, whose window is shorter", marks=pytest.mark.slow),
    ],
)
def test_generation_says_the_same_with_every_cache(name, caches):
    """One token at a time, so that keys outnumber queries; a static cache has room for keys that are still to come."""
    model = made(name).eval()
    for options in caches:

        def generated(options: dict = options) -> dict[str, Tensor]:
            out = model.generate(
                IDS[:, :4], attention_mask=LEFT[:, 2:6], max_new_tokens=3,
                do_sample=False, pad_token_id=0, return_dict_in_generate=True, output_logits=True, **options,
            )  # fmt: skip
            return {"ids": out.sequences, "logits": torch.stack(out.logits)}

        expected = generated()
        with kernels.patch(model):
            assert_alike(generated(), expected)


def test_a_static_cache_without_a_mask_has_empty_places_that_are_no_keys():
    model = made("Llama").eval()

    def logits() -> dict[str, Tensor]:
        cache = StaticCache(config=model.config, max_cache_len=8)
        with torch.no_grad():
            return {"logits": model(input_ids=IDS[:, :4], past_key_values=cache, use_cache=True).logits}

    expected = logits()
    with kernels.patch(model):
        assert_alike(logits(), expected)


@pytest.mark.parametrize("name", ["Llama", "GPT-2"])
def test_packed_sequences_do_not_see_each_other(name):
    """transformers knows them by their positions, where there is no cache; the second starts anew at token 3."""
    model, positions = made(name), torch.tensor([[0, 1, 2, 0, 1, 2, 3]], device=DEVICE).expand(2, -1)
    packed: dict[str, Any] = {"position_ids": positions, "use_cache": False}
    before = results(model, None, **packed)
    with kernels.patch(model):
        assert_alike(results(model, None, **packed), before)
        alone = model(IDS[:, 3:]).logits
        torch.testing.assert_close(model(IDS, **packed).logits[:, 3:], alone, rtol=1e-5, atol=1e-5)


def test_a_trainers_own_count_divides_the_loss():
    model = on_device(LlamaForCausalLM(LlamaConfig(**LLAMA)))
    before = results(model, RIGHT, num_items_in_batch=17)
    with kernels.patch(model):
        assert_alike(results(model, RIGHT, num_items_in_batch=17), before)
        assert_alike(results(model, RIGHT, num_items_in_batch=torch.tensor(17, device=DEVICE)), before)


def test_dropout_in_attention_follows_the_generator():
    torch.manual_seed(0)
    model = on_device(GPT2LMHeadModel(GPT2Config(**dict(GPT2, attn_pdrop=0.5))))
    with kernels.patch(model):
        losses = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            losses.append(results(model, RIGHT))
        assert_alike(losses[0], losses[1], 0)
        assert losses[0]["loss"] != losses[2]["loss"]
        model.eval()
        assert_alike(results(model, RIGHT), results(model, RIGHT), 0)


def test_gemmas_norm_in_half_precision_adds_its_weight_to_one_in_float32():
    """Rounded to bfloat16, 1 + weight would lose the weight's last bits."""
    model = made("Gemma").bfloat16()
    expected = results(model, RIGHT)
    with kernels.patch(model):
        found = model.model.norm(model.model.embed_tokens(IDS))
        assert_alike(results(model, RIGHT), expected, 5e-2)
    torch.testing.assert_close(found, model.model.norm(model.model.embed_tokens(IDS)), rtol=0, atol=0)


@pytest.mark.parametrize("wide", ["the last norm", "all but the norms"])
def test_norms_in_another_type_than_what_they_read(wide):
    """As they are when a model is loaded in bfloat16: the wider type of weight and activations goes on."""
    model = made("Llama").bfloat16()
    if wide == "the last norm":
        model.model.norm.float()
        model.lm_head.float()
    else:
        for name, module in model.named_modules():
            if not list(module.children()) and "norm" not in name:
                module.float()
    expected = results(model, RIGHT)
    with kernels.patch(model):
        found = results(model, RIGHT)
    assert found["logits"].dtype == expected["logits"].dtype == torch.float32
    assert_alike(found, expected, 5e-2)


def test_a_config_may_be_shared():
    """Only the patched model changes, also if another has its config, and either can be patched."""
    config = LlamaConfig(**LLAMA)
    first, second = (on_device(LlamaForCausalLM(config)) for _ in range(2))
    shared = [(module, module.config) for module in first.modules() if hasattr(module, "config")]
    with kernels.patch(first):
        assert second.config._attn_implementation == "sdpa"
        with pytest.raises(ValueError, match="never make the weights"):
            first(IDS, output_attentions=True)
        with kernels.patch(second):
            assert second.config._attn_implementation == first.config._attn_implementation == NAME
        assert second.config._attn_implementation == "sdpa"
        unpatched = on_device(LlamaForCausalLM(copy.copy(first.config)))
        kernels.patch(unpatched)
    assert all(module.config is before for module, before in shared)


LOADS = """
import sys, torch
model = torch.load(sys.argv[1], weights_only=False)
with torch.no_grad():
    torch.save(model(torch.load(sys.argv[2])).logits, sys.argv[3])
"""


def pickled(name: str, path: Path) -> tuple[Any, Tensor]:
    """A patched model, which lies in a file too, and its logits."""
    model = made(name).eval()
    with torch.no_grad():
        expected = model(IDS).logits
    kernels.patch(model)
    torch.save(model, path)
    return model, expected


@pytest.mark.parametrize(
    "name",
    [name if name in ("Llama", "GPT-2", "BERT") else pytest.param(name, marks=pytest.mark.slow) for name in MODELS],
)
def test_a_patched_model_is_pickled(name, tmp_path, monkeypatch):
    """Loading patches it too, also where nobody has imported the patch; its parameters are the functions' own."""
    model, expected = pickled(name, tmp_path / "model")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(kernels, "patching", kernels.patching)
        elsewhere.delitem(sys.modules, "kernels.patching")
        for interface in (AttentionInterface, AttentionMaskInterface):
            elsewhere.delitem(interface._global_mapping, NAME)
        loaded = torch.load(tmp_path / "model", weights_only=False)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
            torch.testing.assert_close(loaded(IDS).logits, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="patched already"):
        kernels.patch(torch.load(tmp_path / "model", weights_only=False))


@pytest.mark.slow
def test_another_process_loads_a_patched_model(tmp_path):
    """Nobody has called `patch` there."""
    files = [tmp_path / file for file in ("model", "ids", "logits")]
    _, expected = pickled("Llama", files[0])
    torch.save(IDS, files[1])
    subprocess.run([sys.executable, "-c", LOADS, *files], check=True)
    torch.testing.assert_close(torch.load(files[2]), expected, rtol=1e-5, atol=1e-5)


def test_a_patched_model_is_copied_and_compiled():
    model = on_device(LlamaForCausalLM(LlamaConfig(**LLAMA)))
    expected = results(model, None)
    kernels.patch(model)
    assert_alike(results(copy.deepcopy(model), None), expected)
    compiled = torch.compile(model.eval(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(IDS).logits, model(IDS).logits, rtol=1e-5, atol=1e-5)


def test_what_has_no_head_or_another_one():
    model = on_device(LlamaModel(LlamaConfig(**LLAMA)))
    assert "loss" not in str(kernels.patch(model))
    classifier = on_device(BertForSequenceClassification(BertConfig(**BERT)))
    labels = torch.tensor([0, 1], device=DEVICE)
    before = classifier(IDS, labels=labels).loss
    with kernels.patch(classifier) as report:
        assert "loss" not in str(report)
        torch.testing.assert_close(classifier(IDS, labels=labels).loss, before, rtol=1e-5, atol=1e-5)


@every_model
def test_weights_that_no_kernel_makes_are_refused(name):
    """Also those of a GPT-2, whose attention transformers does not tell; and they are there again after the patch."""
    model = on_device(MODELS[name][0]())
    model.set_attn_implementation("eager")
    with kernels.patch(model):
        for part in (model, model.base_model):
            with pytest.raises(
                ValueError, match=r"^output_attentions is set, and these kernels never make the weights"
            ):
                part(IDS, output_attentions=True)
    assert len(model(IDS, output_attentions=True).attentions) == model.config.num_hidden_layers
    model.config.output_attentions = True
    with kernels.patch(model), pytest.raises(ValueError, match=r"^output_attentions is set"):
        model(IDS)


def test_an_attention_with_a_softcap_is_refused():
    """A Gemma 2 is not patched, but may be told to use our attention by its name."""
    model = on_device(Gemma2ForCausalLM(Gemma2Config(**LLAMA, head_dim=6)))
    model.set_attn_implementation(NAME)
    with pytest.raises(ValueError, match=r"^attention is called with softcap, which it does not have"):
        model(IDS)


def test_what_is_not_known_is_refused_by_name():
    t5 = T5ForConditionalGeneration(T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=9))
    with pytest.raises(
        ValueError, match=r"a T5ForConditionalGeneration \(t5\), which is not known; known are: bert, gemma, g"
    ):
        kernels.patch(t5)
    for what in (nn.Linear(2, 2), "bert-base", None):
        with pytest.raises(TypeError, match=r"^model is a \w+, expected a model of transformers"):
            kernels.patch(what)  # pyright: ignore[reportArgumentType]
    model = made("Llama")
    with kernels.patch(model):
        with pytest.raises(ValueError, match=r"patched already: undo\(\) that first"):
            kernels.patch(model)
        with pytest.raises(ValueError, match="never make the weights"):
            model(IDS, output_attentions=True)
