# %% [markdown]
# # 12 · What the heads learned
#
# **You will be able to** say in numbers what each attention head of a trained model does, and find out which of them
# the model needs.
#
# | | |
# |---|---|
# | you know | heads ([05](05_multi_head.ipynb)), the trained translator ([10](10_translator.ipynb)) |
# | runs in | 30 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §4, last paragraph, and Figures 3–5 |
# | in the package | [`Transformer.attention_maps`](../minitransformer/models/transformer.py) |
#
# The paper says that "individual attention heads clearly learn to perform different tasks". Yet all heads of a layer
# start as random matrices of the same kind, and see the same input. What did ours learn?

# %%
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from course import start
from course.lesson_12 import removing
from course.lesson_12.pictures import draw_bars, draw_every_head, draw_offsets, draw_pruning
from course.measuring import blas_threads
from minitransformer import grammar
from minitransformer.data.batching import collate
from minitransformer.decoding import Translator
from minitransformer.evaluation import evaluate
from minitransformer.layers import Context
from minitransformer.layers.attention import split_heads

check = start("12")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)
translator = Translator.from_checkpoint(Path("weights/en-de.safetensors"))
model, tokenizer = translator.model, translator.tokenizer
KINDS = ("encoder", "decoder", "cross")
LAYERS, HEADS = model.config.num_layers, model.config.num_heads
print(f"{3 * LAYERS * HEADS} heads: {LAYERS} layers in each stack, {HEADS} heads in each attention")

# %% [markdown]
# ## The picture: every head at once
#
# The picture shows one short sentence that the model never saw, and the model's own translation of it. A row of a map
# is a query, a column is a key. A row of the decoder is labelled with the token that it writes. The keys of its
# self-attention are the tokens read so far, with `<s>` first; the causal mask leaves the upper right empty.

# %% tags=["picture"]
SENTENCE = "The hunter ran behind the pretty village."
draw_every_head(translator.attention(SENTENCE))

# %% [markdown]
# Look for three patterns: diagonals (a neighbour by position), vertical stripes (one token that every row looks at),
# and scattered blocks (they depend on the words).
#
# ## From impressions to numbers
#
# One sentence proves nothing. So take all maps of a hundred test sentences, and measure.

# %%
examples = list(islice(grammar.sample("test", 0), 100))
batch = collate([tokenizer.encode(e.english) for e in examples], [tokenizer.encode(e.german) for e in examples])
weights = {kind: np.stack(each) for kind, each in model.attention_maps(batch.source, batch.target_in).items()}
lengths = {  # of queries and of keys, (B,) each; the rest of a row is padding
    "source": (batch.source != tokenizer.pad_id).sum(axis=1),
    "target": (batch.target_in != tokenizer.pad_id).sum(axis=1),
}
for kind in KINDS:
    print(f"{kind:<8} {weights[kind].shape}  (layers, B, H, Tq, Tk)")

# %% [markdown]
# ### Exercise 1 ★☆☆: who looks one word back?
#
# For each head, compute the mean weight that a query gives to the key at a fixed distance. The sentences have different
# lengths, so mind the padding.


# %% tags=["exercise"]
def looks_at(weights, lengths, offset):
    """Each head's mean weight from a query to the key `offset` places from it (−1: the token before).

    weights (B, H, T, T), rows are queries; lengths (B,): the tokens of each sentence, the rest is padding.
    The mean is over all pairs (query, query + offset) of all sentences that are both real tokens.
    → (H,)
    """
    raise NotImplementedError


# %%
looks_at = check(looks_at)

# %% [markdown] tags=["help"]
# Take one sentence of four tokens and offset −1. Which pairs (query, key) are there, and how many? Where do their
# weights lie in the map? What changes if the batch has padded the sentence to six?
#
# ---
#
# `real = sentence[:, :length, :length]` is the map of a sentence without its padding, for all heads. The weights at one
# offset are a diagonal of it: `np.diagonal(real, offset, axis1=1, axis2=2)`. Add up the weights and count the pairs
# over all sentences, and divide once, at the end.

# %%
OFFSETS = (-3, -2, -1, 0, 1, 2, 3)
side = {"encoder": "source", "decoder": "target"}
scores = {}  # (layers, H, offsets) each
for kind in side:
    at_offsets = [[looks_at(layer, lengths[side[kind]], offset) for layer in weights[kind]] for offset in OFFSETS]
    scores[kind] = np.moveaxis(np.array(at_offsets), 0, -1)
