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
# A trained model does not give translations. Given a source sentence $X$ and the beginning of a translation, it gives
# a distribution over the one token that comes next. A sentence $Y = (y_1, \dots, y_T)$, whose last token is `</s>`,
# then has the probability that the chain rule (that of probability, for once) says:
#
# $$ \log P(Y \mid X) = \sum_{t=1}^{T} \log P(y_t \mid y_{<t}, X) $$
#
# To translate is to find a $Y$ for which this is large. Training never had to search: it was handed the reference.

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
from course.lesson_11.pictures import draw_beams
from course.style import BLUE, VERMILION
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
# So many cannot be tried one by one. The first idea is to take the most probable token, append it, and ask again:


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
# Greedy is wrong, and the model could have known: by its *own* measure the reference is the more probable sentence. The
# search failed, not the model. Look at the step at which the two part:

# %%
parting = next(t for t, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b)
for ids in (found, wanted):
    first, second = ids[parting : parting + 2]
    p, q = np.exp(after(ids[:parting], source)[first]), np.exp(after(ids[: parting + 1], source)[second])
    words = "  then ".join(tokenizer.tokens((first, second)))
    print(f"{words:<28} {p:.2f} · {q:.2f} = {p * q:.2f}")

# %% [markdown]
# The first factor favours one branch, the product the other. Greedy looks at first factors, and never goes back.
#
# ## Beams
#
# **Beam search** keeps several prefixes alive, `num_beams` of them. Each step extends every one of them by every
# token, and of all these extensions *together* keeps the best. A prefix that takes `</s>` is a complete sentence: it
# leaves the beam and takes its place with it. When no place is left, the best complete sentence wins. So
#
# * with one place this is greedy search, and
# * with a place for every prefix it is an exhaustive search, which misses nothing.
#
# ### Exercise 1: beam search
#
# Write it over any function `next_log_probs(prefix)`. The check runs it on tiny vocabularies, where every sentence can
# be listed, and wants the exhaustive optimum from a beam that is wide enough. The length penalty is explained further
# down; what it does here is one division.


# %% tags=["exercise"]
def beam_search(next_log_probs, num_beams, eos, max_length, length_penalty=0.0):
    """The best sentence that a beam of `num_beams` places finds.

    next_log_probs(prefix), of a tuple of ids that do not hold eos, gives (V,): log P of each next token. That is a
    forward of the whole model: ask once for each prefix, and leave the row as it is.
    Each step extends each prefix by each token and keeps, of all extensions together, those with the highest log P,
    as many as there are places. Those that end in `eos` are complete: set aside, and their places are gone. Stop when
    no place is left or the prefixes have max_length tokens (those are then cut off, and only count if none ended).
    → (ids, log P) of the one among them with the highest log P / ((5 + |Y|) / 6)^length_penalty; ids is a tuple,
    with eos at its end unless it was cut off, and |Y| its length.
    """
    raise NotImplementedError


# %%
beam_search = check(beam_search)

# %% [markdown]
# How wide is wide enough? Take random models over four tokens, `</s>` among them, whose sentences have at most five;
# for each we know the best of all sentences:

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
# Most of the gain comes with the second place; each further one costs as much and finds less. Real systems stop at a
# handful too.
#
# ## The picture: where greedy loses
#
# Now the real model, and the sentence from above, with three places. At each step the surviving prefixes stand in the
# order of their log-probability, which is below each; a `·` marks a piece inside a word; greedy's own are added where
# the beam had dropped them. Follow the two colours: greedy starts on top.

# %% tags=["picture"]
log_probs = {(): 0.0}  # of every prefix that the search went on from, and of their extensions by one token


def next_log_probs(prefix):
    """What the search asks the model; remembered, for the picture."""
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
paths = {"greedy": (found, VERMILION), "beam of 3": (best, BLUE)}
draw_beams(axes, drawn, paths, label, range(first, first + 7))
axes.set_title(f"“{SENTENCE}”")
plt.show()
for name, ids in (("greedy", found), ("beam of 3", best)):
    print(f"{name:<10} log P = {log_probs[ids]:6.2f}   {tokenizer.decode(ids)}")

# %% [markdown]
# Yours against the package's, which searches whole batches, on sentences of the test split. The longest output is, as
# in the paper, the input's length plus 50:

# %%
examples = list(islice(sample("test", 0), 400))
few = [encoded(example.english) for example in examples[:12]]
mine = [beam_search(lambda prefix, s=s: after(prefix, s), 3, EOS, s.size + 50)[1] for s in few]
theirs = [package_beam_search(model, s, 3, length_penalty=0.0)[0][0].log_prob for s in few]
print(f"log P of {len(few)} translations, yours against the package's: {error(np.array(mine), np.array(theirs)):.1e}")

