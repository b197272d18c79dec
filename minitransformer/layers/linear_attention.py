"""Linear self-attention: its cost grows as T, and of the past it keeps sums, as a recurrent network does."""

from ..config import require
from ..ops import Array
from .attention import SelfAttention
from .context import Context


class LinearSelfAttention(SelfAttention):
    """Self-attention with `φ(query) · φ(key)` in the place of the softmax. Source: Katharopoulos et al. 2020."""

    op = "linear_attention"

    def mix(self, query: Array, key: Array, value: Array, context: Context) -> tuple[Array, tuple]:
        """Queries `(B, H, T, D)`, keys and values `(B, Hk, T, ·)` → the heads `(B, H, T, Dv)`."""
        # φ is not linear: its products depend on absolute positions too, which padding on the left shifts.
        alike = context.padding is None or self.rotary is None
        require(alike, "with rotary positions and linear attention, texts of one batch need the same length")
        mask, past = context.mask, context.cache
        if past is None:
            mixed, cache = self.ops.linear_attention.forward(query, key, value, causal=self.causal, key_mask=mask)
            return mixed, (cache, None)
        mask = mask if mask is None else mask[:, mask.shape[1] - key.shape[2] :]
        sums = past.rows.get(self.name, ())
        mixed, past.rows[self.name] = self.ops.linear_attention_step(query, key, value, *sums, key_mask=mask)
        return mixed, (None, None)
