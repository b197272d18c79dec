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
# A trained model gets a source sentence $X$ and the beginning of a translation, and gives the probability of every
# token that may come next. A whole sentence is $Y = (y_1, \dots, y_T)$, and its last token is `</s>`. The logarithm of
# its probability is a sum over its tokens, with $y_{<t}$ for those before $y_t$:
#
# $$ \log P(Y \mid X) = \sum_{t=1}^{T} \log P(y_t \mid y_{<t}, X) $$
#
# To translate is to find a $Y$ for which this sum is large.

# %%
import re
from collections import Counter
from itertools import islice, product
from pathlib import Path

import numpy as np

from course import start
from course.lesson_11 import pictures as draw
from course.lesson_11.asking import Asking, milliseconds
from course.measuring import blas_threads
from minitransformer import decoding, grammar, ops
from minitransformer.evaluation import evaluate
from minitransformer.gradcheck import error
from minitransformer.layers.attention import split_heads

check = start("11")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
translator = decoding.Translator.from_checkpoint(Path("weights/en-de.safetensors"))
model, tokenizer, V = translator.model, translator.tokenizer, translator.model.config.vocab_size
BOS, EOS = tokenizer.bos_id, tokenizer.eos_id
asking = Asking(translator)
encoded, after, log_prob = asking.encoded, asking.after, asking.log_prob
print(f"sentences of 12 tokens from a vocabulary of {V:,}: about 10^{12 * np.log10(V):.0f}")

# %% [markdown]
# ## Greedy: the best token, again and again
#
# We cannot try so many sentences one by one. `after(prefix, source)` runs the whole model and gives
# $\log P(\cdot \mid \text{prefix}, X)$, one number for each token. The first idea: take the most probable token, append
# it, and ask again.


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
# Greedy is wrong, and by the model's *own* measure the reference is more probable. So the search failed, not the model.
# Here the two sentences part:

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
# ## Beams: two steps by hand
#
# [**Beam search**](glossary.md#beam-search) keeps several prefixes alive: it has `num_beams` places. In each step it
# extends every prefix by every token, puts all these extensions *together*, and keeps the best, as many as there are
# places. Two steps, with three places:

# %%
beam = [((), 0.0)]  # pairs of a prefix and its log P
for _ in range(2):
    extensions = []
    for prefix, log_p in beam:
        row = after(prefix, source)  # (V,)
        extensions += [((*prefix, v), log_p + row[v]) for v in range(V)]
    beam = sorted(extensions, key=lambda extension: -extension[1])[:3]
    print("   ".join(f"{' '.join(tokenizer.tokens(prefix))} {log_p:.2f}" for prefix, log_p in beam))

# %% [markdown]
# A prefix that takes `</s>` is a complete sentence: it leaves the beam, and its place is gone. None did here, so sort
# three made-up survivors (kept extensions):

# %%
survivors, places = [((7, EOS), -0.9), ((7, 8), -1.1), ((9, 8), -1.5)], 3
complete = [extension for extension in survivors if extension[0][-1] == EOS]
beam = [extension for extension in survivors if extension[0][-1] != EOS]
places -= len(complete)
print(f"complete {complete}, the next beam {beam}, places left {places}")

# %% [markdown]
# When no place is left, the best complete sentence wins. With one place, this is
# [greedy search](glossary.md#greedy-search). With a place for every prefix, it misses nothing.
#
# ### Exercise 1 ★★☆: beam search
#
# Write the whole search for any function `next_log_probs(prefix)`. The check runs it on tiny vocabularies, where it can
# list every sentence. The length penalty, explained further down, is one division at the end.


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
# Which of the lines above belong into one round of the loop, and in which order? And what can the search return if it
# runs into `max_length` before any prefix has ended?
#
# ---
#
# Begin with `beam, places, complete = [((), 0.0)], num_beams, []`. In each step collect and sort the extensions as
# above, keep the first `places`, and sort the survivors out as above. At the end take `max(complete or beam, key=…)`.

