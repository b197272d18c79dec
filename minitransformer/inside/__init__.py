"""Models seen from inside: what one run does, recorded, and a page that shows it.

recording = record(model, ids)
look_inside(model, tokenizer, "The capital of France is", "inside.html")    # from .page
"""

from .recording import Recording, Stream, attention_maps, logit_lens, record

__all__ = ["Recording", "Stream", "attention_maps", "logit_lens", "record"]
