# %% [markdown]
# # 11 · Decoding: greedy, beams, a cache, and BLEU
#
# **You will be able to** turn a trained model into translations: search for the most probable sentence, do it without
# computing anything twice, and score the result as the field does.
#
# | | |
# |---|---|
# | you know | causal attention ([04](04_attention.ipynb)), the trained model ([10](10_translator.ipynb)) |
# | runs in | 40 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §6.1: "beam search with a beam size of 4 and length penalty α = 0.6"; Table 2 is in BLEU |
# | in the package | [`decoding`](../minitransformer/decoding), [`evaluation`](../minitransformer/evaluation.py) |
#
# A trained model does not give translations. It gets a source sentence $X$ and the beginning of a translation, and it
# gives the probability of every token that may come next. A whole sentence is $Y = (y_1, \dots, y_T)$, and its last
# token is `</s>`. Its probability is a product: the first token, then the second after the first, and so on. (This is
# the chain rule of probability, not the one of derivatives.) In logarithms the product is a sum:
#
# $$ \log P(Y \mid X) = \sum_{t=1}^{T} \log P(y_t \mid y_{<t}, X) $$
#
# Here $y_{<t}$ stands for the tokens before $y_t$. To translate is to find a $Y$ for which this sum is large. Training
# never had to search: it was given the reference.

# %%
import re
import time
from collections import Counter
from itertools import islice, product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from course import start
from course.lesson_11.pictures import draw_beams, draw_cache
from course.style import BLUE, GREEN, PURPLE, VERMILION
from minitransformer.decoding import Translator, penalty
from minitransformer.decoding import beam_search as package_beam_search
from minitransformer.evaluation import evaluate
from minitransformer.gradcheck import error
from minitransformer.grammar import sample
from minitransformer.layers.attention import split_heads
from minitransformer.ops import attention_forward, numpy_ops