# %% [markdown]
# ### How wide is wide enough? (optional)
#
# Take random models over four tokens, `</s>` among them, with sentences of at most five tokens. For each of them we
# know the best of all sentences:

# %%
tiny_rng = np.random.default_rng(0)
TOKENS, LONGEST = 4, 5


def tiny_model():
    """A random table of log P(next | prefix) over TOKENS tokens; 0 is </s>, which comes at LONGEST at the latest."""
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

draw.optima(widths, shares)

# %% [markdown]
# Most of the gain comes with the second place. Each further place costs as much and finds less.
#
# ## The picture: where greedy loses
#
# Now the real model and the sentence from above, with three places. Each column is a step. The prefixes that survive
# stand in the order of their log-probability, which is written below each. A `·` marks a piece inside a word.

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

first = max(parting - 1, 0)
draw.beams(drawn, {"greedy": found, "beam of 3": best}, asking.label, range(first, first + 7), SENTENCE)
for name, ids in (("greedy", found), ("beam of 3", best)):
    print(f"{name:<10} log P = {log_probs[ids]:6.2f}   {tokenizer.decode(ids)}")

# %% [markdown]
# The [explorer](../minitransformer/explorer/README.md) draws this tree for any sentence: choose *Search* in the page
# that `make explorer` writes. Now yours against the package's search, which works on whole batches. The output may have
# at most as many tokens as the input plus 50, as in the paper:

# %%
examples = list(islice(grammar.sample("test", 0), 400))
few = [encoded(example.english) for example in examples[:12]]
mine = [beam_search(lambda prefix, s=s: after(prefix, s), 3, EOS, s.size + 50)[1] for s in few]
theirs = [decoding.beam_search(model, s, 3, length_penalty=0.0)[0][0].log_prob for s in few]
print(f"log P of {len(few)} translations, yours against the package's: {error(np.array(mine), np.array(theirs)):.1e}")

# %% [markdown]
# ## The length penalty
#
# Every further token multiplies the probability by a number below 1. So $\log P$ prefers short sentences, and a wide
# beam finds more of them. Therefore the paper ranks by a score that allows longer ones to be less probable (Wu and
# others 2016):
#
# $$ s(Y) = \frac{\log P(Y \mid X)}{\mathrm{lp}(Y)} \qquad
#    \mathrm{lp}(Y) = \left(\frac{5 + |Y|}{6}\right)^{\alpha} $$
#
# $|Y|$ is the number of tokens, and `</s>` counts. With $\alpha = 0$ the score is $\log P$; the paper takes
# $\alpha = 0.6$. Here is a sentence of the test split where the penalty decides:

# %%
SHOES = "Last week, he washed warm shoes."
candidates = decoding.beam_search(model, encoded(SHOES), 4, n_best=4, length_penalty=0.0)[0]
print("tokens  log P   α = 0.6   α = 1")
for candidate in candidates:
    length = len(candidate.ids) + 1
    scores = [candidate.log_prob / decoding.penalty(length, alpha) for alpha in (0.6, 1.0)]
    text = tokenizer.decode(candidate.ids)
    print(f"{length:6} {candidate.log_prob:6.2f}   {scores[0]:7.3f} {scores[1]:7.3f}   {text}")
print(f"greedy: {tokenizer.decode(greedy(encoded(SHOES)))}")

# %% [markdown]
# The most probable of the four leaves out the shoes. Greedy was right, and the penalty agrees with it.
#
# ## The cache: nothing twice
#
# `after` runs the whole model on the whole prefix, and then uses one row. At the next step it computes all the earlier
# rows again, and they come out the same: with a causal mask, position $i$ never depends on later ones. For 60 tokens,
# 1 + 2 + … + 60 positions pass through the decoder, where 60 are enough.
#
# Which arrays must we remember of earlier positions? In a decoder layer nearly everything works on one position alone.
# The exception is self-attention: there the query of the new position meets the *keys and values* of those before it.
# So keep the keys and values, and nothing else. In cross-attention the keys and values of the source never change, so
# they are computed once per sentence.

