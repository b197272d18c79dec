"""The explorer: one page that works offline, with a model inside that a visitor sees at work.

    explore(model, tokenizer, "explorer.html", languages=("en", "de"), examples=["The dog sleeps."])

The page computes the model in JavaScript, from `src/engine`; `page.html` is the template that `build.mjs` makes of
everything in `src`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..data.scenes import caption_language
from ..decoding import Tokenizer
from ..models import Captioner
from ..system.atomic import atomic_write
from .payload import check_model, in_page, payload
from .pictures import example_pictures
from .sentences import example_sentences
from .storage import StorageLoss, measure_loss

__all__ = ["Explored", "StorageLoss", "explore"]


MOST_MEASURED = 400_000_000
"""The loss by int8 is measured on so many sentences times parameters, which takes about a minute."""

PICTURES = 6
"""So many a captioner's page offers."""


class Explored(NamedTuple):
    """The result of `explore`: the page's size in bytes, and the loss by int8, `None` for float32."""

    num_bytes: int
    loss: StorageLoss | None


def explore(
    model: Any,
    tokenizer: Tokenizer,
    path: str | Path,
    *,
    name: str = "model",
    languages: tuple[str, str] | None = None,
    examples: Sequence[str] = (),
    int8: bool = False,
    progress: bool = False,
) -> Explored:
    """Write the page of a model and its tokenizer into a file.

    name: the model's name on the page; languages: those that it translates from and into; examples: sentences to try,
    by default some of the grammar's, but a captioner's are pictures of scenes; int8: store matrices in a quarter of the
    bytes, and measure what that changes;
    progress: show a bar on a terminal meanwhile.
    Raises `ValueError` for a model that the page can't compute or that is too large, and `OSError` if the file can't be
    written.
    """
    model = model if model.bits is None else model.merged()
    check_model(model, tokenizer, int8)
    count = max(3, min(50, MOST_MEASURED // model.parameters.count))
    if isinstance(model, Captioner):
        if examples:
            raise ValueError("the model describes pictures: it has no use for sentences as examples")
        measured, shown = (example_pictures(each, caption_language(tokenizer)) for each in (count, PICTURES))
    else:
        measured = list(examples)[:count] or example_sentences(model, languages, count)
        shown = list(examples) or example_sentences(model, languages, 12)
    loss = measure_loss(model, tokenizer, measured, progress) if int8 else None
    page = in_page(payload(model, tokenizer, name, languages, shown, loss))
    with atomic_write(path) as file:
        file.write(page)
    return Explored(len(page), loss)
