"""Each key of `config.json` is obeyed, has no effect, or is refused; and so are those of other classes' heads."""

import copy
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pretrained_cases import KINDS, VITS, inputs, ours, random_model, rewrite, theirs, tr

from minitransformer.pretrained import ARCHITECTURES, MISSING, PretrainedError, load

CLASSES = {kind: type(random_model(kind, 0).config) for kind in KINDS}


def tied_model(kind: str) -> Any:
    """A model with a masked head, or whose output layer's table is that of the tokens."""
    for seed in range(30):
        model = random_model(kind, seed)
        output = model.get_output_embeddings()
        if output is not None and output.weight is model.get_input_embeddings().weight:
            return model
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_their_configurations_is_known(kind: str) -> None:
    there, keys = CLASSES[kind], ARCHITECTURES[kind].keys
    declared = {each.name for each in fields(there)} | {*there.attribute_map, *there().to_dict()}
    popped = set(tr.GenerationConfig._get_default_generation_params())  # of older files, which had them all in one
    assert sorted((declared | popped) - keys.known) == []
    mapped = {name: real for name, real in there.attribute_map.items() if name not in keys.obeyed}
    assert dict(keys.aliases) == mapped


PUBLISHED = {
    "gpt2": "_num_labels id2label label2id n_ctx n_special predict_special_tokens summary_activation summary_type "
    "summary_first_dropout summary_proj_to_labels summary_use_proj task_specific_params torch_dtype "
    "gradient_checkpointing",
    "llama": "_name_or_path max_sequence_length pretraining_tp rope_scaling rope_theta is_llama_config "
    "rope_interleaved transformers.js_config torch_dtype unsloth_version max_length pad_token_id",
    "mistral": "sliding_window rope_theta torch_dtype use_cache",
    "qwen2": "use_mrope max_window_layers sliding_window use_sliding_window rope_theta torch_dtype",
    "qwen3": "max_window_layers use_sliding_window rope_scaling rope_theta attention_bias head_dim torch_dtype",
    "bert": "_num_labels directionality finetuning_task output_past pooler_fc_size pooler_num_attention_heads "
    "pooler_num_fc_layers pooler_size_per_head pooler_type position_embedding_type gradient_checkpointing "
    "sbert_ce_default_activation_function sentence_transformers id2label",
    "gemma": "hidden_activation rope_scaling rope_theta torch_dtype attention_bias",
    "gemma2": "cache_implementation hidden_act hidden_activation query_pre_attn_scalar rope_theta torch_dtype",
    "gemma3_text": "cache_implementation rope_local_base_freq rope_scaling rope_theta sliding_window_pattern "
    "_sliding_window_pattern use_bidirectional_attention",
    "mt5": "tokenizer_class output_past dense_act_fn is_gated_act",
    "roberta": "gradient_checkpointing position_embedding_type classifier_dropout id2label language name_or_path",
    "xlm-roberta": "output_past position_embedding_type gradient_checkpointing",
    "camembert": "output_past gradient_checkpointing",
    "distilbert": "tie_weights_ sinusoidal_pos_embds output_past finetuning_task id2label",
    "t5": "n_positions output_past task_specific_params dense_act_fn is_gated_act prefix gradient_checkpointing",
    "vit": "_name_or_path encoder_stride problem_type torch_dtype",
    "deit": "_name_or_path encoder_stride problem_type torch_dtype id2label",
    "marian": "_num_labels add_bias_logits add_final_layer_norm bad_words_ids classif_dropout "
    "do_blenderbot_90_layernorm extra_pos_embeddings force_bos_token_to_be_generated normalize_before "
    "normalize_embedding num_beams num_hidden_layers static_position_embeddings max_length tokenizer_class",
}
"""Keys that their classes don't declare, in folders on the hub: GPT-2 and its like, TinyLlama and SmolLM2, multilingual
BERT and sentence-transformers, T5, ViT, opus-mt."""


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_published_folders_are_known(kind: str) -> None:
    assert set(PUBLISHED[kind].split()) <= ARCHITECTURES[kind].keys.known


@pytest.mark.parametrize("kind", KINDS)
def test_keys_without_effect_have_none_there(kind: str) -> None:
    """The keys that could have one: numbers and switches that their class declares."""
    there, keys = CLASSES[kind], ARCHITECTURES[kind].keys
    model = random_model(kind, 0) if kind in VITS else tied_model(kind)
    given = inputs(kind, model, 1)
    with torch.no_grad():
        expected = theirs(model, given)
        for each in fields(there):
            value = getattr(model.config, each.name)
            if each.name in keys.idle and type(value) in (bool, int, float):
                config = copy.deepcopy(model.config)
                setattr(
                    config,
                    each.name,
                    not value if type(value) is bool else value / 2 if type(value) is float else value + 1,
                )
                again = type(model)(config).eval()
                again.load_state_dict(model.state_dict(), strict=False)
                torch.testing.assert_close(theirs(again, given), expected, rtol=0, atol=1e-6, msg=each.name)