draw_offsets(scores, OFFSETS)
back = OFFSETS.index(-1)
for kind in side:
    layer, head = np.unravel_index(np.argmax(scores[kind][:, :, back]), (LAYERS, HEADS))
    most = scores[kind][layer, head, back]
    print(f"{kind}: head {layer + 1}.{head + 1} looks one back more than any other, with {most:.2f} of its weight")

# %% [markdown]
# Some heads look back, others look ahead, many do neither. In the decoder, distance 0 is the token that was just read.
#
# ### By position, or by content? (optional)
#
# A head may look one back because of the *position* (the rotation of lesson [06](06_positions.ipynb)), or because of
# the *words*, which happen to stand in that order. An experiment decides: shuffle the tokens of each source sentence,
# and measure again. If a head goes by position, its weights hardly change.

# %%
shuffled = batch.source.copy()
for row, length in zip(shuffled, lengths["source"], strict=True):
    row[: length - 1] = rng.permutation(row[: length - 1])  # </s> stays at its end
again = np.stack(model.attention_maps(shuffled, batch.target_in)["encoder"])

print("head   offset   weight there   after shuffling")
for layer, head in np.ndindex(LAYERS, HEADS):
    favourite = int(np.argmax(scores["encoder"][layer, head]))
    before = scores["encoder"][layer, head, favourite]
    after = looks_at(again[layer], lengths["source"], OFFSETS[favourite])[head]
    print(f"{layer + 1}.{head + 1}    {OFFSETS[favourite]:+6d}   {before:12.2f}   {after:15.2f}")
even = np.average(1 / lengths["source"], weights=lengths["source"])
print(f"a head that spreads evenly gives every key {even:.2f}")

# %% [markdown]
# The last line is the weight of every key for a head without any preference. Weight above it after shuffling is due to
# position. For most heads with a clear favourite, that is most of their weight there. They lose only what came from the
# words: the pairs that a head used to find next to each other now stand elsewhere.
#
# ### Sharp or vague, and resting places (optional)
#
# Most profiles in the picture are hills, not spikes. Either each row spreads its weight over several neighbours, or
# each row has one spike, at a distance that changes from row to row. Two more numbers for each head tell which:
#
# * The *spread* of a row is the exponential of its entropy (lesson [10](10_translator.ipynb)): 1 if all weight lies on
#   one key, $n$ if $n$ keys share it evenly.
# * The *resting weight* is the weight on tokens that mark a beginning or an end: `<s>`, `</s>`, the full stop and the
#   question mark. The weights of a softmax must sum to 1, also where a head has nothing to look for. Such a token may
#   then become its resting place.
#
# To be fair, we count only rows of words (a row that writes a full stop looks at one for a good reason), without the
# decoder's first, which sees nothing but `<s>`. We also print the resting weight of a head that spreads its weight
# evenly.

# %%
sides = {"encoder": "source", "decoder": "target", "cross": "target"}  # of the queries
real = {kind: np.arange(weights[kind].shape[3]) < lengths[sides[kind]][:, None] for kind in KINDS}  # (B, Tq)
dots = [tokenizer.encode(text)[-1] for text in ("It is.", "Is it?")]
marks = [tokenizer.bos_id, tokenizer.eos_id, *dots]
spread, resting, of_even = {}, {}, {}
for kind in KINDS:
    w, rows = weights[kind], real[kind][:, None, :]  # (layers, B, H, Tq, Tk), (B, 1, Tq)
    entropy = -np.sum(w * np.log(np.where(w > 0, w, 1)), axis=-1)  # (layers, B, H, Tq)
    spread[kind] = np.exp((entropy * rows).sum(axis=(1, 3)) / rows.sum())

    key_ids = batch.target_in if kind == "decoder" else batch.source  # (B, Tk)
    row_ids = (
        batch.source if kind == "encoder" else batch.target_out
    )  # (B, Tq): a row's own token, or the one that it writes
    words = real[kind] & ~np.isin(row_ids, marks)
    visible = np.repeat((key_ids != tokenizer.pad_id)[:, None, :], words.shape[1], axis=1)  # (B, Tq, Tk)
    if kind == "decoder":
        words[:, 0], visible = False, np.tril(visible)
    there = np.isin(key_ids, marks)
    resting[kind] = np.einsum("lbhqk,bq,bk->lh", w, words, there) / words.sum()
    of_even[kind] = np.mean((visible & there[:, None, :]).sum(axis=-1)[words] / visible.sum(axis=-1)[words])

print("keys that a row spreads over (weight on <s>, </s>, '.' and '?'; last, with even weights)")
for kind in KINDS:
    for layer in range(LAYERS):
        cells = zip(spread[kind][layer], resting[kind][layer], strict=True)
        each = "  ".join(f"{s:4.1f} ({r:.2f})" for s, r in cells)
        print(f"{kind:<8} layer {layer + 1}  {each}    even ({of_even[kind]:.2f})")

