"""Pictures as PNG: attention maps with both sentences on the axes, the logit lens, and a training's losses.

They use matplotlib's objects without pyplot: no window, no global state, safe in threads. Import this package only when
you need a picture, because importing matplotlib is slow.
"""

from .attention import plot_attention, plot_one_attention
from .lens import plot_logit_lens
from .loss import plot_loss

__all__ = ["plot_attention", "plot_logit_lens", "plot_loss", "plot_one_attention"]
