# %% [markdown]
# # 29 · Circuits: how two heads learn to copy
#
# **You will be able to** watch a small model learn to copy text that it never saw, in one steep fall; find the heads
# that do it; split a logit into what each part of a model adds to it; and patch one place of a run with another run, to
# show that it matters. In an optional part: write the circuits of a head as matrices, and see two heads act as one.
#
# | | |
# |---|---|
# | you know | [GPT](19_gpt.ipynb), [what heads look at](12_heads.ipynb), [rotary positions](20_modern_blocks.ipynb) |
# | runs in | 90 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §4's "interpretable" models; here Elhage and others 2021, Olsson and others 2022 |
# | in the package | [`patching.py`](../minitransformer/inside/patching.py), `attribution.py`, `circuits.py` |
#
# "The Amberlys keep bees. … More honey, said Mrs Amb". A language model goes on with "erly", even if it
# never saw this name in training. It is written in no weight, so it must be taken from the text: *the last time, after
# "Amb" came "erly".* How can attention do that? A head can look for a token. But the token to copy is not the one that
# is like the present one. It is the one *after* it. *How does a head find the place after?*

# %%
import numpy as np

from course import start
from course.lesson_29 import copying, pictures
from course.measuring import blas_threads
from minitransformer import inside
from minitransformer.inside import Site, logit_attribution, patch, record, repeated_tokens

check = start("29")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
V, T, H = copying.VOCABULARY, copying.LENGTH, copying.HEADS

# %% [markdown]
# ## A text in which something comes again
#
# Real text is hard to read for a small model. So we make a text in which copying is all that can be learned. A row has
# 41 random tokens of 32. A stretch of it, of 10 to 19 tokens, comes again later in the row:

# %%
ids, known = copying.rows_of(np.random.default_rng(3), 1)
print("tokens     ", *(f"{id:2}" for id in ids[0]))
print("can be known", *("↑ " if flag else "  " for flag in known[0]))

# %% [markdown]
# No row comes twice, so there is nothing to remember. Where the stretch begins again, and how long it is, is random
# too, so no distance helps. New tokens can't be known: an even guess loses $\ln 32$, any other one more. Tokens
# with an arrow can be found by looking back.
#
# The model is as small as it can be: two layers of attention *alone*, with two heads each, and no feed-forward network.
# (In the package that is `d_ff=0`.) Beside it we train one with one layer. Both see 500 batches of 32 rows.