# %% [markdown]
# ## The length penalty
#
# Every further token multiplies the probability by something below 1. So $\log P$ prefers short sentences, and a wide
# beam, which finds more of them, may translate a long sentence by half of it. The paper therefore ranks complete
# sentences by Wu et al.'s score, in which a longer sentence may cost more:
#
# $$ s(Y) = \frac{\log P(Y \mid X)}{\mathrm{lp}(Y)} \qquad
#    \mathrm{lp}(Y) = \left(\frac{5 + |Y|}{6}\right)^{\alpha} $$
#
# $|Y|$ counts `</s>`. With $\alpha = 0$ the score is $\log P$; with $\alpha = 1$ it comes close, as sentences grow, to
# six times the mean per token, and ranks as that does. The paper takes 0.6. Here is a sentence of the test split where
# it decides:

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
# The most probable of them leaves out the shoes. Greedy had it right; it was the wider search that found the short one,
# and the penalty that puts it in its place.
#
# ## The cache: nothing twice
#
# `after` runs the whole model on the whole prefix, to use one row. At the next step it computes all the earlier rows
# again, and they come out the same: with a causal mask, what position $i$ computes never depends on what comes later
# ([04](04_attention.ipynb) proved it by perturbing the future). For $T$ tokens that is

# %%
T = 60
print(f"positions that pass through the decoder: {sum(range(1, T + 1))} without memory, {T} with it")

# %% [markdown]
# So what must be remembered of earlier positions? Everything in a decoder layer works on one position alone, except
# self-attention, where the new position's query meets the *keys and values* of those before it. Keep these, and nothing
# else is needed: one query $q$ of shape $(H, D)$ against keys $(H, t, D)$ and values $(H, t, D_v)$.
#
# $$ \mathrm{mixed} = \mathrm{softmax}\!\left(\frac{q\,[\,\mathrm{keys}; k\,]^\top}{\sqrt{D}}\right)
#    [\,\mathrm{values}; v\,] $$
#
# The mask is gone: what has not been written yet is not in the cache. In cross-attention there is even less to do: the
# keys and values of the source never change, so they are computed once per sentence.
#
# ### Exercise 2: one step with a cache


# %% tags=["exercise"]
def cached_step(query, key, value, keys, values):
    """Causal self-attention for one new position, given the keys and values of those before it.

    query, key (H, D), value (H, Dv): of the new position; keys (H, t, D), values (H, t, Dv): of the t earlier ones.
    → the tuple mixed (H, Dv), keys (H, t + 1, D), values (H, t + 1, Dv): new arrays, the new position last.
    Large scores do no harm.
    """
    raise NotImplementedError


# %%
cached_step = check(cached_step)

# %% [markdown]
# The proof: step by step, it must give the rows that causal attention over the whole sentence gives at once. On the
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
# The package's model does this in every layer: `start_decoding` encodes the source, the first `decode_step` computes
# its keys and values, and each takes one token for each beam and appends to the cache. Its logits against those of a
# forward over everything:

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
axes.plot(lengths, with_cache, "o-", color=BLUE, label="with the cache")
axes.set(xlabel="tokens written", ylabel="milliseconds", ylim=(0, None), xticks=lengths)
axes.set_title("One sentence, written token by token")
axes.legend(loc="upper left")
plt.show()
print(f"at {lengths[-1]} tokens the cache is {without[-1] / with_cache[-1]:.1f} times as fast")

# %% [markdown]
# Without the cache the time is a curve that bends upwards; with it nearly a line: a new query still meets all the
# earlier keys, which is little beside the rest of a step as long as sentences are short. The price is memory, for every
# beam of every sentence; in large models it is often this cache that limits how many readers one machine can serve at
# once:

# %%
config = model.config
floats = 2 * config.decoder_layers * config.d_model  # keys and values
print(f"per token and beam, in float32: {4 * floats:,} bytes here, {4 * 2 * 6 * 512:,} in the paper's base model")

# %% [markdown]
# ## BLEU, from scratch
#
# Is one system's output better than another's? *Exactly right* is a harsh measure: it gives nothing for one wrong
# ending. BLEU compares with a reference by short runs of tokens, **n-grams**. Wrong way first: the share of our words
# that the reference has too.

# %%
reference = "der alte Hund sieht die Katze".split()
for hypothesis in ("der alte Hund sieht eine Katze", "der der der der", "Katze die sieht Hund alte der", "der Hund"):
    print(f"{np.mean([word in reference for word in hypothesis.split()]):.2f}   {hypothesis}")