def saved(model: Any, folder: Path, **changed: Any) -> Path:
    """A model's folder with other values in its configuration."""
    model.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder


REFUSED: list[tuple[str, Mapping[str, Any], str]] = [
    ("gpt2", {"a_new_option": 3}, "'a_new_option' is no key that is known here"),
    ("gpt2", {"quantization_config": {"bits": 4}}, "quantization_config"),
    ("gpt2", {"architectures": ["GPT2ForSequenceClassification"]}, "holds a GPT2ForSequenceClassification"),
    ("gpt2", {"scale_attn_weights": None}, "scale_attn_weights None"),
    ("llama", {"is_causal": False}, "is_causal False"),
    (
        "llama",
        {
            "rope_parameters": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            "original_max_position_embeddings": 0,
        },
        "original_max_length is 0",
    ),
    ("mistral", {"sliding_window": 0}, "sliding_window is 0, expected 1 or more"),
    ("mistral", {"attention_bias": True}, "'attention_bias' is no key that is known here"),
    ("qwen2", {"layer_types": ["full_attention", "sliding_attention"] * 20}, "layer_types names 40 layers"),
    ("qwen2", {"layer_types": [["sliding_attention"]]}, "layer_types is not supported, only a list of"),
    (
        "qwen2",
        {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
        "layer_types is not supported, only with every n-th layer that has no window",
    ),
    (
        "qwen3",
        {
            "num_hidden_layers": 2,
            "layer_types": None,
            "use_sliding_window": True,
            "sliding_window": 4,
            "max_window_layers": 1,
        },
        "max_window_layers 1 is not supported, only 0",
    ),
    ("bert", {"architectures": ["BertForMultipleChoice"]}, "holds a BertForMultipleChoice"),
    ("bert", {"architectures": ["BertForNextSentencePrediction"]}, "holds a BertForNextSentencePrediction"),
    ("roberta", {"hidden_act": "relu"}, "hidden_act 'relu' is not supported, only 'gelu'"),
    ("roberta", {"max_position_embeddings": 2}, "max_length is"),
    ("distilbert", {"architectures": ["DistilBertForMultipleChoice"]}, "holds a DistilBertForMultipleChoice"),
    ("t5", {"architectures": ["T5EncoderModel"]}, "holds a T5EncoderModel"),
    ("t5", {"is_decoder": True}, "is_decoder True"),
    ("t5", {"eos_token_id": None}, "eos_token_id None is no token of its vocabulary"),
    ("t5", {"pad_token_id": None}, "it has no pad_token_id"),
    ("vit", {"num_attention_heads": 0}, "num_heads is 0"),
    ("vit", {"num_labels": 9}, "name 9 classes"),
    ("vit", {"id2label": None, "num_labels": 0}, "name 0 classes"),
    ("vit", {"head_dim": 1}, "head_dim 1"),
    ("vit", {"architectures": ["ViTForMaskedImageModeling"]}, "holds a ViTForMaskedImageModeling"),
    ("deit", {"num_labels": 9}, "name 9 classes"),
    ("deit", {"architectures": ["DeiTForMaskedImageModeling"]}, "holds a DeiTForMaskedImageModeling"),
    ("marian", {"architectures": ["MarianForCausalLM"]}, "holds a MarianForCausalLM"),
    ("marian", {"static_position_embeddings": False}, "static_position_embeddings"),
]


@pytest.mark.parametrize(("kind", "changed", "message"), REFUSED)
def test_what_is_not_computed_here_is_refused_by_its_name(
    kind: str, changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(PretrainedError) as caught:
        load(saved(random_model(kind, 0), tmp_path, **changed))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (tr.BertForNextSentencePrediction, "its head is not supported: it is made of cls.seq_relationship.bias"),
    ],
)
def test_a_folder_that_names_no_class_says_what_its_head_is_made_of(head: Any, message: str, tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 9,
    }
    with pytest.raises(PretrainedError) as caught:
        load(saved(head(tr.BertConfig(**sizes)), tmp_path, architectures=None))
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", MISSING)
def test_another_common_model_is_refused_with_the_part_that_is_missing(kind: str, tmp_path: Path) -> None:
    folder = saved(tr.AutoModel.from_config(small_config(kind)), tmp_path)
    with pytest.raises(PretrainedError) as caught:
        load(folder)
    assert f"model_type {kind!r} is not supported: {MISSING[kind]}; supported are gpt2, mistral" in str(caught.value)