# %% tags=["long"]
unseen = repeated_tokens(V, length=T // 2, rows=8, seed=7)  # (8, 40): 20 different tokens, twice
models = {layers: copying.model_of(layers) for layers in (2, 1)}
histories = {layers: copying.read(model, 500, unseen) for layers, model in models.items()}
for layers, history in histories.items():
    count = f"{layers} layer{'s'[: layers > 1]}, {models[layers].parameters.count:,} parameters"
    print(f"{count}: loss where it can be known {history.known[0]:.2f} at first, {history.known[-1]:.2f} at the end")
print(f"ln {V} = {np.log(V):.2f}")

# %% tags=["picture"]
history = histories[2]
pictures.draw_losses(
    history.steps,
    {
        "comes again, 2 layers": history.known,
        "new, 2 layers": history.others,
        "comes again, 1 layer": histories[1].known,
    },
    float(np.log(V)),
)

# %% [markdown]
# Both models first learn a little: perhaps that a token from the row is more likely than one that was not there. With
# one layer the loss stays near that. With two layers it sinks more slowly at first, and then falls steeply.
# Something has formed that was not there before. What is it?
#
# ## Induction heads
#
# Think of a row `… A B … A`. After the second `A`, a head should look at `B`: at *the token after the last same token*.
# A head that does this is an [**induction head**](glossary.md#induction-head) (Elhage and others 2021), a name for its
# reasoning: *it was so once, so it will be so again*. We need no more than attention's weights and the tokens to
# measure it.
#
# ### Exercise 1 ★★☆: the induction score


# %% tags=["exercise"]
def induction_score(weights, ids):
    """Each head's mean attention to the token after the last same one.

    weights (B, H, T, T): of each text and head, from a query (row) to a key (column); ids (B, T).
    For each token that stood earlier in its text, take the last such place s: the weight from it to s + 1.
    → (H,): the mean of these weights over all such tokens of all texts.
    """
    raise NotImplementedError


# %%
induction_score = check(induction_score)

# %% [markdown] tags=["help"]
# Which tokens of a text have an earlier same one? For one token: in which places before it does the same id stand, and
# which of them is the last? How many weights do you add up in all?
#
# ---
#
# Two loops, over texts `b` and places `t`, with `same = [s for s in range(t) if ids[b, s] == ids[b, t]]`. If `same` is
# not empty, add `weights[b, :, t, same[-1] + 1]`, an array of H numbers, and count one more. Divide at the end.

# %%
scores = np.array([induction_score(each, unseen) for each in history.maps[-1]])  # (layers, H)
before = np.array([each.diagonal(-1, 2, 3).mean(axis=(0, 2)) for each in history.maps[-1]])  # of the token before
print("head   induction score   attention to the token before")
for layer, head in np.ndindex(scores.shape):
    print(f"{layer + 1}.{head + 1}{scores[layer, head]:16.2f}{before[layer, head]:21.2f}")
FIRST, SECOND = int(before[0].argmax()), int(scores[1].argmax())
package = inside.induction_scores(models[2], unseen)
print(
    f"the package's scores differ by {abs(package - scores).max():.0e} at most; an even spread gives about {1 / 30:.2f}"
)

# %% [markdown]
# The heads of the second layer are induction heads. Those of the first layer do something else: one of them looks at
# the token *before*. When did this begin? The history has the maps of every twentieth step, so you can ask with your
# own function:

# %% tags=["picture"]
curves = {f"head 2.{head + 1}: after the same token": [induction_score(each[1], unseen)[head] for each in history.maps]
          for head in (SECOND, 1 - SECOND)}  # fmt: skip
curves |= {f"head 1.{head + 1}: the token before": [each[0, :, head].diagonal(-1, 1, 2).mean() for each in history.maps]
           for head in (FIRST, 1 - FIRST)}  # fmt: skip
pictures.draw_scores(history.steps, curves, history.known)

# %% [markdown]
# The loss falls at the same steps at which these heads form. Olsson and others (2022) saw the same in large language
# models: a bump in the loss early in training, and at the same time induction heads, and the ability to use what stands
# in the context.
#
# Here are the head that looks most at the token before, and the one that looks most at what came after the same token,
# on a row of 20 tokens that come twice:

# %% tags=["picture"]
pictures.draw_maps(
    {f"head 1.{FIRST + 1}: the token before": history.maps[-1][0, 0, FIRST],
     f"head 2.{SECOND + 1}: after the same token": history.maps[-1][1, 0, SECOND]},
    start=T // 2,
)  # fmt: skip

# %% [markdown]
# ## Two heads that act together
#
# Now we can guess how it works. In `… A B … A`:
#
# 1. The first layer's head looks from `B` at the token before, `A`, and writes into `B`'s place of the residual stream:
#    *before me stood an A*.
# 2. The second layer's head looks from the last `A` for a place that says *before me stood an A*. It finds `B`'s place.
#    From there it takes `B`, and writes *B* into its own place: `B` is what comes next.
#
# So the key in step 2 is made of what another head wrote. This is called [**composition**](glossary.md#composition),
# here of keys. It also says why one layer is not enough: there, keys know nothing but their own token and place.
#
# That is a guess. Three kinds of evidence follow. What does each part add to the result? What happens without it, or
# with another run's value? And what do the weights themselves say?
#
# ## What each part adds to a logit
#
# Before the last norm the stream is a **sum**: the embedding, plus what each head of each layer added (and biases):
#
# $$ x = x_{\text{embedding}} + \sum_{\text{layers}} \sum_{\text{heads}} x_{\text{head}} + \dots $$
#
# The logit of a token is $w \cdot \mathrm{norm}(x) $ with $w$ the token's row in the output layer. A product with $w$
# may be taken term by term. Only the norm is in the way:
#
# $$ \mathrm{norm}(x) = \gamma \cdot \frac{x - \bar x}{\sigma(x)} + \beta,
# \qquad \sigma(x) = \sqrt{\mathrm{var}(x) + \varepsilon} $$
#
# The mean $\bar x$ is a sum too. Only $\sigma$ is not linear. So we **freeze** it: $\sigma$ is the number that it was
# in this run, for every term alike. Then the terms add up to the logit exactly. This is [*direct logit
# attribution*](glossary.md#direct-logit-attribution).
#
# ### Exercise 2 ★★☆: split a logit


# %% tags=["exercise"]
def logit_terms(terms, gamma, beta, direction, eps):
    """Split a logit into what each term adds to it, through a layer normalisation whose scale is frozen.

    terms (N, T, C): their sum over N is the stream x before the norm; gamma, beta (C,); direction w (C,); eps as in σ.
    → contributions (N, T), of each term at each position, and one number, the constant that beta adds. Together they
    are w · norm(x): contributions.sum(axis=0) + constant.
    """
    raise NotImplementedError


# %%
logit_terms = check(logit_terms)

# %% [markdown] tags=["help"]
# Which array does $\sigma$ belong to: each term, or their sum? And the mean? Write `norm(x)` with $x = a + b$ on paper.
# What is left if you take away all that has an $a$ in it, and all that has a $b$?
#
# ---
#
# `x = terms.sum(axis=0)` gives one scale for each position, `(T, 1)`. Each term loses its *own* mean over the channels.
# Times scale, times gamma, `@ direction`. The constant is `beta @ direction`.

# %%
model = models[2]
recording = record(model, unseen)
stream, last = recording.streams["decoder"], model.decoder.final_norm
outputs = [block.self_attention.output for block in model.decoder.layers]


def of_head(layer, head):
    """Return what a head adds to the stream of the first row: its output through its rows of W_O."""
    D = stream.heads["self_attention"].shape[-1]
    return stream.heads["self_attention"][layer, 0, :, head] @ outputs[layer].weight.data[head * D : (head + 1) * D]


row, names = unseen[0], ["embedding", *(f"head {n + 1}.{h + 1}" for n in range(2) for h in range(H)), "biases"]
parts = [stream.states[0][0], *(of_head(n, h) for n in range(2) for h in range(H))]
parts += [0 * parts[0] + sum(output.bias.data for output in outputs)]
table = model.output.table.data.astype(np.float64)  # (V, C)
PLACE = 29  # in the second half: token 9 of the stretch stands there again, and token 10 comes next
leads = table[row[PLACE + 1]] - table.mean(axis=0)  # the right token's logit, less the mean of all logits
terms, constant = logit_terms(np.stack(parts).astype(np.float64), last.gamma.data, last.beta.data, leads, last.eps)
logits = recording.logits[0, PLACE]
print(f"your terms add up to {terms[:, PLACE].sum() + constant:.4f}, "
      f"the model's logits say {logits[row[PLACE + 1]] - logits.mean():.4f}")  # fmt: skip

# %% tags=["picture"]
pictures.draw_terms(
    {**dict(zip(names, map(float, terms[:, PLACE]), strict=True)), "beta": float(constant)},
    float(terms[:, PLACE].sum() + constant),
)

# %% [markdown]
# Here head 2.2 makes nearly all of the lead. Head 1.1, which looks at the token before, adds next to
# nothing *by itself*. Does the model not need it, then? No: this method sees only what goes straight to the output. It
# is blind to what a head does *through another head*. So we need the second kind of evidence.
#
# The package does the same for every kind of model, through the norms of post-norm stacks too:

# %%
found = logit_attribution(model, recording, tokens=range(V))
print(
    f"all {found.logits.size:,} logits: the terms' sum differs by {abs(found.total() - found.logits).max():.0e} at most"
)

# %% [markdown]
# ## Switched off
#
# What is lost if a head says nothing? `patch` runs the model with another value at some sites; 0 switches a head off.

# %%
test, known = copying.rows_of(np.random.default_rng(2), 64)
print("switched off   loss where it can be known   of new tokens")
for name, sites in {"nothing": [], **{f"head {n + 1}.{h + 1}": [Site("self_attention", n, head=h)]
                                      for n in range(2) for h in range(H)}}.items():  # fmt: skip
    each = copying.losses(patch(model, dict.fromkeys(sites, 0.0), test[:, :-1]), test)
    print(f"{name:<12}{each[known[:, 1:]].mean():18.2f}{each[~known[:, 1:]].mean():22.2f}")

# %% [markdown]
# Now the first layer matters: without the head that looks at the token before, the model can't copy. New tokens lose
# little by it. But zero is a value that the model never saw there: a damaged model may fail for other reasons
# than the one that we think of. It is better to put in a value that is *normal*, from another run.
#
# ## Patching: one place from another run
#
# Take two rows that differ in *one token*, the clearest of 8 random pairs. Both end with `A`. In the *other* one an
# `A` stands earlier too, before `B`. In our *own* row another token stands there, and nothing says that `B` will come.

# %%
pair = copying.Pair(model)
print("other row:", *pair.other[0], "  then", pair.wanted)
print("own row:  ", *pair.own[0])
own, other = record(model, pair.own), record(model, pair.other)
for name, run in (("other", other), ("own", own)):
    print(f"{name:<6} the logit of {pair.wanted} at the end: {pair.measure(run.logits)[0]:6.2f}")

# %% [markdown]
# Now run the own row, but at *one position*, after some layer, put in the stream's vector from the other run. How much
# of the way to the other run's result does it go? 0 is: nothing has changed. 1 is: this vector is all that mattered.
# This is [**activation patching**](glossary.md#activation-patching) (also: causal tracing).
#
# ### Exercise 3 ★☆☆: patch every position


# %% tags=["exercise"]
def patch_shares(after, own, other):
    """Return how far each position, patched alone, goes from one run to the other.

    after: a function from a stream (T, C) to a number, what the rest of the model makes of it; own, other (T, C).
    → (T,): for each position t, (after(own with other's row t) − after(own)) / (after(other) − after(own)).
    """
    raise NotImplementedError


# %%
patch_shares = check(patch_shares)

# %% [markdown] tags=["help"]
# How many times must `after` run? What must each patch begin with? And who still needs the array `own` as it was?
#
# ---
#
# `patched = own.copy()` inside the loop, then `patched[t] = other[t]`. The two runs without a patch are the same for
# all positions: compute them once.

# %%
depths = range(3)  # after the embedding, after layer 1, after layer 2
shares = np.stack([
    patch_shares(pair.after(n), own.streams["decoder"].states[n][0], other.streams["decoder"].states[n][0])
    for n in depths
])  # fmt: skip
sites = inside.grid(own, "stream", by="position")  # (3, T), the same places
package = inside.effects(model, sites, other, pair.measure, pair.own)
whole = pair.measure(other.logits)[0] - pair.measure(own.logits)[0]
print(f"the package's effects differ from yours by {abs(package / whole - shares).max():.0e} at most")
estimates = inside.estimated_effects(model, sites, other, pair.measure, pair.own) / whole

# %% tags=["picture"]
pictures.draw_patches({"patched": shares, "the gradient's estimate": estimates}, [str(id) for id in pair.other[0]])

# %% [markdown]
# Read the upper table from above. Its first and last rows can't be otherwise: the rows differ in one token, and the
# result is read at the end. The middle one is the finding: after layer 1 the difference lies *one place further*. That
# is the path that we guessed. (Which head carried it? With `head = inside.Site("self_attention", 0, head=FIRST)` the
# logits of `inside.patch(model, {head: other}, pair.own)` say how much one head does.)
#
# The lower table is **attribution patching**: the gradient of the result at every place, by one backward, times the
# difference of the two runs. It is the first term of a series, so it is right for small changes (the package's tests
# show that). A large model has millions of places, and patching each one takes a run. But here the estimate misses the
# main cells. It knows only small changes. But the last norm's $\sigma$ is far larger in the own run (so even the
# last cell is far from 1), and the softmax gives `B`'s place little weight. Use the estimate to find places, and patch
# those to be sure.
#
# ## Circuits: heads as matrices (optional)
#
# The third kind of evidence needs no text at all. A head uses four matrices, but never one alone. Without norm, biases
# and rotation a score is $x_t W_Q (x_s W_K)^\top / \sqrt D$, and a head adds $x_s W_V W_O$. So there are only two
# matrices, $C \times C$ both, of rank $D$:
#
# $$ W_{QK} = \tfrac{1}{\sqrt D} W_Q W_K^\top \;\text{(where to look)},
# \qquad W_{OV} = W_V W_O \;\text{(what to move)} $$
#
# They are called the head's [**QK circuit**](glossary.md#qk-circuit) and [**OV circuit**](glossary.md#ov-circuit)
# (Elhage and others 2021). And two heads can be composed: if the earlier head has written $x\,W_{OV}'$ into the place
# of a key, it adds to the later score $x_t\, W_{QK} (x\,W_{OV}')^\top = x_t\,(W_{QK} W_{OV}'^\top)\,x^\top$. The
# size of this product says whether the later head listens to the earlier one:
#
# $$ \text{K-composition} = \frac{\lVert W_{QK} W_{OV}'^\top \rVert}{\lVert W_{QK}\rVert\,\lVert W_{OV}'\rVert} $$
#
# with $\lVert\cdot\rVert$ the root of the sum of all squares (Frobenius). Random matrices have about $1/\sqrt C$.
#
# ### Exercise 4 ★★☆: circuits, and their composition


# %% tags=["exercise"]
def circuits(query, key, value, output, num_heads):
    """The QK and OV circuits of each head.

    query, key, value (C, H·D): head h has the D columns from h·D on; output (H·D, C): so many rows.
    → qk (H, C, C) with x_query @ qk[h] @ x_key = the score, and ov (H, C, C) with x @ ov[h] = what the head adds.
    """
    raise NotImplementedError


def key_composition(qk, ov):
    """Measure how much later heads' keys read what earlier heads wrote: qk (H, C, C), ov (E, C, C) → (H, E)."""
    raise NotImplementedError


# %%
circuits = check(circuits)
key_composition = check(key_composition)

# %% [markdown] tags=["help"]
# Vectors are rows here. Which dimension do the two matrices of a circuit share, and so lose in the product? On which
# side of $W_{QK}$ does the key stand?
#
# ---
#
# For head h with `part = slice(h * D, (h + 1) * D)`: `query[:, part] @ key[:, part].T / np.sqrt(D)`, and
# `value[:, part] @ output[part]`. For the composition: `reads @ writes.T`, and `np.linalg.norm` of a matrix is
# Frobenius'.

# %%
DISTANCE = 15  # rotary positions turn queries against keys: between them stands a rotation
qk, ov = circuits(*copying.weights_of(model, layer=1, distance=DISTANCE), H)
_, written = circuits(*copying.weights_of(model, layer=0), H)
composed = key_composition(qk, written)
print(f"K-composition; random matrices would have about {len(qk[0]) ** -0.5:.3f}")
print("               ", *(f"head 1.{head + 1}" for head in range(H)))
for head, line in enumerate(composed):
    print(f"reads: head 2.{head + 1}", *(f"{score:8.3f}" for score in line))
package = inside.composition_scores(model, "key", later=1, earlier=0, distance=DISTANCE)
print(f"the package's scores differ by {abs(package - composed).max():.0e} at most")

# %% [markdown]
# Both heads of the second layer listen to the head that looks at the token before, more than random matrices would. How
# do we see *what* they hear? Put tokens at both ends. `vectors @ … @ vectors.T` has a number for each pair of tokens:
# how much does a query with token i look for a place *after* token j? And `vectors @ W_OV @ directions.T`: how much
# does looking at token i raise the logit of token j?

# %%
vectors, directions = copying.embeddings_of(model)  # (V, C) both
path = vectors @ qk[SECOND] @ (vectors @ written[FIRST]).T  # (V, V)
copied = vectors @ ov[SECOND] @ directions.T
for name, matrix in (("looks for a place after itself", path), ("raises its own logit most", copied)):
    print(f"{(matrix.argmax(axis=1) == np.arange(V)).mean():.0%} of the tokens: {name}")

# %% tags=["picture"]
looking, copies = f"through heads 1.{FIRST + 1} and 2.{SECOND + 1}: the score", f"OV of head 2.{SECOND + 1}: the logits"
pictures.draw_circuits(
    {looking: path, copies: copied},
    {looking: ("token of the query", "token before the key"), copies: ("token looked at", "token said")},
)

# %% [markdown]
# Both have a dark diagonal, the second one with gaps: the other head of the layer copies those tokens. Nobody told the
# model that token 7 is like token 7: it has learned it for all 32, each for itself. The first matrix is step 2 of our
# guess, *look for a place that says: before me stood an A*. The second is *and say what stands there*.
#
# So the three kinds of evidence agree on the main path.
#
# ## In a real model
#
# The functions of the package take any model. SmolLM2, with 270 heads in 30 layers, has induction heads too: a few
# heads look at what came after the last same token with most of their attention, the median head with next to none.
# Without the best six the loss on tokens that come again more than doubles ([numbers and
# how](../minitransformer/pretrained/README.md#look-inside)). In large models such heads also copy in a wider sense:
# they complete patterns of which not every token is the same.
#
# ## Common mistakes, and what they look like
#
# * **The weight to s, not to s + 1.** Then a perfect induction head has a score near 0, and a head that looks at the
#   same token one near 1.
# * **A norm that is not frozen.** If each term is normalised by itself, small terms become as large as large ones, and
#   their sum is no logit.
# * **"It adds nothing to the logit, so it does nothing."** Direct attribution is blind to heads that act through
#   others.
# * **"Without it the model fails, so it does the task."** Zeros are values that the model never saw. Patch with another
#   run of a row that differs in one thing alone.
# * **A pair that differs in many things.** Then a patch moves all of them, and no cell says which one.
# * **Trust in the gradient.** Where a softmax is saturated it is near 0, and the effect is not.
# * **Other heads take over.** In larger models a head that is switched off may be replaced by a later one; then its
#   effect looks small although it does the work (Wang and others 2022 found such *backup heads*).
#
# ## What changed since 2017
#
# The paper looked at maps of attention and hoped for interpretable models (§4; appendix). Whether a map *explains*
# anything was disputed for years. Since then the question became an experiment: change something inside, and see what
# changes outside. Meng and others (2022) patched GPT-2 XL to see where facts pass. Wang and others (2022) took
# apart how GPT-2 small knows that "Mary" comes after "When Mary and John went to the store, John gave a drink to": 26
# heads in seven groups, induction heads among them. Nanda (2023) made patching cheap with the gradient.
#
# Readings: Elhage and others 2021, *A Mathematical Framework for Transformer Circuits*
# (transformer-circuits.pub/2021/framework); Olsson and others 2022, *In-context Learning and Induction Heads* (arXiv
# 2209.11895); Wang and others 2022, *Interpretability in the Wild* (arXiv 2211.00593); Meng and others 2022, *Locating
# and Editing Factual Associations in GPT* (arXiv 2202.05262); Nanda 2023, *Attribution Patching*
# (neelnanda.io/mechanistic-interpretability/attribution-patching); Syed and others 2023 (arXiv 2310.10348).
#
# ## Where next
#
# [`inside`](../minitransformer/inside) does all this with the translator, a BERT or a published model: `effects` with
# `grid(…, by="head")` gives a heat map of heads. Open questions: our rows are random; how does the step move when half
# of them have nothing that comes again? Must the positions be rotary, or can a model with learned positions find the
# token before, and how long does it take? And what does the *second* head of each layer do that the first one does not?
# There are more [ideas for projects](ideas.md).