# %% [markdown]
# Three ways to cheat, and the repair of each:
#
# * *Repeat a word.* **Clip**: an n-gram counts at most as often as the reference has it.
# * *Ignore the order.* Count runs of $n = 1, 2, 3, 4$ tokens, and take the geometric mean of the four precisions.
# * *Say little.* A **brevity penalty** for output that is shorter than the reference.
#
# Clipping is one operator on Python's `Counter`: `&` keeps the smaller of two counts.

# %%
stutter = Counter("der der der der".split())
print(f"{(stutter & Counter(reference)).total()} of {stutter.total()} words count:", stutter & Counter(reference))

# %% [markdown]
# All counts are added up over the corpus before anything is divided. With $m_n$ the clipped matches and $c_n$ the
# n-grams of our translations, and $c$ and $r$ the number of tokens in our translations and in the references:
#
# $$ \mathrm{BLEU} = 100 \cdot \mathrm{BP} \cdot \exp\Big(\tfrac14 \sum_{n=1}^{4} \log \frac{m_n}{c_n}\Big)
#    \qquad \mathrm{BP} = \min\big(1,\; e^{\,1 - r/c}\big) $$
#
# ### Exercise 3: BLEU


# %% tags=["exercise"]
def bleu(hypotheses, references):
    """Corpus BLEU in percent, with one reference for each hypothesis.

    hypotheses, references: lists of sentences, each a list of tokens (str) → one number from 0 to 100.
    Where no n-gram matches for some n it is 0.
    """
    raise NotImplementedError


# %%
bleu = check(bleu)

# %% [markdown]
# What is a token here? Not the model's pieces: BLEU is computed on *words*, and how a text is cut changes the score. So
# numbers to be compared come from one program, `sacrebleu` (Post 2018), which cuts the text itself; on our sentences
# its rule comes down to words and punctuation marks. Yours against it, on greedy translations of the test split:


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
# The signature names what the score depends on besides the sentences; without it two numbers should not be compared.
# (`smooth` says what takes the place of a precision that is zero; here none is.) And BLEU has no opinion on meaning:

# %%
sentence = words("Der alte Hund sieht heute die kleine Katze nicht .")
changes = "Der alte Hund sieht heute die kleine Katze doch .", "Heute sieht der alte Hund die kleine Katze nicht ."
for change in changes:
    print(f"{bleu([words(change)], [sentence]):5.1f}   {change}")

# %% [markdown]
# The first says the opposite, and scores higher; the second says the same, in another order.
#
# ## All together
#
# Beams of several widths on the same sentences, everything with the cache:

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
# With more places the mean $\log P$ rises, until further ones find nothing more; and more probable sentences need not
# be better ones. What remains wrong when the search is good is the model's own opinion. To tell the two apart, ask
# whether it prefers its translation to the reference:

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
# ## Common mistakes
#
# **The caches are not moved with the beams.** When the second-best prefix overtakes the best, its keys and values must
# take the first place in the cache too. Forget it, and each prefix goes on with another one's past: nothing crashes.


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
# The last test is the one to keep: whatever a search returns, score it again with a plain forward.
#
# **Probabilities are multiplied.** Soon the product is smaller than anything that float32 can hold. Log-probabilities
# add instead:

# %%
p = np.float32(0.2)
print(f"the smallest float32 above zero: {np.finfo(np.float32).smallest_subnormal:.1e}")
for count in (20, 60, 100):
    print(f"{count:4} tokens: product {np.prod(np.full(count, p)):.1e}, sum of logs {count * np.log(p):.1f}")

# %% [markdown]
# **BLEU is averaged over sentences.** That is another number: a sentence without a matching 4-gram counts 0, however
# short it is.

# %%
pairs = [([words(a)], [words(b)]) for a, b in zip(greedy_output, references, strict=True)]
print(f"corpus BLEU {ours:.2f}, mean of sentences' BLEU {np.mean([bleu(*pair) for pair in pairs]):.2f}")

# %% [markdown]
# ## What changed since 2017
#
# Where few answers are right, as in translation, beams are still in use; where many are, as in conversation, models
# *sample* from $P$, cut to its likely part (nucleus sampling, Holtzman et al. 2020). The key/value cache became
# a bottleneck of serving, and models share keys and values among heads to shrink it (multi-query attention, Shazeer
# 2019; grouped-query, Ainslie et al. 2023). BLEU is still reported, but learned metrics agree better with people
# (Freitag et al. 2022, "Stop Using BLEU").
#
# ## Where next
#
# [Lesson 12](12_heads.ipynb): what the heads of this model learned, and which of them it needs.