# %%
short = encoded("She is not old.")
written = tokenizer.tokens([BOS, *greedy(short)])
draw.cache([token.strip("▁") for token in written], [token.strip("▁") for token in tokenizer.tokens(short[0])])

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
# The causal mask is not needed: tokens that are not written yet are not in the cache.
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
whole, _ = ops.attention_forward(query, key, value, causal=True)  # (1, H, T, Dv)

keys, values = key[0][:, :0], value[0][:, :0]  # nothing yet: (H, 0, D)
for t in range(target.size):
    mixed, keys, values = cached_step(query[0][:, t], key[0][:, t], value[0][:, t], keys, values)
    if t in (0, target.size // 2, target.size - 1):
        print(f"position {t:2}: cache {keys.shape}, against the whole at once {error(mixed, whole[0][:, t]):.1e}")

# %% [markdown]
# The package's model does this in every layer. `start_decoding` encodes the source. Each `decode_step` takes one token
# for each beam, and appends its keys and values to the cache. We compare its logits with those of a forward over
# everything, and time outputs of growing length:

# %%
logits, _ = model.forward(source, target)  # (1, T, V)
state = model.start_decoding(source, num_beams=1)
steps = [model.decode_step(target[:, t : t + 1], state)[:, 0] for t in range(target.size)]  # (1, V) each
print(f"logits, cached against uncached: {error(np.stack(steps, axis=1), logits):.1e}")

lengths = (8, 16, 32, 64, 96, 127)
tokens = np.full((1, max(lengths)), wanted[0])


def uncached(length):
    for t in range(1, length + 1):
        model.forward(source, tokens[:, :t])


def cached(length):
    state = model.start_decoding(source)
    for t in range(length):
        model.decode_step(tokens[:, t : t + 1], state)


without, with_cache = ([milliseconds(run, length) for length in lengths] for run in (uncached, cached))
draw.times(lengths, without, with_cache)
print(f"at {lengths[-1]} tokens the cache is {without[-1] / with_cache[-1]:.1f} times as fast")
floats = 2 * model.config.decoder_layers * model.config.d_model  # keys and values
print(f"per token and beam, in float32: {4 * floats:,} bytes here, {4 * 2 * 6 * 512:,} in the paper's base model")

# %% [markdown]
# Without the cache the curve bends upwards. With it, it is nearly a line: a new query still meets all earlier keys, but
# that is little work while sentences are short. The price is memory, for every beam of every sentence. In large models
# this cache often limits how many users one machine can serve at once.
#
# ## BLEU, from scratch
#
# Is one system's output better than another's? The share of *exactly right* translations is a hard measure.
# [BLEU](glossary.md#bleu) (Papineni and others 2002) compares short runs of tokens, called **n-grams**, with those of a
# reference. Counting the words that are also in the reference could be cheated in three ways, and each has a remedy:
#
# * *Repeat a word.* **Clip**: an n-gram counts at most as often as the reference has it.
# * *Ignore the order.* Count runs of $n = 1, 2, 3, 4$ tokens, and take the geometric mean of the four precisions.
# * *Say little.* A **brevity penalty** lowers the score of output that is shorter than the reference.
#
# All counts are added up over the whole corpus; only then do we divide. $m_n$ is the number of n-grams that match,
# after clipping; $c_n$ is the number of n-grams in our translations; $c$ and $r$ are the numbers of tokens in our
# translations and in the references:
#
# $$ \mathrm{BLEU} = 100 \cdot \mathrm{BP} \cdot \exp\Big(\tfrac14 \sum_{n=1}^{4} \log \frac{m_n}{c_n}\Big)
#    \qquad \mathrm{BP} = \min\big(1,\; e^{\,1 - r/c}\big) $$
#
# Beams of several widths on the same sentences, all with the cache, scored by the field's program `sacrebleu`:

# %%
sources, references = [e.english for e in examples], [e.german for e in examples]
print(f"{'beam':>4} {'α':>4} {'BLEU':>7} {'exact':>7} {'mean log P':>11}")
for width, alpha in ((1, 0.0), (2, 0.0), (4, 0.0), (8, 0.0), (4, 0.6), (4, 1.0)):
    found_best = [best for (best,) in translator.translate_n_best(sources, 1, width, alpha)]
    score = evaluate([best.text for best in found_best], references)
    mean = f"{np.mean([best.score for best in found_best]):.4f}" if alpha == 0 else ""
    print(f"{width:4} {alpha:4.1f} {score.bleu:7.2f} {score.exact_match:6.1f}% {mean:>11}")

# %% [markdown]
# With more places the mean $\log P$ rises, until further places find nothing more. But a more probable sentence need
# not be a better one.
#
# ### Exercise 3 ★★☆: BLEU (optional)
#
# Clipping is one operator of Python's `Counter`: `&` keeps the smaller of two counts. Mind the short sentences: one of
# three words has no 4-gram, but its words and its shorter n-grams still count.

# %%
reference, stutter = Counter("der alte Hund sieht die Katze".split()), Counter("der der der der".split())
print(f"{(stutter & reference).total()} of {stutter.total()} words count:", stutter & reference)


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
# The tokens of BLEU are not the model's pieces but *words*, and the score depends on how a text is cut into words. So
# numbers can only be compared if they come from one program. The field uses `sacrebleu` (Post 2018), which cuts the
# text itself; on our sentences into words and punctuation marks. Yours against it, on greedy translations:


# %%
def words(text):
    return re.findall(r"\w+|[^\w\s]", text)


greedy_output = translator.translate(sources, beam=1)
ours = bleu([words(text) for text in greedy_output], [words(text) for text in references])
official = evaluate(greedy_output, references)
print(f"yours {ours:.4f}   sacrebleu {official.bleu:.4f}   difference {abs(ours - official.bleu):.0e}")
print(f"sacrebleu's signature: {official.signature}")
by_character = bleu([list(text) for text in greedy_output], [list(text) for text in references])
print(f"the same translations, cut into characters: {by_character:.2f}")

# %% [markdown]
# The signature names everything that the score depends on, besides the sentences. Do not compare two numbers without
# it. And BLEU knows nothing of meaning: the first of these says the opposite, and scores higher than the second, which
# says the same in another order.

# %%
sentence = words("Der alte Hund sieht heute die kleine Katze nicht .")
changes = "Der alte Hund sieht heute die kleine Katze doch .", "Heute sieht der alte Hund die kleine Katze nicht ."
for change in changes:
    print(f"{bleu([words(change)], [sentence]):5.1f}   {change}")
pairs = [([words(a)], [words(b)]) for a, b in zip(greedy_output, references, strict=True)]
print(f"corpus BLEU {ours:.2f}, mean of sentences' BLEU {np.mean([bleu(*pair) for pair in pairs]):.2f}")

# %% [markdown]
# The last line is a common mistake: BLEU averaged over sentences is another number. A sentence without a matching
# 4-gram counts 0, even if it is a short one.
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
    hypothesis = decoding.beam_search(searched, source, 4, length_penalty=0.0)[0][0]
    true = log_prob((*hypothesis.ids, EOS), source)
    text = tokenizer.decode(hypothesis.ids)
    print(f"{name:<16} says log P = {hypothesis.log_prob:6.2f}, and it is {true:6.2f}   {text}")

# %% [markdown]
# Keep this test for every search: score its result once more, with a plain forward.
#
# ## What changed since 2017
#
# Where few answers are right, as in translation, beams are still used. Where many are right, as in conversation, models
# *sample* from $P$, cut to its likely part (nucleus sampling, Holtzman and others 2020). To make the key/value cache
# smaller, models share keys and values among heads (multi-query attention, Shazeer 2019; grouped-query attention,
# Ainslie and others 2023). BLEU is still reported, but learned metrics agree better with people (Freitag and others
# 2022, "Stop Using BLEU").
#
# ## Where next
#
# [Lesson 12](12_heads.ipynb): what the heads of this model learned, and which of them it needs.
