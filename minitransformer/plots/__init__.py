"""Pictures as PNG: attention maps with both sentences on the axes, and the course of a training run.

Drawn with matplotlib's objects, without pyplot: no window, no global state, safe in threads. Import this package only
where a picture is wanted; matplotlib takes its time.
"""

from .attention import plot_attention, plot_one_attention
from .loss import plot_loss

__all__ = ["plot_attention", "plot_loss", "plot_one_attention"]
