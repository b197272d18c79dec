"""Mistakes in the recurrent and the convolutional models that the proof must refuse; see `breakages.py`."""

from support.breakages import Breakage

RECURRENT, CONVOLUTION = "tests/layers/test_recurrent_layers.py", "tests/layers/test_convolution_layers.py"
DECODING, GRADIENTS = "tests/models/test_decoding_in_steps.py", "tests/models/test_model_gradients.py"

BASELINE_BREAKAGES = [
    Breakage(
        "tanh's slope as 1 − y",
        "ops/tanh.py",
        "return dy * (1 - y * y)",
        "return dy * (1 - y)",
        "tests/ops/test_tanh_sigmoid.py",
    ),
    Breakage(
        "a sigmoid's slope without its second factor",
        "ops/sigmoid.py",
        "return dy * y * (1 - y)",
        "return dy * y",
        "tests/ops/test_tanh_sigmoid.py",
    ),
    Breakage(
        "a causal convolution that sees the future",
        "ops/conv1d.py",
        '"causal": (taps - 1, 0)',
        '"causal": (taps // 2, taps - 1 - taps // 2)',
        "tests/ops/test_conv1d.py",
    ),
    Breakage(
        "a convolution's windows overwrite each other's gradient",
        "ops/conv1d.py",
        "dpadded[:, k : k + length] += dwindows",
        "dpadded[:, k : k + length] = dwindows",
        "tests/ops/test_conv1d.py",
    ),
    Breakage(
        "additive attention without its mask",
        "ops/additive_attention.py",
        "scores = np.where(key_mask[:, None], scores, scores.dtype.type(-np.inf))",
        "pass",
        "tests/ops/test_additive_attention.py",
    ),
    Breakage(
        "additive attention's features not squared in their slope",
        "ops/additive_attention.py",
        "dsum = 1 - features * features",
        "dsum = 1 - features",
        "tests/ops/test_additive_attention.py",
    ),
    Breakage(
        "the state not carried past padding",
        "layers/recurrent.py",
        "tuple(real * new + padding * old for new, old in zip(after, current, strict=True))",
        "tuple(real * new for new in after)",
        RECURRENT,
    ),
    Breakage(
        "the gradient not carried past padding",
        "layers/recurrent.py",
        "tuple(old + padding * d for old, d in zip(dold, dafter, strict=True))",
        "dold",
        RECURRENT,
    ),
    Breakage(
        "back through time: what the later positions send is dropped",
        "layers/recurrent.py",
        "dafter = (dbefore[0] + dhidden[:, t], *dbefore[1:])",
        "dafter = (dhidden[:, t], *dbefore[1:])",
        RECURRENT,
    ),
    Breakage(
        "the recurrent map's gradient from the states after, not before",
        "layers/recurrent.py",
        "before, dgates = hidden[:, :-1]",
        "before, dgates = hidden[:, 1:]",
        RECURRENT,
    ),
    Breakage(
        "dropout on what goes to the next position",
        "layers/recurrent.py",
        "            hidden[:, t + 1] = current[0]\n",
        "            drop = context.dropout_at(self.site, self.rate)\n"
        "            current = (self.ops.dropout.forward(current[0], drop)[0], *current[1:])\n"
        "            hidden[:, t + 1] = current[0]\n",
        RECURRENT,
    ),
    Breakage(
        "the forget gate's gradient taken for the other gate's",
        "layers/cells.py",
        "dkeep = dmemory * memory",
        "dkeep = dmemory * candidate",
        RECURRENT,
    ),
    Breakage(
        "the memory's gradient from its output alone, not from later positions",
        "layers/cells.py",
        "dmemory = dmemory + self.ops.tanh.backward(dhidden * read, squashed_cache)",
        "dmemory = self.ops.tanh.backward(dhidden * read, squashed_cache)",
        RECURRENT,
    ),
    Breakage(
        "the memory's gradient passes the forget gate as if it were open",
        "layers/cells.py",
        "dmemory * keep)",
        "dmemory)",
        RECURRENT,
    ),
    Breakage(
        "a memory that is keys and values, its gradient from the keys alone",
        "layers/additive_attention.py",
        "return dx, dmemory + dvalue",
        "return dx, dmemory",
        "tests/layers/test_additive_attention_layer.py",
    ),
    Breakage(
        "the encoder's convolutions see what stands in padding",
        "layers/convolution.py",
        "            x = x * real\n",
        "",
        CONVOLUTION,
    ),
    Breakage(
        "a search that forgets the newest position instead of the oldest",
        "layers/convolution.py",
        "(x[:, x.shape[1] - past.shape[1] :],)",
        "(x[:, : past.shape[1]],)",
        CONVOLUTION,
    ),
    Breakage(
        "a recurrent decoder that attends to padding",
        "layers/additive_attention.py",
        "key_mask=context.memory_mask",
        "key_mask=None",
        DECODING,
    ),
    Breakage(
        "nothing goes back through the single context vector",
        "models/baselines/recurrent.py",
        "return dstates, dfinals",
        "return dstates, [tuple(0 * d for d in final) for final in dfinals]",
        GRADIENTS,
    ),
    Breakage(
        "the encoder's values without the gradient of its input",
        "models/baselines/convolutional.py",
        "self.embedding.backward(dhidden + dembedded, embedding_cache)",
        "self.embedding.backward(dhidden, embedding_cache)",
        GRADIENTS,
    ),
    Breakage(
        "beams that keep another beam's state",
        "layers/cache.py",
        "self.rows = {name: tuple(take(array, rows) for array in kept) for name, kept in self.rows.items()}",
        "pass",
        DECODING,
    ),
]