def small_config(kind: str) -> Any:
    """The smallest configuration of a class of `transformers`."""
    config = tr.CONFIG_MAPPING[kind]()
    small = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "d_model": 8}
    small |= {"num_key_value_heads": 2, "intermediate_size": 8, "embedding_size": 8, "ffn_dim": 8}
    small |= {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    small |= {
        "pad_token_id": 0,
        "max_position_embeddings": 8,
        "word_embed_proj_dim": 8,
    }
    small |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "attention_types": [[["global"], 1]]}
    small |= {"image_size": 4, "patch_size": 2}
    given = {name: value for name, value in small.items() if hasattr(config, name)}
    return type(config)(**given)


def test_an_alias_goes_before_the_name_itself(tmp_path: Path) -> None:
    model = random_model("gpt2", 0)
    heads = 2 if model.config.n_embd % 2 == 0 and model.config.n_head != 2 else 1
    folder = saved(model, tmp_path, num_attention_heads=heads)
    there = tr.GPT2LMHeadModel.from_pretrained(folder).eval().double()
    assert there.config.n_head == heads
    given = inputs("gpt2", model, 0)
    logits, _ = ours("gpt2", load(folder, dtype="float64")[0], given)
    mask = given["attention_mask"] == 1
    assert abs(logits - theirs(there, given).detach().numpy())[mask].max() < 1e-9


def test_a_number_of_passes_that_changes_no_number_is_read(tmp_path: Path) -> None:
    assert load(saved(random_model("llama", 0), tmp_path, pretraining_tp=2))[0].config.kind == "gpt"


def test_an_unknown_key_that_asks_for_nothing_is_read(tmp_path: Path) -> None:
    folder = saved(random_model("llama", 0), tmp_path, sliding_window=None, a_new_one={}, author="somebody")
    assert load(folder)[0].config.kind == "gpt"


def test_positions_that_are_not_the_papers_are_refused(tmp_path: Path) -> None:
    model = random_model("marian", 0)
    folder, name = saved(model, tmp_path), "model.encoder.embed_positions.weight"
    table = model.model.encoder.embed_positions.weight.detach().clone()
    rewrite(folder, lambda t: t | {name: table.bfloat16()})
    load(folder)
    rewrite(folder, lambda t: t | {name: table + 0.1})
    with pytest.raises(PretrainedError, match=f"{name} is not what such a model computes"):
        load(folder)


def test_a_bare_bert_may_have_its_models_name_before_its_tensors(tmp_path: Path) -> None:
    folder = saved(random_model("bert", 2), tmp_path)
    plain = load(folder)[0]
    rewrite(folder, lambda t: {f"bert.{name}": each for name, each in t.items()})
    np.testing.assert_array_equal(load(folder)[0].parameters.data, plain.parameters.data)


PAIRS = [
    ("gpt2", "lm_head.weight", "transformer.wte.weight"),
    ("llama", "lm_head.weight", "model.embed_tokens.weight"),
    ("t5", "lm_head.weight", "shared.weight"),
    ("t5", "decoder.embed_tokens.weight", "shared.weight"),
    ("marian", "lm_head.weight", "model.shared.weight"),
    ("marian", "model.encoder.embed_tokens.weight", "model.shared.weight"),
    ("bert", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    ("bert", "cls.predictions.decoder.bias", "cls.predictions.bias"),
    ("mistral", "lm_head.weight", "model.embed_tokens.weight"),
    ("roberta", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    ("roberta", "lm_head.decoder.bias", "lm_head.bias"),
    ("distilbert", "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),
]


@pytest.mark.parametrize(("kind", "other", "original"), PAIRS)
def test_copies_of_tied_tensors_are_compared(kind: str, other: str, original: str, tmp_path: Path) -> None:
    """An equal one is dropped, an original that is missing is replaced, and another output layer is kept as theirs."""
    theirs_tied = tied_model(kind)
    folder = saved(theirs_tied, tmp_path)
    plain = load(folder)[0]
    rewrite(folder, lambda t: t | {other: t[original].clone()})
    same = load(folder)[0]
    assert same.config == plain.config
    np.testing.assert_array_equal(same.parameters.data, plain.parameters.data)
    rewrite(folder, lambda t: {name: each for name, each in t.items() if name != original})
    np.testing.assert_array_equal(load(folder)[0].parameters.data, plain.parameters.data)
    rewrite(folder, lambda t: t | {original: t[other] + 1})
    if other == "lm_head.weight" and kind != "marian":
        there = type(theirs_tied).from_pretrained(folder).eval()
        model = load(folder)[0]
        assert not model.config.tied
        table = model.parameters.named["output.table"].data
        np.testing.assert_array_equal(table, there.lm_head.weight.detach().numpy())
    else:
        with pytest.raises(PretrainedError, match=r"differ, but they are one array"):
            load(folder)