# %% [markdown]
# So both reasons occur. In the encoder a row spreads over several keys. In the first layer of the decoder some heads
# put nearly all the weight of a row on one key: their hill is a mean over spikes.
#
# Resting places are rare. Compare each number with "even", at the end of its line. In the encoder, and in the first
# layer of the attention to the source, most heads give these tokens about as much as an even head would. In the last
# layer to the source all heads but one give them less. In the decoder's self-attention many give more: there the
# resting place is `<s>`, and one head puts about half of its weight on it.
#
# ## Does the model need it? Ablation
#
# A map shows where a head looks, not whether the model uses it. So remove the head and measure (*ablation*). Each head
# $h$, counted from 0, gives $\mathrm{head}_h$, $(T, D_v)$. The heads stand side by side, so head $h$ meets only the
# rows $W^O_h$ of the output matrix, $(D_v, C)$, from row $hD_v$ to $(h+1)D_v - 1$. The output is then a sum over the
# heads:
#
# $$ \mathrm{Concat}(\mathrm{head}_0, \dots, \mathrm{head}_{H-1})\,W^O = \sum_{h} \mathrm{head}_h \, W^O_h $$
#
# Put zeros in those rows, and its term is gone.
#
# ### Exercise 2 ★☆☆: remove a head


# %% tags=["exercise"]
def without_head(weight, head, num_heads):
    """The output projection with one head silenced.

    weight (H·Dv, C), the W^O of H = num_heads heads; head: from 0 → a new array of its shape.
    """
    raise NotImplementedError


# %%
without_head = check(without_head)

# %% [markdown] tags=["help"]
# $W^O$ has $H \cdot D_v$ rows. How many belong to one head, and which is the first row of head 2? Does the caller still
# need the old matrix?
#
# ---
#
# Work on a copy. `copy.reshape(num_heads, -1, weight.shape[1])` has a block of rows for each head, $(H, D_v, C)$; one
# block becomes 0.

# %% [markdown]
# Now remove each head in turn, inside a `with`, and compute the loss on the test sentences:


# %%
attention_of = partial(removing.attention_of, model)
removed = partial(removing.removed, model, without_head)


def loss():
    """Nats per target token."""
    return float(model.loss(batch.source, batch.target_in, batch.target_out, with_grad=False)[0])


whole = loss()
costs = {kind: np.zeros((LAYERS, HEADS)) for kind in KINDS}
for kind in KINDS:
    for layer, head in np.ndindex(LAYERS, HEADS):
        with removed((kind, layer, head)):
            costs[kind][layer, head] = loss() - whole

draw_bars(costs, whole)

# %% [markdown]
# The heads of the last layer that look at the source are worth most. One of them makes German adjectives agree with
# their nouns, as an optional part below shows.
#
# ### Which words suffer? (optional)
#
# Translate without the head that costs least, and without the one that costs most:

# %%
everyone = [(kind, layer, head) for kind in KINDS for layer, head in np.ndindex(LAYERS, HEADS)]
everyone.sort(key=lambda one: costs[one[0]][one[1], one[2]])
free = [one for one in everyone if costs[one[0]][one[1], one[2]] < 0.01]
print(f"{len(free)} of {len(everyone)} heads can go, one at a time, for less than 0.01 nats")

sources, references = [e.english for e in examples], [e.german for e in examples]
intact = translator.translate(sources, beam=1)
for name, heads in (("nothing", []), ("the least", everyone[:1]), ("the most", everyone[-1:])):
    with removed(*heads):
        output = translator.translate(sources, beam=1)
    score, first = evaluate(output, references), removing.newly_wrong(output, intact, references)
    what = ", ".join(f"{kind} {layer + 1}.{head + 1}" for kind, layer, head in heads)
    print(f"\nremoved: {name} {what}\n   BLEU {score.bleu:.1f}, exactly right {score.exact_match:.0f} %")
    most = ", ".join(f"{change} ({count})" for change, count in first.most_common(3))
    print(f"   newly wrong {first.total()}" + (f", and first in: {most}" if first else ""))
    print(f"   {'✓' if output[2] == references[2] else '✗'} {output[2]}")

