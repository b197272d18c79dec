"""Lesson 08: Figure 1 from a running model, and gradients layer by layer."""

from collections.abc import Mapping
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

from minitransformer.models import Transformer
from paper.experiments.figures.architecture import architecture_page

from ..style import BLUE, ORANGE, VERMILION


def figure_1(model: Transformer, source: np.ndarray, target: np.ndarray) -> Image:
    """The paper's figure 1 for this model, with the shapes that source (B, Ts) and target (B, Tt) take in it."""
    picture = BytesIO()
    with plt.rc_context({"figure.constrained_layout.use": False}):  # the page places its parts itself
        architecture_page(model, source, target).figure.savefig(picture, format="png", dpi=97)
    return Image(picture.getvalue())


def draw_layer_gradients(norms: Mapping[str, np.ndarray]) -> None:
    """Norms of the gradient by layer: each (2, L), the encoder's layers and the decoder's, the lowest first."""
    styles = zip((VERMILION, BLUE, ORANGE), ("o-", "s-", "^--"), strict=True)
    _, both = plt.subplots(1, 2, figsize=(7.2, 3.3), sharey=True)
    for (name, stacks), (colour, style) in zip(norms.items(), styles, strict=True):
        for axes, stack in zip(both, stacks, strict=True):
            axes.semilogy(np.arange(1, len(stack) + 1), stack, style, ms=4, color=colour, label=name)
    for axes, title in zip(both, ("Encoder", "Decoder"), strict=True):
        axes.set(title=title, xlabel="layer (1 is next to the embedding)")
    both[0].set_ylabel("norm of the gradient\nof a layer's parameters")
    both[1].legend(loc="lower right")
    plt.show()
