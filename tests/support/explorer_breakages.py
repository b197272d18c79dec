"""Mistakes in the explorer's JavaScript, as in `breakages`: the tests that run it in Node must refuse each of them."""

from support.breakages import breakages

EXPLORER_BREAKAGES = breakages(r"""
[explorer/src/engine/attention.js: explorer/test_explorer_configurations]
missing scale
    attentionForward: scaled(productWithTransposed(query, key), config.scale) → productWithTransposed(query, key)
query's gradient without the scale | attentionBackward: config.scale → 1
key/value head h % Hk serves query head h
    attentionForward: Math.floor((head * numKvHeads) / numHeads) → head % numKvHeads
a key's gradient turned forward | attentionBackward: numKeys), -1) → numKeys))
the bias bent by the softcap's slope | attentionBackward: bias ? add(scores, scaled(bias, -1)) : scores → scores
a query's norm without a gradient | attentionBackward: normBackward(layer.headNorms[0], dquery, queryNorm) → dquery
a masked position that is seen | maskOf: !isMasked[key] && (!isSelf → (!isSelf
positions of a past start at 0 again | maskOf: pass.start + Math.floor → Math.floor
[explorer/src/engine/matrix.js: explorer/test_explorer_configurations]
the softcap's slope forgotten | cappedBackward: each * (1 - (y.data[place] / softcap) ** 2) → each
[explorer/src/engine/join.js: explorer/test_explorer_configurations]
the keys of a longer text twice | WHOLE: "key", "value" → "value"
[explorer/src/engine/model.js: explorer/test_explorer_configurations]
a longer text that begins again at the first position | modelForward: earlier.inputs.target.length → 0
every layer with the window of the first | buildAttention: stackConfig.attentions[layer] → stackConfig.attentions[0]
logits that no softcap bends | logitsOf: logitsSoftcap ? capped(logits, logitsSoftcap) : logits → logits
[explorer/src/engine/pretrained.js: explorer/test_explorer_pretrained]
the last of the oldest pairs is merged first | bpe: waits[i] < waits[best] → waits[i] <= waits[best]
neighbours that are unknown have a token each | unigram: isUnknown && found[0]?.id === null → false
a shorter added token hides a longer one | finder: b.length - a.length → a.length - b.length
a grapheme that gives way character by character | sentencepiece: utf8(segment).length < 6 → utf8(segment).length < 2
every part gets the space of the first | changed: isFirst || when === "always" → true
[explorer/cutting.py: explorer/test_explorer_pretrained]
JavaScript's white space for Oniguruma's | CLASSES: r"\s": SPACE → r"\s": r"\s"
[explorer/src/engine/matrix.js: explorer/test_explorer_engine]
int8's columns unscaled on the way back | productWithTransposed: each * columnScales[place % a.cols] → each
the scale of int8's rows forgotten | productWithTransposed: b.rowScales ? b.rowScales[j] : 1 → 1
[explorer/src/engine/pattern.js: explorer/test_explorer_configurations]
causal mask off by one | allows: key > query → key >= query
window off by one | allows: <= window → < window
[explorer/src/engine/patches.js: explorer/test_explorer_configurations]
a patch that counts positions from where a text goes on | patched: covers(patch, start + t) → covers(patch, t)
a patch of one head in all heads | patchesOf: && each.head === head → && (each.head === null) === (head === null)
a patch after the layer before it | valuesAt: layers[layer - 1].output → layers[Math.max(layer - 2, 0)].output
a gradient through what was replaced | patchedBackward: isPatched(patches, t) → false
[explorer/src/engine/patches.js: explorer/test_explorer_engine]
a share of the way from zero | shareOf: patched.difference - own.difference → patched.difference
[explorer/src/engine/pictures.js: explorer/test_explorer_captioner]
patches column by column
    cutIntoPatches: [Math.floor(patch / across) * patchSize, (patch % across) * patchSize] →
        [(patch % across) * patchSize, Math.floor(patch / across) * patchSize]
a patch's pixels column by column
    cutIntoPatches: [top + Math.floor(inside / patchSize), left + (inside % patchSize)] →
        [top + (inside % patchSize), left + Math.floor(inside / patchSize)]
[explorer/src/engine/stack.js: explorer/test_explorer_captioner]
vectors without their positions | stackForward: positions ? add(embedding, positions) : embedding → embedding
[explorer/src/engine/search.js: explorer/test_explorer_captioner]
a caption as long as the patches allow | longestOutput: config.kind === "captioner" → false
[explorer/src/engine/norm.js: explorer/test_explorer_configurations]
the mean of the gradient forgotten | normBackward: dn[c] - meanOfDn → dn[c]
[explorer/src/engine/block.js: explorer/test_explorer_configurations]
a norm of the output without a gradient
    sublayerBackward: outputNorm && trace.outputNorm ? normBackward(outputNorm, dsum, trace.outputNorm) : dsum → dsum
the residual connection has no gradient | sublayerBackward: add(dsum, dbefore) → dbefore
[explorer/src/engine/stack.js: explorer/test_explorer_configurations]
only the first block gives the memory a gradient
    stackBackward: dmemory ? add(dmemory, back.dmemory) : back.dmemory → back.dmemory
the output's scale forgotten in the gradient | stackBackward: scaled(doutput, stack.config.outputScale) → doutput
[explorer/src/engine/feed_forward.js: explorer/test_explorer_configurations]
the gate's gradient without the other half | feedForwardBackward: hidden.data[place + dFf] * slope → slope
[explorer/src/engine/activation.js: explorer/test_explorer_configurations]
silu's slope without its second part | ACTIVATIONS: sigmoid(x) * (1 + x * (1 - sigmoid(x))) → sigmoid(x)
[explorer/src/engine/positions.js: explorer/test_explorer_configurations]
sines and cosines swapped | positionVectors: sine, cosine → cosine, sine
ALiBi that grows with the distance | relativeBias: -config.slopes → config.slopes
distances of T5 from the key | relativeBias: key - query → query - key
[explorer/src/engine/search.js: explorer/test_explorer_configurations]
a beam that keeps the worst | beamSearch: b.logProb - a.logProb → a.logProb - b.logProb
[explorer/src/engine/lens.js: explorer/test_explorer_configurations]
no final norm in the lens | logitLens: leave(model.decoder, here).output → here
""")
