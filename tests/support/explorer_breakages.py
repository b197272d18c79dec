"""Mistakes in the explorer's JavaScript, as in `breakages`: the tests that run it in Node must refuse each of them."""

from support.breakages import breakages

EXPLORER_BREAKAGES = breakages(r"""
[explorer/src/engine/attention.js: explorer/test_explorer_configurations]
missing scale | scaled(productWithTransposed(query, key), config.scale) → productWithTransposed(query, key)
query's gradient without the scale | dscores = scaled(dscores, config.scale); → dscores = scaled(dscores, 1);
key/value head h % Hk serves query head h
    const shared = Math.floor((head * numKvHeads) / numHeads);\n    const key = →
        const shared = head % numKvHeads;\n    const key =
a key's gradient turned forward
    dkey = turned(rotary, dkey, placesOf(pass.off, stack, 0, numKeys), -1) →
        dkey = turned(rotary, dkey, placesOf(pass.off, stack, 0, numKeys))
the softcap's slope forgotten | dscore * (1 - tanh * tanh) → dscore
a masked position that is seen | !isMasked[key] && (!isSelf → (!isSelf
positions of a past start at 0 again | const query = pass.start + Math.floor → const query = Math.floor
[explorer/src/engine/pattern.js: explorer/test_explorer_configurations]
causal mask off by one | if (causal && key > query) → if (causal && key >= query)
window off by one | Math.abs(query - key) <= window → Math.abs(query - key) < window
[explorer/src/engine/norm.js: explorer/test_explorer_configurations]
the mean of the gradient forgotten | (dn[c] - meanOfDn - n[c] * alongNormed) → (dn[c] - n[c] * alongNormed)
[explorer/src/engine/block.js: explorer/test_explorer_configurations]
the residual connection has no gradient | dx: add(dsum, dbefore), dmemory → dx: dbefore, dmemory
[explorer/src/engine/stack.js: explorer/test_explorer_configurations]
only the first block gives the memory a gradient | dmemory ? add(dmemory, back.dmemory) : back.dmemory → back.dmemory
the output's scale forgotten in the gradient | scaled(doutput, stack.config.outputScale) → doutput
[explorer/src/engine/feed_forward.js: explorer/test_explorer_configurations]
the gate's gradient without the other half | dy * hidden.data[place + dFf] * slope → dy * slope
[explorer/src/engine/activation.js: explorer/test_explorer_configurations]
silu's slope without its second part | sigmoid(x) * (1 + x * (1 - sigmoid(x))) → sigmoid(x)
[explorer/src/engine/positions.js: explorer/test_explorer_configurations]
sines and cosines swapped | [sine, cosine] → [cosine, sine]
ALiBi that grows with the distance | -config.slopes[head] → config.slopes[head]
distances of T5 from the key | const distance = key - query; → const distance = query - key;
[explorer/src/engine/search.js: explorer/test_explorer_configurations]
a beam that keeps the worst | b.logProb - a.logProb → a.logProb - b.logProb
[explorer/src/engine/lens.js: explorer/test_explorer_configurations]
no final norm in the lens | leave(model.decoder, here).output → here
""")