check = start("11")
threadpool_limits(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
translator = Translator.from_checkpoint(Path("weights/en-de.safetensors"))
model, tokenizer = translator.model, translator.tokenizer
BOS, EOS, PAD = tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id


def encoded(sentence):
    """A batch of one source sentence, (1, Ts)."""
    return np.array([[*tokenizer.encode(sentence), EOS]])


def after(prefix, source):
    """log P(· | prefix, source), (V,): one forward of the whole model, of which the last row is wanted."""
    logits, _ = model.forward(source, np.array([[BOS, *prefix]]))  # (1, T, V)
    log_probs = numpy_ops.log_softmax(logits[0, -1].astype(np.float64))
    log_probs[[PAD, BOS]] = -np.inf  # never written
    return log_probs


def log_prob(sentence, source):
    """log P(Y | X) of ids that end in </s>."""
    return sum(after(sentence[:t], source)[token] for t, token in enumerate(sentence))


V, T = model.config.vocab_size, 12
print(f"sentences of {T} tokens from a vocabulary of {V:,}: {V:,}^{T}, about 10^{T * np.log10(V):.0f}")

# %% [markdown]
# ## Greedy: the best token, again and again
#
# We cannot try so many sentences one by one. The first idea: take the most probable token, append it, and ask again.


# %%
def greedy(source, max_length=60):
    """The best token of each step, until it is </s>."""
    ids = ()
    while len(ids) < max_length and EOS not in ids:
        ids = (*ids, int(np.argmax(after(ids, source))))
    return ids


SENTENCE = "She is not lazy if the green skirt is blue."
REFERENCE = "Sie ist nicht faul, wenn der grüne Rock blau ist."
source = encoded(SENTENCE)
found, wanted = greedy(source), (*tokenizer.encode(REFERENCE), EOS)
for name, ids in (("greedy", found), ("reference", wanted)):
    print(f"{name:<10} log P = {log_prob(ids, source):6.2f}   {tokenizer.decode(ids)}")

# %% [markdown]
# Greedy is wrong, and the model could have known it: by its *own* measure the reference is more probable. So the
# search failed, not the model. Look at the step at which the two part:

# %%
parting = next(t for t, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b)
for ids in (found, wanted):
    first, second = ids[parting : parting + 2]
    p, q = np.exp(after(ids[:parting], source)[first]), np.exp(after(ids[: parting + 1], source)[second])
    words = "  then ".join(tokenizer.tokens((first, second)))
    print(f"{words:<28} {p:.2f} · {q:.2f} = {p * q:.2f}")

# %% [markdown]
# The first factor is larger for one branch, the product is larger for the other. Greedy looks only at first factors,
# and it never goes back.
#
# ## Beams
#
# [**Beam search**](glossary.md#beam-search) keeps several prefixes alive: it has `num_beams` places. In each step it
# extends every prefix by every token. It puts all these extensions *together*, and keeps the best, as many as there are
# places. A prefix that takes `</s>` is a complete sentence: it leaves the beam, and its place is gone. When no place is
# left, the best complete sentence wins. So
#
# * with one place, this is [greedy search](glossary.md#greedy-search);
# * with a place for every prefix, it is an exhaustive search: it misses nothing.
#
# ### Exercise 1 ★★★: beam search
#
# Write it for any function `next_log_probs(prefix)`. The check runs it on tiny vocabularies, where we can list every
# sentence. There a beam that is wide enough must find the best of all sentences. The length penalty is explained
# further down. Here it is one division, at the end.


# %% tags=["exercise"]
def beam_search(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    """The best sentence that a beam of `num_beams` places finds.

    next_log_probs(prefix) takes a tuple of ids without eos and gives (V,): log P of each next token. It is a forward
    of the whole model: ask once for each prefix, and do not write into the row.
    Each step extends each prefix by each token. Of all extensions together it keeps those with the highest log P, as
    many as there are places. Those that end in `eos` are complete: set them aside; their places are gone. Stop when no
    place is left, or when the prefixes have max_length tokens. Such prefixes are cut off: they count only if no
    sentence is complete.
    → (ids, log P) of the sentence with the highest log P / ((5 + |Y|) / 6)^length_penalty. ids is a tuple, with eos at
    its end unless it was cut off, and |Y| is its length.
    """
    raise NotImplementedError


# %%
beam_search = check(beam_search)

# %% [markdown] tags=["help"]
# Take two places and three tokens, and do two steps on paper. What must you remember of each prefix? Which extensions
# compete with each other: those of one prefix, or all of them? And when does a place disappear?
#
# ---
#
# Begin with `beam, places, complete = [((), 0.0)], num_beams, []`: pairs of a prefix and its log P. In each step
# collect `((*prefix, v), log_prob + row[v])` for every prefix and every token `v`, sort them by log P, and keep the
# first `places`. Those that end in `eos` move to `complete`; the others are the new beam.

# %% [markdown]
# ### How wide is wide enough? (optional)
#
# Take random models over four tokens, `</s>` among them, with sentences of at most five tokens. For each of them we
# know the best of all sentences:

# %%
tiny_rng = np.random.default_rng(0)
TOKENS, LONGEST = 4, 5


def tiny_model():
    """A random table of log P(next | prefix) over TOKENS tokens; token 0 is </s>, and ends at LONGEST what has not."""
    table = {}
    for prefix in (p for n in range(LONGEST) for p in product(range(1, TOKENS), repeat=n)):
        logits = 1.5 * tiny_rng.standard_normal(TOKENS)
        logits[1:] -= np.inf if len(prefix) == LONGEST - 1 else 0
        table[prefix] = logits - np.log(np.exp(logits).sum())
    return table


def exhaustive(table):
    """The best of all sentences, by trying each."""
    return max(sum(table[p[:t]][token] for t, token in enumerate((*p, 0))) for p in table)


tables = [tiny_model() for _ in range(200)]
optima = np.array([exhaustive(table) for table in tables])
widths = (1, 2, 3, 4, 6, 8, 12, 16)
shares = []
for width in widths:
    reached = np.array([beam_search(table.__getitem__, width, 0, LONGEST)[1] for table in tables])
    shares.append(np.mean(reached > optima - 1e-9))

figure, axes = plt.subplots(figsize=(7.2, 2.6))
axes.plot(widths, 100 * np.array(shares), "o-", color=BLUE)
axes.set(xlabel="places in the beam", ylabel="found the optimum (%)", ylim=(0, 105), xticks=widths)
axes.set_title(f"{len(tables)} random models, {sum((TOKENS - 1) ** n for n in range(LONGEST))} sentences each")
axes.grid(axis="y")
plt.show()

# %% [markdown]
# Most of the gain comes with the second place. Each further place costs as much and finds less. Real systems use only a
# handful of places too.
#
# ## The picture: where greedy loses
#
# Now the real model and the sentence from above, with three places. Each column is a step. The prefixes that survive
# stand in the order of their log-probability, which is written below each. A `·` marks a piece inside a word. Greedy's
# prefixes are drawn also where the beam dropped them. Follow the two colours: greedy starts on top.

# %% tags=["picture"]
log_probs = {(): 0.0}  # of every prefix that the search went on from, and of their extensions by one token


def next_log_probs(prefix):
    """The model's log-probabilities of the next token, which are also kept for the picture."""
    asked.append(prefix)
    row = after(prefix, source)
    log_probs.update({(*prefix, v): log_probs[prefix] + row[v] for v in range(V)})
    return row


asked = []
best, best_log_prob = beam_search(next_log_probs, 3, EOS, 60)
survivors = {*asked, best}
for t in range(len(found)):  # greedy's way to its end
    next_log_probs(found[:t])
drawn = {prefix: log_probs[prefix] for prefix in survivors | {found[:t] for t in range(len(found) + 1)}}


def label(ids):
    """The last token, with a `·` where it goes on inside a word."""
    token = tokenizer.tokens(ids)[-1]
    return token.removeprefix("▁") if token.startswith("▁") else "·" + token


figure, axes = plt.subplots(figsize=(7.2, 3.4))
first = max(parting - 1, 0)
paths = {"greedy": (found, PURPLE), "beam of 3": (best, BLUE)}
draw_beams(axes, drawn, paths, label, range(first, first + 7))
axes.set_title(f"“{SENTENCE}”")
plt.show()
for name, ids in (("greedy", found), ("beam of 3", best)):
    print(f"{name:<10} log P = {log_probs[ids]:6.2f}   {tokenizer.decode(ids)}")

# %% [markdown]
# The [explorer](../minitransformer/explorer/README.md) draws this tree for any sentence: choose *Search* in the page
# that `make explorer` writes. It also shows the prefixes that were dropped, and has a slider for the length penalty,
# which comes next.
#
# We compare yours with the package's search, which works on whole batches, on sentences of the test split. The output
# may have at most as many tokens as the input plus 50, as in the paper:

# %%
examples = list(islice(sample("test", 0), 400))
few = [encoded(example.english) for example in examples[:12]]
mine = [beam_search(lambda prefix, s=s: after(prefix, s), 3, EOS, s.size + 50)[1] for s in few]
theirs = [package_beam_search(model, s, 3, length_penalty=0.0)[0][0].log_prob for s in few]
print(f"log P of {len(few)} translations, yours against the package's: {error(np.array(mine), np.array(theirs)):.1e}")

# %% [markdown]
# ## The length penalty
#
# Every further token multiplies the probability by a number below 1. So $\log P$ prefers short sentences. A wide beam
# finds more of them, and may translate only half of a long sentence. Therefore the paper ranks complete sentences by a
# score that allows a longer sentence to be less probable (Wu and others 2016):
#
# $$ s(Y) = \frac{\log P(Y \mid X)}{\mathrm{lp}(Y)} \qquad
#    \mathrm{lp}(Y) = \left(\frac{5 + |Y|}{6}\right)^{\alpha} $$
#
# $|Y|$ is the number of tokens, and `</s>` counts. With $\alpha = 0$ the score is $\log P$. With $\alpha = 1$ it is
# close to six times the mean log-probability of a token if the sentence is long. The paper takes $\alpha = 0.6$. Here
# is a sentence of the test split where the penalty decides:

# %%
SHOES = "Last week, he washed warm shoes."
candidates = package_beam_search(model, encoded(SHOES), 4, n_best=4, length_penalty=0.0)[0]
print("tokens  log P   α = 0.6   α = 1")
for candidate in candidates:
    length = len(candidate.ids) + 1
    scores = [candidate.log_prob / penalty(length, alpha) for alpha in (0.6, 1.0)]
    text = tokenizer.decode(candidate.ids)
    print(f"{length:6} {candidate.log_prob:6.2f}   {scores[0]:7.3f} {scores[1]:7.3f}   {text}")
print(f"greedy: {tokenizer.decode(greedy(encoded(SHOES)))}")

# %% [markdown]
# The most probable of the four leaves out the shoes. Greedy was right. The wider search found the short sentence, and
# the penalty puts it back in its place.
#
# ## The cache: nothing twice
#
# `after` runs the whole model on the whole prefix, and then uses one row. At the next step it computes all the earlier
# rows again, and they come out the same: with a causal mask, position $i$ never depends on later positions
# ([04](04_attention.ipynb) proved it by changing the future). For $T$ tokens these are many rows:

# %%
T = 60
print(f"positions that pass through the decoder: {sum(range(1, T + 1)):,} without a cache, {T} with one")

# %% [markdown]
# What must we remember of earlier positions? In a decoder layer nearly everything works on one position alone. The
# exception is self-attention: there the query of the new position meets the *keys and values* of those before it. So
# keep the keys and values, and nothing else. In cross-attention there is even less to do: the keys and values of the
# source never change, so they are computed once per sentence.

# %%
short = encoded("She is not old.")
written = tokenizer.tokens([BOS, *greedy(short)])
draw_cache([token.strip("▁") for token in written], [token.strip("▁") for token in tokenizer.tokens(short[0])])
plt.show()

# %% [markdown]
# A row is a step, from the top down; on the left is the token that it writes. Without a cache, each step computes the
# whole row. With a cache, it computes one position, and reads the rest.
#
# In formulas, for one head: the new position has a query $q$ and a key $k$, both $(D,)$, and a value $v$, $(D_v,)$. The
# cache holds `keys`, $(t, D)$, and `values`, $(t, D_v)$, of the $t$ earlier positions. $[\,a; b\,]$ means: $b$ is put
# below $a$.
#
# $$ \mathrm{mixed} = \mathrm{softmax}\!\left(\frac{q\,[\,\mathrm{keys}; k\,]^\top}{\sqrt{D}}\right)
#    [\,\mathrm{values}; v\,] $$
#
# Where is the causal mask? It is not needed: what has not been written yet is not in the cache.
#
# ### Exercise 2 ★★☆: one step with a cache
#
# Write the step for all heads at once.


# %% tags=["exercise"]
def cached_step(query, key, value, keys, values):
    """Causal self-attention for one new position, given the keys and values of those before it.

    query, key (H, D), value (H, Dv): of the new position; keys (H, t, D), values (H, t, Dv): of the t earlier ones.
    → the tuple mixed (H, Dv), keys (H, t + 1, D), values (H, t + 1, Dv): new arrays, the new position last.
    Scores in the thousands must do no harm.
    """
    raise NotImplementedError


# %%
cached_step = check(cached_step)

# %% [markdown] tags=["help"]
# Does the new position look at itself? What does that say about the order of the two things to do, growing the cache
# and attending? And along which axis does the cache grow?
#
# ---
#
# First `keys = np.concatenate([keys, key[:, None]], axis=1)`, and `values` in the same way. Then attention with a
# single query in each head: `scores = (keys @ query[:, :, None])[:, :, 0] / np.sqrt(D)` has shape $(H, t+1)$. The
# softmax of lesson 01 subtracts each row's largest score first.

# %% [markdown]
# The proof: step by step, it must give the same rows as causal attention over the whole sentence at once. We take the
# queries, keys and values of the trained decoder's first layer, for the sentence above:

# %%
layer = model.decoder.layers[0].self_attention
target = np.array([[BOS, *wanted[:-1]]])  # (1, T)
x, _ = model.decoder.embedding.forward(target)  # (1, T, C)
projected, _ = layer.query_key_value.forward(x)  # (1, T, 3C)
query, key, value = (split_heads(part, layer.num_heads) for part in np.split(projected, 3, axis=-1))  # (1, H, T, D)
whole, _ = attention_forward(query, key, value, causal=True)  # (1, H, T, Dv)

keys, values = key[0][:, :0], value[0][:, :0]  # nothing yet: (H, 0, D)
for t in range(target.size):
    mixed, keys, values = cached_step(query[0][:, t], key[0][:, t], value[0][:, t], keys, values)
    if t in (0, target.size // 2, target.size - 1):
        print(f"position {t:2}: cache {keys.shape}, against the whole at once {error(mixed, whole[0][:, t]):.1e}")

# %% [markdown]
# The package's model does this in every layer. `start_decoding` encodes the source. Each `decode_step` takes one token
# for each beam, and appends its keys and values to the cache; the first one also computes the keys and values of the
# source. Here are its logits against those of a forward over everything:

# %%
logits, _ = model.forward(source, target)  # (1, T, V)
state = model.start_decoding(source, num_beams=1)
steps = [model.decode_step(target[:, t : t + 1], state)[:, 0] for t in range(target.size)]  # (1, V) each
print(f"logits, cached against uncached: {error(np.stack(steps, axis=1), logits):.1e}")

# %% [markdown]
# And the time, for outputs of growing length:

# %%
lengths = (8, 16, 32, 64, 96, 127)
tokens = np.full((1, max(lengths)), wanted[0])


def uncached(length):
    for t in range(1, length + 1):
        model.forward(source, tokens[:, :t])


def cached(length):
    state = model.start_decoding(source)
    for t in range(length):
        model.decode_step(tokens[:, t : t + 1], state)


def milliseconds(run, length, repeats=3):
    """The fastest of some runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run(length)
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


without, with_cache = ([milliseconds(run, length) for length in lengths] for run in (uncached, cached))
figure, axes = plt.subplots(figsize=(7.2, 3.0))
axes.plot(lengths, without, "o-", color=VERMILION, label="everything again at each step")
axes.plot(lengths, with_cache, "o-", color=GREEN, label="with the cache")
axes.set(xlabel="tokens written", ylabel="milliseconds", ylim=(0, None), xticks=lengths)
axes.set_title("One sentence, written token by token")
axes.legend(loc="upper left")
plt.show()
print(f"at {lengths[-1]} tokens the cache is {without[-1] / with_cache[-1]:.1f} times as fast")

# %% [markdown]
# Without the cache the curve bends upwards. With it, it is nearly a line: a new query still meets all earlier keys, but
# that is little work while sentences are short. The price is memory, for every beam of every sentence. In large models
# this cache often limits how many users one machine can serve at once:

# %%
config = model.config
floats = 2 * config.decoder_layers * config.d_model  # keys and values
print(f"per token and beam, in float32: {4 * floats:,} bytes here, {4 * 2 * 6 * 512:,} in the paper's base model")

# %% [markdown]
# ## BLEU, from scratch
#
# Is one system's output better than another's? We could count how many translations are *exactly right*. That is a hard
# measure: one wrong ending, and a sentence counts nothing. [BLEU](glossary.md#bleu) (Papineni and others 2002) compares
# short runs of tokens, called **n-grams**, with those of a reference. First the wrong way: which share of our words is
# in the reference?

# %%
reference = "der alte Hund sieht die Katze".split()
for hypothesis in ("der alte Hund sieht eine Katze", "der der der der", "Katze die sieht Hund alte der", "der Hund"):
    print(f"{np.mean([word in reference for word in hypothesis.split()]):.2f}   {hypothesis}")

# %% [markdown]
# So there are three ways to cheat, and each has a repair:
#
# * *Repeat a word.* **Clip**: an n-gram counts at most as often as the reference has it.
# * *Ignore the order.* Count runs of $n = 1, 2, 3, 4$ tokens, and take the geometric mean of the four precisions.
# * *Say little.* A **brevity penalty** lowers the score of output that is shorter than the reference.
#
# Clipping is one operator of Python's `Counter`: `&` keeps the smaller of two counts.

# %%
stutter = Counter("der der der der".split())
print(f"{(stutter & Counter(reference)).total()} of {stutter.total()} words count:", stutter & Counter(reference))

# %% [markdown]
# All counts are added up over the whole corpus; only then do we divide. $m_n$ is the number of n-grams that match,
# after clipping; $c_n$ is the number of n-grams in our translations; $c$ and $r$ are the numbers of tokens in our
# translations and in the references:
#
# $$ \mathrm{BLEU} = 100 \cdot \mathrm{BP} \cdot \exp\Big(\tfrac14 \sum_{n=1}^{4} \log \frac{m_n}{c_n}\Big)
#    \qquad \mathrm{BP} = \min\big(1,\; e^{\,1 - r/c}\big) $$
#
# ### Exercise 3 ★★☆: BLEU
#
# Mind the short sentences: one of three words has no 4-gram, but its words and its shorter n-grams still count.


# %% tags=["exercise"]
def bleu(hypotheses, references):
    """Corpus BLEU in percent, with one reference for each hypothesis.

    hypotheses, references: lists of sentences, each a list of tokens (str) → one number from 0 to 100.
    Where for some n no n-gram matches, it is 0.
    """
    raise NotImplementedError


# %%
bleu = check(bleu)

# %% [markdown] tags=["help"]
# Which numbers belong to one sentence, and which to the corpus? At what point may you divide for the first time? And
# what is the largest place at which a run of $n$ tokens can begin?
#
# ---
#
# The n-grams of a sentence: `Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))`. Make one for the
# translation and one for the reference; `(ours & theirs).total()` is added to $m_n$, and `ours.total()` to $c_n$.

# %% [markdown]
# What is a token here? It is not one of the model's pieces. BLEU is computed on *words*, and the score depends on how a
# text is cut into words. So numbers can only be compared if they come from one program. The field uses `sacrebleu`
# (Post 2018), which cuts the text itself. On our sentences its rule is simple: words, and punctuation marks. Yours
# against it, on greedy translations of the test split:


# %%
def words(text):
    return re.findall(r"\w+|[^\w\s]", text)


sources, references = [e.english for e in examples], [e.german for e in examples]
greedy_output = translator.translate(sources, beam=1)
ours = bleu([words(text) for text in greedy_output], [words(text) for text in references])
official = evaluate(greedy_output, references)
print(f"yours {ours:.4f}   sacrebleu {official.bleu:.4f}   difference {abs(ours - official.bleu):.0e}")
print(f"sacrebleu's signature: {official.signature}")
by_character = bleu([list(text) for text in greedy_output], [list(text) for text in references])
print(f"the same translations, cut into characters: {by_character:.2f}")

# %% [markdown]
# The signature names what the score depends on, besides the sentences. Do not compare two numbers without it. (`smooth`
# says what replaces a precision that is zero; here none is.) And BLEU knows nothing of meaning:

# %%
sentence = words("Der alte Hund sieht heute die kleine Katze nicht .")
changes = "Der alte Hund sieht heute die kleine Katze doch .", "Heute sieht der alte Hund die kleine Katze nicht ."
for change in changes:
    print(f"{bleu([words(change)], [sentence]):5.1f}   {change}")

# %% [markdown]
# The first says the opposite, and scores higher. The second says the same, in another order.
#
# ## All together
#
# Beams of several widths on the same sentences, all with the cache:

# %%
print(f"{'beam':>4} {'α':>4} {'BLEU':>7} {'exact':>7} {'mean log P':>11} {'seconds':>8}")
for width, alpha in ((1, 0.0), (2, 0.0), (4, 0.0), (8, 0.0), (4, 0.6), (4, 1.0)):
    for _ in range(2):  # the second is timed: at a new width the first pays for fresh memory
        begin = time.perf_counter()
        found_best = [best for (best,) in translator.translate_n_best(sources, 1, width, alpha)]
        seconds = time.perf_counter() - begin
    score = evaluate([best.text for best in found_best], references)
    mean = f"{np.mean([best.score for best in found_best]):.4f}" if alpha == 0 else ""
    print(f"{width:4} {alpha:4.1f} {score.bleu:7.2f} {score.exact_match:6.1f}% {mean:>11} {seconds:8.2f}")

# %% [markdown]
# With more places the mean $\log P$ rises, until further places find nothing more. But a more probable sentence need
# not be a better one.
#
# ### Whose error is it? (optional)
#
# If the search is good, the errors that remain are the model's own. To tell the two apart, ask the model: does it find
# its translation more probable than the reference, or less?

# %%
search_errors = model_errors = 0
for example, text in zip(examples, greedy_output, strict=True):
    if text != example.german:
        s = encoded(example.english)
        ours_ids, wanted_ids = ((*tokenizer.encode(t), EOS) for t in (text, example.german))
        better = log_prob(wanted_ids, s) > log_prob(ours_ids, s)
        search_errors, model_errors = search_errors + better, model_errors + (not better)
print(f"greedy's errors: {search_errors} of the search (the reference is more probable), {model_errors} of the model")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# **The caches are not moved with the beams.** When the second-best prefix overtakes the best, its keys and values must
# move to the first place too. If you forget it, each prefix goes on with the past of another one, and nothing crashes.


# %%
class Forgetful:
    """The model, but its caches stay where they are when the beams change places."""

    ops, config, decode_step = model.ops, model.config, model.decode_step

    def start_decoding(self, source, num_beams=1):
        state = model.start_decoding(source, num_beams)
        state.reorder = lambda beams: None
        return state


for name, searched in (("as it should be", model), ("not reordered", Forgetful())):
    hypothesis = package_beam_search(searched, source, 4, length_penalty=0.0)[0][0]
    true = log_prob((*hypothesis.ids, EOS), source)
    text = tokenizer.decode(hypothesis.ids)
    print(f"{name:<16} says log P = {hypothesis.log_prob:6.2f}, and it is {true:6.2f}   {text}")

# %% [markdown]
# Keep this test for every search that you write: score what it returns once more, with a plain forward.
#
# **Probabilities are multiplied.** Soon the product is smaller than anything that float32 can hold. Log-probabilities
# add instead:

# %%
p = np.float32(0.2)
print(f"the smallest float32 above zero: {np.finfo(np.float32).smallest_subnormal:.1e}")
for count in (20, 60, 100):
    print(f"{count:4} tokens: product {np.prod(np.full(count, p)):.1e}, sum of logs {count * np.log(p):.1f}")

# %% [markdown]
# **BLEU is averaged over sentences.** That is another number: a sentence without a matching 4-gram counts 0, even if it
# is a short one.

# %%
pairs = [([words(a)], [words(b)]) for a, b in zip(greedy_output, references, strict=True)]
print(f"corpus BLEU {ours:.2f}, mean of sentences' BLEU {np.mean([bleu(*pair) for pair in pairs]):.2f}")

# %% [markdown]
# ## What changed since 2017
#
# Where few answers are right, as in translation, beams are still used. Where many are right, as in conversation, models
# *sample* from $P$, cut to its likely part (nucleus sampling, Holtzman and others 2020). The key/value cache limits how
# many users can be served, so models share keys and values among heads to make it smaller (multi-query attention,
# Shazeer 2019; grouped-query attention, Ainslie and others 2023). BLEU is still reported, but learned metrics agree
# better with people (Freitag and others 2022, "Stop Using BLEU").
#
# ## Where next
#
# [Lesson 12](12_heads.ipynb): what the heads of this model learned, and which of them it needs.
