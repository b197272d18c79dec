"""The keys of a folder's `config.json`: each is obeyed, has no effect, or is refused.

`transformers` accepts any key and obeys some that its classes don't declare. A key that is unknown here might change
the model's outputs, so it is refused too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .files import PretrainedError

ABOUT = frozenset(
    "model_type architectures transformers_version name_or_path _name_or_path _commit_hash auto_map language "
    "finetuning_task task_specific_params tokenizer_class prefix transformers.js_config unsloth_version unsloth_fixed "
    "sentence_transformers author license created_date cell emb_size structure pre_trained training".split()
)
"""The keys of a configuration that say what a folder holds and where it comes from."""

WITHOUT_EFFECT = ABOUT | frozenset(
    # Options of the computation, its types and its results.
    "dtype torch_dtype use_bfloat16 torchscript return_dict output_hidden_states output_attentions output_past "
    "use_cache chunk_size_feed_forward gradient_checkpointing _attn_implementation _attn_implementation_autoset "
    "attn_implementation _experts_implementation experts_implementation tie_last_hidden_states _flash_attn_2_enabled "
    "xla_device "
    # Special tokens that a kind of model does not need.
    "pad_token_id bos_token_id eos_token_id decoder_start_token_id eos_token_ids sep_token_id cls_token_id "
    "unk_token_id "
    "mask_token_id "
    # Names of classes, whose number follows from the tensors, and options of training.
    "id2label label2id num_labels _num_labels problem_type classifier_dropout classif_dropout "
    # Options of `generate`: see `generation_config.json`.
    "assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens diversity_penalty "
    "do_sample early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff "
    "exponential_decay_length_penalty force_bos_token_to_be_generated forced_bos_token_id forced_eos_token_id "
    "length_penalty max_length max_new_tokens min_length no_repeat_ngram_size num_assistant_tokens "
    "num_assistant_tokens_schedule num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values "
    "repetition_penalty return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p "
    "typical_p".split()
)
"""The keys that have no effect in the configuration of any kind of model."""

NOTHING = (None, {}, [], "", False)
"""The values with which an unknown key is accepted, since they ask for nothing."""

SUPPORTED: Mapping[str, Any] = {
    "per_layer_config": None,
    "quantization_config": None,
    "quantization": None,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
}
"""The only supported value of each key, in the configuration of any kind of model."""


@dataclass(frozen=True)
class Keys:
    """The keys of one kind of model.

    obeyed     keys that our configuration follows
    supported  keys with their only supported value
    idle       keys that change no output of a trained model here
    aliases    other names of keys, which `transformers` prefers if both are given
    """

    obeyed: frozenset[str]
    supported: Mapping[str, Any] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> set[str]:
        """All keys that a configuration may have."""
        own = {*self.obeyed, *self.supported, *self.idle, *self.aliases}
        return own | {*WITHOUT_EFFECT, *SUPPORTED}

    def checked(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration without aliases. Raises PretrainedError, naming the key, for one that is refused."""
        for name, expected in {**SUPPORTED, **self.supported}.items():
            given = values.get(name, expected)
            if given != expected and (expected or given is not None):
                raise PretrainedError(f"{name} {values[name]!r} is not supported, only {expected!r}")
        unknown = sorted(name for name in values.keys() - self.known if values[name] not in NOTHING)
        if unknown:
            raise PretrainedError(
                f"{unknown[0]!r} is no key that is known here, and it might change what the model computes; "
                "without this key the folder is read"
            )
        own = {name: value for name, value in values.items() if name not in self.aliases}
        return own | {self.aliases[name]: value for name, value in values.items() if name in self.aliases}


def words(text: str, *more: Iterable[str]) -> frozenset[str]:
    """Return the set of a text's words and of more words."""
    return frozenset(text.split()).union(*more)