# %% [markdown]
# *Newly wrong* counts only sentences that the whole model has right. Without the head that costs most, most sentences
# still come out right, and one kind of word goes wrong most often. German builds the perfect of a verb of motion with
# *ist* and *sind*, and that of most other verbs with *hat* and *haben*. To write this word, one must already know the
# verb, and in German the verb stands at the end. In the picture at the top, this head looks at *ran* alone when it
# writes *ist*.
#
# ### A head with a name (optional)
#
# A head in the last layer reads the *noun* while the model writes the ending of an adjective before it (an optional
# part of lesson [10](10_translator.ipynb) found it). If this is its task, then without it the endings must suffer more
# than without its neighbours:

# %%
ADJECTIVES = ("white", "small", "red", "beautiful", "strange")
NOUNS = ("lamp", "cup", "ring", "garden", "window", "car")
phrases = [f"We buy his {a} {noun}{s}." for a in ADJECTIVES for noun in NOUNS for s in ("", "s")]
german = [grammar.translate(sentence).german.split() for sentence in phrases]


def wrong_words():
    """The share of the phrases in which the article, the adjective, the noun is not the reference's."""
    output = [text.split() + [""] * 5 for text in translator.translate(phrases, beam=1)]
    return np.mean([[ours[i] != right[i] for i in (2, 3, 4)] for ours, right in zip(output, german, strict=True)], 0)


print("wrong:            article  adjective  noun")
print("nothing removed   " + "".join(f"{share:8.0%}" for share in wrong_words()))
for head in range(HEADS):
    with removed(("cross", LAYERS - 1, head)):
        print(f"without cross {LAYERS}.{head + 1} " + "".join(f"{share:8.0%}" for share in wrong_words()))

# %% [markdown]
# Only that head matters here. Without it, articles and adjectives often no longer agree with their nouns, while the
# nouns are still right. In the picture at the top you see it look at the noun when it writes an article: at *hunter*
# for *Der* and at *village* for *dem*. No one designed a head for agreement; training found it.
#
# In the [explorer](../minitransformer/explorer/README.md), the page that `make explorer` writes, you can switch heads
# off with a click: choose *What if*.
#
# ### Many at once (optional)
#
# The model needs a few heads much more than the rest. Are the rest useless? If only one is gone, another may do its
# work. So remove more and more of them: the cheapest first, and for comparison in random order.

# %%
counts = range(0, len(everyone) + 1, 2)


def pruned(order):
    """The loss with the first heads of `order` gone, for each count."""
    curve = []
    for count in counts:
        with removed(*order[:count]):
            curve.append(loss())
    return np.array(curve)


random_order = [everyone[i] for i in rng.permutation(len(everyone))]
single = [0, *np.cumsum([costs[kind][layer, head] for kind, layer, head in everyone])]
curves = {
    "in a random order": pruned(random_order),
    "the cheapest first": pruned(everyone),
    "the sum of the single costs": whole + np.array(single)[counts],
}
draw_pruning(counts, curves, len(everyone))
with removed(*free):
    together = loss() - whole
alone = sum(costs[kind][layer, head] for kind, layer, head in free)
print(f"the {len(free)} cheap heads: one at a time {alone:.2f} nats in all, together {together:.2f}")

# %% [markdown]
# The first few heads together cost the sum of their single costs. More heads cost more than the sum: the heads that
# could do the work of a missing one are gone too. So the cost of a single head says which heads we can spare *now*, and
# not what a head is worth when others are gone.
#
# ## Does the map tell? (optional)
#
# If a sharp, striking map meant an important head, it would be enough to look. Rank the heads by their sharpness (a
# small spread, from the optional part above), and by the rise of the loss without them. Then correlate the two orders
# with Spearman's $\rho$: 1 if they are the same, −1 if one is the reverse of the other, 0 if they are unrelated. We do
# so over all heads of a kind, and within each layer:


# %%
def ranks(values):
    """Each value's place in their order, from 0."""
    return np.argsort(np.argsort(values)).astype(float)


def spearman(a, b):
    """Spearman's ρ of two arrays of one length."""
    return np.corrcoef(ranks(a), ranks(b))[0, 1]


print("do sharper heads cost more?  " + "   ".join(f"layer {layer + 1}" for layer in range(LAYERS)))
for kind in KINDS:
    within = [f"{spearman(-s, c):+7.2f}" for s, c in zip(spread[kind], costs[kind], strict=True)]
    print(f"{kind:<8} all heads {spearman(-spread[kind].ravel(), costs[kind].ravel()):+.2f}     " + "   ".join(within))
for count, what in ((LAYERS * HEADS, "all heads"), (HEADS, "one layer")):
    chance = [abs(spearman(rng.permutation(count), np.arange(count))) for _ in range(2000)]
    print(f"at random, {what}: one order in twenty has |ρ| above {np.quantile(chance, 0.95):.2f}")

