"""Models seen from inside: what one run does, recorded, what each part of it is worth, and a page that shows it.

recording = record(model, ids)
look_inside(model, tokenizer, "The capital of France is", "inside.html")    # from .page
"""

from .attribution import Attribution, logit_attribution
from .circuits import (
    composition_scores,
    induction_scores,
    ov_circuit,
    previous_token_scores,
    qk_circuit,
    repeated_tokens,
)
from .patching import Site, effects, estimated_effects, grid, logit_difference, patch
from .recording import Recording, Stream, attention_maps, logit_lens, record

__all__ = [
    "Attribution", "Recording", "Site", "Stream", "attention_maps", "composition_scores", "effects",
    "estimated_effects", "grid", "induction_scores", "logit_attribution", "logit_difference", "logit_lens",
    "ov_circuit", "patch", "previous_token_scores", "qk_circuit", "record", "repeated_tokens",
]  # fmt: skip