# %% [markdown]
# In the encoder sharpness is a hint. In the decoder's self-attention it says nothing: the model would not miss a head
# that stares at one token. In the attention to the source there seems to be a connection, but it comes from the layers:
# the heads of the last layer are all sharper than those of the first, and all cost more. Within a layer nothing of it
# is left; six heads in random order show as much.
#
# ### A query that is zero (optional)
#
# To remove a head, one could also zero its query. But then all its scores are 0, and the softmax is *uniform*. The head
# is not gone, it contributes the mean of all values. That is another experiment:

# %%
kind, layer, head = everyone[-1]
attention = attention_of(kind, layer)
width = model.config.key_width
kept = model.parameters.data.copy()
projection = attention.query if kind == "cross" else attention.query_key_value
projection.weight.data[:, head * width : (head + 1) * width] = 0
projection.bias.data[head * width : (head + 1) * width] = 0
gone = whole + costs[kind][layer, head]
name = f"{kind} {layer + 1}.{head + 1}"
print(f"{name}: loss {gone:.3f} without it, {loss():.3f} with its query zeroed ({whole:.3f} before)")
model.parameters.data[...] = kept

# %% [markdown]
# ### A large weight is not a large effect (optional)
#
# A key contributes its weight times its *value*, and values have lengths. A resting place often has a short value, so
# that a large weight moves little (Kobayashi and others 2020). Here, of each kind, is the head with the largest resting
# weight:

# %%
memory, _ = model.encode(batch.source)
source_mask = batch.source != tokenizer.pad_id
for kind in KINDS:
    layer, head = np.unravel_index(np.argmax(resting[kind]), (LAYERS, HEADS))
    attention = attention_of(kind, layer)
    key_ids = batch.target_in if kind == "decoder" else batch.source
    if kind == "cross":
        projected, _ = attention.key_value.forward(memory)  # (B, Ts, 2C)
        value = split_heads(np.split(projected, 2, axis=-1)[1], HEADS)[:, head]  # (B, Ts, Dv)
    else:
        stack = model.encoder if kind == "encoder" else model.decoder
        context = Context(source_mask) if kind == "encoder" else Context(None, memory, source_mask)
        x, _ = stack.embedding.forward(key_ids)
        for below in stack.layers[:layer]:
            x, _ = below.forward(x, context)
        projected, _ = attention.query_key_value.forward(x)  # (B, T, 3C)
        value = split_heads(np.split(projected, 3, axis=-1)[2], HEADS)[:, head]
    rows = attention.output.weight.data[head * value.shape[-1] : (head + 1) * value.shape[-1]]  # W^O of this head
    size = np.linalg.norm(value @ rows, axis=-1)  # (B, Tk): how far this key moves a query that looks at it
    there = key_ids == tokenizer.bos_id if kind == "decoder" else np.isin(key_ids, marks)
    elsewhere = (key_ids != tokenizer.pad_id) & ~np.isin(key_ids, marks)
    print(
        f"{kind:<7} {layer + 1}.{head + 1} rests with {resting[kind][layer, head]:.2f} of its weight; "
        f"length of its contribution: {size[there].mean():.2f} there, {size[elsewhere].mean():.2f} at words"
    )

# %% [markdown]
# In the decoder and towards the source the resting place has little effect, as expected. In the encoder it has as much
# effect as a word.
#
# ## Common mistakes, and what they look like
#
# **Padding in the statistics.** The mask hides padded keys. The key just before a padded query is mostly padding too,
# so its weight is 0. Each such 0 lowers the mean, most of all in short sentences:

# %%
careless = np.diagonal(weights["encoder"][0], -1, axis1=2, axis2=3).mean(axis=(0, 2))
print("layer 1, one back, with care:   ", " ".join(f"{s:.3f}" for s in scores["encoder"][0, :, back]))
print("layer 1, one back, with padding:", " ".join(f"{s:.3f}" for s in careless))

# %% [markdown]
# **Heads are compared by their numbers.** With another seed the task of head 5 may belong to any other head of its
# layer, or two heads may share it.
#
# ## What changed since 2017
#
# Michel and others (2019) removed heads of the paper's model as we did. Voita and others (2019) found three kinds that
# have to stay: they look at a neighbour, a syntactic relation or a rare word. Large models have *induction heads*,
# which continue a repeated text (Olsson and others 2022), and *attention sinks*, tokens on which heads put unneeded
# weight (Xiao and others 2024).
#
# ## Where next
#
# [Lesson 13](13_why_attention.ipynb): why attention at all: the paper's Table 1, measured.
