# %% [markdown]
# # 02 · Text to numbers, and back
#
# **You will be able to** turn any text into integers and back without losing a character, learn the vocabulary yourself
# by byte-pair encoding, and look the integers up as vectors whose gradient you can write.
#
# | | |
# |---|---|
# | you know | [00](00_gradients.ipynb): backwards; [01](01_softmax.ipynb): scores, probabilities, gradient descent |
# | runs in | 60 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §5.1 (byte-pair encoding, one vocabulary for both languages), §3.4 (embeddings) |
# | in the package | [`data`](../minitransformer/data): bpe, tokenizer; [`ops`](../minitransformer/ops): embedding |
#
# A model computes with arrays of numbers, and a sentence is none. Between them lie two steps, and this lesson takes
# them in order: **text → integers** (a tokenizer, learned once, by counting) and **integers → vectors** (an embedding,
# learned with everything else, by gradient descent).

# %%
import re
import unicodedata
from collections import Counter
from itertools import islice, pairwise

import numpy as np

from course import start
from course.lesson_02.pictures import draw_map, draw_merge_trees, draw_two_modes, draw_vocabulary
from minitransformer.data.batching import collate
from minitransformer.data.bpe import choose_characters, count_words, learn_merges, split_words
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.gradcheck import check_gradients, error, numerical_gradient
from minitransformer.grammar import count_sentences, sample
from minitransformer.grammar.lexicon.nouns import NOUNS
from minitransformer.ops import embedding_backward as package_embedding_backward
from minitransformer.ops import embedding_forward

check = start("02")
rng = np.random.default_rng(0)

# %% [markdown]
# ## The corpus
#
# The course translates a small language that the package makes itself: a [grammar](../minitransformer/grammar)
# draws English sentences together with their German. It has what makes German hard: cases, genders, verbs that move to
# the end or come apart. And it has what real text lacks: every test sentence is new, and there is exactly one right
# answer to compare with.

# %%
training = list(islice(sample("train", seed=0), 10_000))
test = list(islice(sample("test", seed=0), 500))
for example in training[2:6]:
    print(f"{example.english}\n    {example.german}")
print(f"\nsentences in the language: {count_sentences():.0e}; here {len(training):,} to learn from")

# %% [markdown]
# ## First attempt: a number for each word
#
# Cut the text into words and punctuation, list those that occur, number the list: an **integer encoding**. Encoding is
# a look-up in a dictionary, decoding one in a list.


# %%
def words_of(text):
    """Words and punctuation marks, in order."""
    return re.findall(r"[\w-]+|[^\w\s]", text)


def number(texts):
    """A vocabulary {word: id}, the most frequent first."""
    counts = Counter(word for text in texts for word in words_of(text))
    return {word: n for n, (word, _) in enumerate(counts.most_common())}


english = number(example.english for example in training)
print({word: english[word] for word in ("the", "dog", "cat", "sausage", "Tuesday")})

# %% [markdown]
# The numbers are names, not amounts. Give them to a network as they are, and it is told that words lie on a line, with
# *Tuesday* between *the* and *dog*. The honest form is **one-hot**: a vector of length $V$ (the size of the
# vocabulary) with a 1 at the word's place and 0 elsewhere. No word is nearer to any other:

# %%
V = len(english)
one_hot = np.eye(V)
for a, b in (("dog", "cat"), ("dog", "Tuesday")):
    distance = np.linalg.norm(one_hot[english[a]] - one_hot[english[b]])
    print(f"{a} to {b:<8} ids differ by {abs(english[a] - english[b]):>3}, one-hot vectors lie {distance:.3f} apart")

# %% [markdown]
# A one-hot vector is never stored; the id says all that it says. Remember it as a way of thinking: further down it
# turns a table look-up into a matrix product.
#
# ### Where words fail
#
# What is the number of a word that was not in the training text? It has none. German makes long words out of short
# ones, so even this small language runs into it. (It is closed, so in the end every word has been seen. A real language
# never gets there, and each new name is a new word.)

# %%
print("sentences    English words    unknown in test    German words    unknown in test")
for size in (100, 1000, len(training)):
    cells = []
    for language in ("english", "german"):
        known = number(getattr(example, language) for example in training[:size])
        words = [word for example in test for word in words_of(getattr(example, language))]
        cells.append(f"{len(known):>13,}{np.mean([word not in known for word in words]):>18.1%}")
    print(f"{size:>9,}    {'  '.join(cells)}")

# %% [markdown]
# The other extreme is one number for each **character**. There are few, and none is missing for long. But a sentence
# becomes several times as long, and attention, as lesson 04 shows, compares every position with every other.

# %%
texts = [text for example in test for text in (example.english, example.german)]
print(f"mean length of a test sentence: {np.mean([len(words_of(text)) for text in texts]):.1f} words,", end=" ")
print(f"{np.mean([len(text) for text in texts]):.1f} characters")

# %% [markdown]
# ## Byte-pair encoding: let the text decide
#
# Start from characters. Find the pair of neighbours that occurs most often, make it a symbol of its own, and repeat:
#
# $$ (a, b) = \operatorname*{argmax}_{(a, b)} \sum_w \mathrm{count}(w) \cdot
#    \#\{ i : w_i = a,\ w_{i+1} = b \} $$
#
# over all words $w$, with $w_i$ its $i$-th symbol. Frequent words grow together into one token; rare and new ones stay
# in pieces. The number of merges is the one thing to choose. (Sennrich, Haddow & Birch, 2016; the paper's §5.1 has
# about 37,000 tokens, shared by both languages.)
#
# ### Exercise 1: one merge


# %% tags=["exercise"]
def merge(symbols, pair, new):
    """A copy of the list `symbols` in which each occurrence of `pair`, two neighbours, is replaced by `new`.

    From left to right: merge(["a", "a", "a"], ("a", "a"), "aa") is ["aa", "a"]. Symbols may be strings or numbers.
    """
    raise NotImplementedError


# %%
merge = check(merge)

# %% [markdown]
# The rest is counting. Merges stay inside a word, so it is enough to keep each distinct word once, with its count. The
# space before a word belongs to it (printed as ▁): so nothing is lost when text is cut, and *low* in a sentence is the
# same token wherever it stands.


# %%
def learn_bpe(word_counts, num_merges):
    """The merges, oldest first, and each word as they leave it. word_counts: {word: count}."""
    split = {word: list(word) for word in word_counts}
    age = {symbol: n for n, symbol in enumerate(sorted({character for word in word_counts for character in word}))}
    merges = []
    for _ in range(num_merges):
        counts = Counter()
        for word, symbols in split.items():
            for pair in pairwise(symbols):
                counts[pair] += word_counts[word]
        best = max(counts, key=lambda pair: (counts[pair], -age[pair[0]], -age[pair[1]]))  # of equals the oldest
        merges.append(best)
        age["".join(best)] = len(age)
        split = {word: merge(symbols, best, "".join(best)) for word, symbols in split.items()}
    return merges, split


word_counts = {" low": 5, " lower": 2, " newest": 6, " widest": 3}  # Sennrich et al.'s own example, with our spaces
for num_merges in range(8):
    merges, split = learn_bpe(word_counts, num_merges)
    made = "".join(merges[-1]).replace(" ", "▁") if merges else ""
    print(f"{made:<6}", *(f"{' '.join(symbols).replace(' ', '▁', 1):<16}" for symbols in split.values()))

# %% [markdown]
# Look at *est*: an English ending, found by counting. This loop counts every pair again for each merge; the package's
# [`learn_merges`](../minitransformer/data/bpe.py) corrects only the counts that a merge changed. The same merges come
# out:

# %%
both = [text for example in training for text in (example.english, example.german)]  # one vocabulary for two languages
word_counts = count_words(both)
characters = choose_characters(word_counts)
merges = learn_merges(word_counts, characters, 10_000)  # or as many as there are
mine, _ = learn_bpe(word_counts, 40)
print(f"{len(word_counts):,} distinct words, {len(characters)} characters, {len(merges):,} merges until all are whole")
print("the first 40 agree:", mine == merges[:40])
print("the oldest:", ", ".join("".join(pair).replace(" ", "▁") for pair in merges[:16]))

# %% [markdown]
# ### The picture: a word as a tree
#
# Here is how two words of the corpus were put together, a row for each merge, the oldest below. **Cut the tree at any
# height, and you read the tokens of a vocabulary with that many merges.** Two cuts are drawn.

# %%
draw_merge_trees([" Schauspielerinnen", " hedgehogs"], merges, cuts=(30, 300))

# %%
for cut in (30, 300, len(merges)):
    tokenizer = BPETokenizer(characters, merges[:cut])
    words = (tokenizer.tokens(tokenizer.encode(word)) for word in ("Schauspielerinnen", "hedgehogs", "hedgehoglets"))
    print(f"{cut:>5} merges:  ", "   ".join(" ".join(tokens) for tokens in words))

# %% [markdown]
# *Schauspielerinnen*, actresses, was put together from pieces that other words share: its end from that of every
# feminine plural in *-innen*. And *hedgehoglets*, which nobody ever wrote in this corpus, is no problem: it stays in
# pieces.
#
# ### The picture: how many merges?

# %%
wanted = (0, 30, 100, 300, 1000, 2000, 3000, len(merges))
sizes, rare, lengths = [], [], {"English": [], "German": []}  # rare: the share of tokens seen less than ten times
for num_merges in wanted:
    tokenizer = BPETokenizer(characters, merges[:num_merges])
    seen = np.bincount(np.concatenate([tokenizer.encode(text) for text in both]), minlength=tokenizer.vocab_size)
    seen = seen[-(len(characters) + num_merges) :]  # characters and merges, without the special tokens
    sizes.append(len(seen))
    rare.append((seen < 10).mean())
    for language, length in lengths.items():
        length.append(np.mean([len(tokenizer.encode(getattr(example, language.lower()))) for example in test]))

word_lengths = {
    language: np.mean([len(split_words(" " + getattr(example, language.lower()))) for example in test])
    for language in lengths
}
draw_vocabulary(
    np.array(sizes), {name: np.array(length) for name, length in lengths.items()}, word_lengths, len(word_counts),
    np.array(rare),
)  # fmt: skip

# %% [markdown]
# From left to right a sentence shrinks from its characters to its words, most of it with the first few hundred merges.
# The price is on the right. Each token will have a vector of its own to learn, and the more tokens there are, the more
# are hardly ever seen: rare words, but also stepping stones such as *▁hedgeho*, which is made on the way to a longer
# token and then never left alone. The choice is a balance.
#
# ## Any text at all
#
# One hole is left: a character that the training text never had. **Byte fallback** closes it. Every text is bytes in
# UTF-8, there are only 256 of them, so give each an id. The package's ids:
#
# | ids | |
# |---|---|
# | 0, 1, 2 | `<pad>`, `<s>`, `</s>`: padding, start and end; no text yields them |
# | 3 … 258 | the bytes 0 … 255 |
# | 259 … | the characters, then the merges, oldest first |
#
# To encode a word, write it as characters, spell unknown ones in bytes, then **make the oldest merge that applies,
# everywhere in the word, until none applies**. The order matters: it is the one in which the vocabulary was learned.
#
# ### Exercise 2: an encoder that nothing can surprise


# %% tags=["exercise"]
def encode(word, characters, merges):
    """The list of ids of a word (a str).

    characters: {character: id}. A character that is not in it becomes its UTF-8 bytes, byte b as the id 3 + b.
    merges: {(id, id): new id}; an older merge has a smaller new id. Your `merge` makes one.
    """
    raise NotImplementedError


# %%
encode = check(encode)

# %% [markdown]
# Decoding is simpler, with one trap: join the bytes of all tokens *before* reading them as UTF-8, since a character's
# bytes are spread over several tokens. A model may put together bytes that are no UTF-8; they become �.

# %%
merges = merges[:2000]
pieces = [*characters, *("".join(pair) for pair in merges)]  # the text of ids 259, 260, …
id_of = {piece: 259 + n for n, piece in enumerate(pieces)}
known_characters = {character: id_of[character] for character in characters}
known_merges = {(id_of[a], id_of[b]): id_of[a + b] for a, b in merges}


def encode_text(text):
    """One space is put first, so that the first word is like any other."""
    return [i for word in split_words(" " + text) for i in encode(word, known_characters, known_merges)]


def decode(ids):
    """The text of ids from 3 on."""
    data = b"".join(bytes([i - 3]) if i < 259 else pieces[i - 259].encode() for i in ids)
    return data.decode("utf-8", "replace").removeprefix(" ")


tokenizer = BPETokenizer(characters, merges)
print("as the package on the test text:", all(encode_text(text) == tokenizer.encode(text) for text in texts))
for text in ("The hedgehog sleeps.", "naïve 日本語 🦔"):
    print(f"{text!r} → {' '.join(tokenizer.tokens(encode_text(text)))} → {decode(encode_text(text))!r}")

code_points = rng.integers(1, 0x110000, (1000, 20))  # of all of Unicode, except the surrogates, which are no characters
strange = ["".join(chr(c) for c in row if not 0xD800 <= c <= 0xDFFF) for row in code_points]
print("a thousand random strings come back:", all(decode(encode_text(text)) == text for text in strange))

# %% [markdown]
# ## And SentencePiece?
#
# It is often named as an alternative to BPE, and is not: BPE is a way to learn a vocabulary, SentencePiece (Kudo &
# Richardson, 2018) is a library that learns one, by BPE or by a *unigram* model. What sets it apart:
#
# | | BPE as in 2016 (subword-nmt) | SentencePiece | this package |
# |---|---|---|---|
# | reads | words, cut by a program for the language | raw text | raw text |
# | a space | is dropped; a mark tells the word's end | is a character, ▁ | belongs to the word after it |
# | learns by | merging frequent pairs | that, or unigram: drop what is missed least | merging frequent pairs |
# | cuts a word by | replaying the merges | that, or unigram: the most probable cut | replaying the merges |
# | unknown characters | stay unknown | stay unknown, or bytes if asked | are bytes |
# | gives back | the words | the text, *normalised* (by default) | the text |
#
# The last line in practice. SentencePiece's default rule is built on Unicode's NFKC, which replaces characters by
# plainer ones that mean nearly the same. That is often what one wants, and cannot be undone:

# %%
for text in ("ﬁnd", "10²", "①", "Ｔｏｋｙｏ"):
    normalised, ours = unicodedata.normalize("NFKC", text), decode(encode_text(text))
    print(f"{text}: {normalised} after NFKC, {ours} after our tokenizer")

# %% [markdown]
# ## Sentences to batches
#
# A batch is a rectangle $(B, T)$ of ids, and sentences have different lengths. Shorter ones are filled up with
# `<pad>`, id 0, which must not count anywhere: the loss skips it (`ignore_index=0`), attention will mask it (lesson
# 04). The target comes twice, shifted by one: what a decoder has read, beginning with `<s>`, and what it should say
# next, ending with `</s>`. Lesson 03 uses both.

# %%
chosen = sorted(training[:40], key=lambda example: len(example.english))[:3]
batch = collate(
    [tokenizer.encode(example.english) for example in chosen], [tokenizer.encode(example.german) for example in chosen]
)
for name in ("source", "target_in", "target_out"):
    ids = getattr(batch, name)
    print(f"{name} {ids.shape}")
    tokens = [tokenizer.tokens(row) for row in ids]
    widths = [max(map(len, column)) + 1 for column in zip(*tokens, strict=True)]
    for row in tokens:
        print("   ", "".join(f"{token:<{width}}" for token, width in zip(row, widths, strict=True)))

# %% [markdown]
# ## Integers to vectors: a table
#
# Give each token a row of a table $E$ of shape $(V, C)$, where $C$ is the model's width (the paper's $d_{model}$). To
# embed a token is to look up its row:
#
# $$ y_{bt} = E_{\mathrm{ids}_{bt}} \qquad \mathrm{ids}: (B, T) \;\to\; y: (B, T, C) $$
#
# It is a linear layer in disguise. A one-hot vector times a matrix picks one row, and all other products are with zero:
#
# $$ y = \mathrm{onehot}(\mathrm{ids})\; E $$

# %%
table = rng.standard_normal((tokenizer.vocab_size, 64))
ids = batch.source  # (B, T)
y, _ = embedding_forward(ids, table)  # (B, T, C)

slow = np.zeros((*ids.shape, table.shape[1]))
for b in range(ids.shape[0]):
    for t in range(ids.shape[1]):
        slow[b, t] = table[ids[b, t]]
one_hot = np.eye(len(table))[ids]  # (B, T, V)
for name, other in (("the loops", slow), ("one-hot times table", one_hot @ table), ("table[ids]", table[ids])):
    print(f"against {name:<20}{error(y, other):.0e}")
print(f"multiplications: {one_hot.size * table.shape[1]:,} as a product, none as a look-up")

# %% [markdown]
# The backward follows from the product: a linear layer's weight gradient is $x^\top \mathrm{d}y$ (lesson 00), here
# $\mathrm{d}E = \mathrm{onehot}^\top\, \mathrm{d}y$. Written without the zeros, row $v$ collects the gradients from
# everywhere where $v$ was looked up:
#
# $$ \mathrm{d}E_v = \sum_{b, t\,:\,\mathrm{ids}_{bt} = v} \mathrm{d}y_{bt} $$
#
# The forward *gathers* rows, the backward *scatters and adds*. Ids are integers and have no gradient.
#
# ### Exercise 3: the gradient of a look-up


# %% tags=["exercise"]
def embedding_backward(dy, ids, num_rows):
    """Gradient of the table. dy (..., C), ids (...) integers in [0, num_rows) → dtable (num_rows, C).

    It is called thousands of times below, so without a Python loop over the ids or the rows.
    """
    raise NotImplementedError


# %%
embedding_backward = check(embedding_backward)

# %%
dy = rng.standard_normal(y.shape)
dtable = embedding_backward(dy, ids, len(table))
theirs = package_embedding_backward(dy, embedding_forward(ids, table)[1])
print(f"against one-hotᵀ dy {error(dtable, np.tensordot(one_hot, dy, 2 * (range(2),))):.0e},", end=" ")
print(f"against the package {error(dtable, theirs):.0e}")
errors = check_gradients(
    lambda ids, table: (table[ids], (ids, len(table))),
    lambda dy, cache: embedding_backward(dy, *cache),
    {"ids": ids, "table": rng.standard_normal((len(table), 2))},
    samples=200,
)
print(f"against central differences {errors['table']:.0e}")
print(f"rows that moved: {np.count_nonzero(dtable.any(axis=1))} of {len(dtable):,}")

# %% [markdown]
# The package's look-up takes a `scale`: the model multiplies what it looks up by $\sqrt{C}$ (§3.4). Its table starts
# with entries of variance $1 / C$, and serves at the other end as the output layer too; lesson 08 puts the two
# together.
#
# ## What are the vectors? The older way
#
# In the Transformer: random numbers at first, then whatever lowers the loss. The table is a parameter like any other,
# and the gradient you wrote is all that it ever learns from. (§3.4: "we use learned embeddings". That it uses word2vec
# is a common mistake.)
#
# Before that, vectors were often learned alone, from nothing but which words stand near each other, and then built into
# other models. The best known way is **word2vec** (Mikolov et al., 2013), with two modes:

# %%
draw_two_modes("the small dog eats the sausage".split(), centre=3, reach=2)

# %% [markdown]
# Both are the same machine. Look up the vectors of what is given and take their mean $h$ (one vector in skip-gram, the
# neighbours' in CBOW). What is predicted, $w$, has a vector $u_w$ from a second table. A softmax over all $V$ words
# would be costly, so word2vec asks an easier question: is this the true word, or one of a few drawn at random? With
# $\sigma(s) = 1 / (1 + e^{-s})$, the softmax of two scores $s$ and 0, that is *negative sampling*:
#
# $$ L = -\log \sigma(u_w \cdot h) - \sum_{k} \log\big(1 - \sigma(u_{n_k} \cdot h)\big), \qquad
#    \frac{\partial L}{\partial s} = \sigma(s) - [\text{true word}] $$
#
# with $s$ one of the scores $u \cdot h$ and $n_k$ the random words: lesson 01's probability minus truth. The referee
# agrees:


# %%
def sigmoid(s):
    return 1 / (1 + np.exp(-s))


def negative_sampling(s):
    """The loss for scores s (1 + k,), the true word's first."""
    return -np.log(sigmoid(s[0])) - np.log(1 - sigmoid(s[1:])).sum()


s = rng.standard_normal(6)
print(f"against central differences {error(sigmoid(s) - np.eye(6)[0], numerical_gradient(negative_sampling, s)):.0e}")

# %% [markdown]
# As in word2vec, frequent words are thinned out, and random words drawn in proportion to $\mathrm{count}^{3/4}$. Each
# batch takes the summed step of its pairs, for word2vec makes one step a pair.

# %%
sentences = [words_of(example.english.lower()) for example in training]
counts = Counter(word for sentence in sentences for word in sentence)
index = {word: n for n, word in enumerate(["<pad>", *counts])}
rng = np.random.default_rng(0)
frequency = np.array([0, *counts.values()]) / counts.total()
kept = np.sqrt(1e-3 / np.maximum(frequency, 1e-3))  # the probability to keep a word: 1 unless it is very frequent
noise = np.cumsum(frequency**0.75) / (frequency**0.75).sum()

centres, neighbours = [], []  # each word, and up to two on either side of it
for sentence in sentences:
    ids = np.array([index[word] for word in sentence])
    ids = ids[rng.random(len(ids)) < kept[ids]]
    centres.append(ids)
    neighbours.append(np.pad(ids, 2)[np.arange(len(ids))[:, None] + np.array([0, 1, 3, 4])])
centres, neighbours = np.concatenate(centres), np.concatenate(neighbours)  # (N,), (N, 4)


def word2vec(given, predicted, epochs, lr=0.05, width=32, num_noise=5, batch_size=512):
    """Vectors (V, width) learned by predicting `predicted` (N,) from the mean of `given` (N, K); 0 is padding."""
    table, out_table = 0.1 * rng.standard_normal((len(index), width)), np.zeros((len(index), width))
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(len(predicted)), len(predicted) // batch_size):
            real = (given[rows] != 0)[..., None]
            share = real / np.maximum(real.sum(axis=1, keepdims=True), 1)  # (n, K, 1)
            h = (share * table[given[rows]]).sum(axis=1)  # (n, width)
            random_words = noise.searchsorted(rng.random((len(rows), num_noise)))
            words = np.concatenate([predicted[rows, None], random_words], axis=1)  # (n, 6), the true one first
            u = out_table[words]  # (n, 6, width)
            dscores = sigmoid((u @ h[..., None])[..., 0])  # (n, 6)
            dscores[:, 0] -= 1
            dh, du = (dscores[:, None] @ u)[:, 0], dscores[..., None] * h[:, None]
            table -= lr * embedding_backward(share * dh[:, None], given[rows], len(table))
            out_table -= lr * embedding_backward(du, words, len(table))
    return table


centre, place = np.nonzero(neighbours)  # every pair of a word and a true neighbour
vectors = {
    "CBOW": word2vec(neighbours, centres, epochs=12),
    "skip-gram": word2vec(centres[centre, None], neighbours[centre, place], epochs=4),
}

# %% [markdown]
# **GloVe** (Pennington, Socher & Manning, 2014) counts first and learns afterwards. $X_{ij}$ is how often word $j$
# stood near word $i$, and two tables of vectors $a$, $b$ (with one bias a word, $\alpha$, $\beta$) are fitted to its
# logarithm by least squares, where frequent pairs weigh more, up to a limit:
#
# $$ L = \sum_{ij} f(X_{ij}) \big(a_i \cdot b_j + \alpha_i + \beta_j - \log X_{ij}\big)^2, \qquad
#    f(x) = \min\big(1, (x / x_{\max})^{3/4}\big) $$

# %%
X = np.zeros((len(index), len(index)))
np.add.at(X, (centres[centre], neighbours[centre, place]), 1)


def glove(X, steps=60, lr=0.05, width=32, x_max=10):
    """Vectors (V, width), the sum of both tables; each step is scaled by the gradients so far (AdaGrad)."""
    f, log_X = np.minimum(1, X / x_max) ** 0.75, np.log(np.maximum(X, 1))
    fitted = [*0.1 * rng.standard_normal((2, len(X), width)), np.zeros((len(X), 1)), np.zeros(len(X))]
    squares = [np.zeros_like(array) for array in fitted]
    for _ in range(steps):
        a, b, alpha, beta = fitted
        misfit = f * (a @ b.T + alpha + beta - log_X)  # (V, V); f is 0 where X is. The square's 2 cancels below
        gradients = misfit @ b, misfit.T @ a, misfit.sum(axis=1, keepdims=True), misfit.sum(axis=0)
        for array, gradient, square in zip(fitted, gradients, squares, strict=True):
            square += gradient**2
            array -= lr * gradient / np.sqrt(square + 1e-12)
    return fitted[0] + fitted[1]


vectors["GloVe"] = glove(X)

# %% [markdown]
# ### The picture: neighbours
#
# Did they learn anything? The grammar's author sorted the nouns into kinds: people, animals, things to wear. The
# vectors have never seen that list, only sentences. For each noun, take the five nouns whose vectors point most nearly
# the same way, and count how many are of its own kind.

# %%
kinds = {
    "people": "person relation parent", "animals": "pet animal", "food": "food meal drink", "places": "place area room",
    "clothing": "garment accessory", "texts": "text", "objects": "thing goods container device opening",
}  # fmt: skip
kind_of = {noun.english[0]: kind for kind, parts in kinds.items() for part in parts.split() for noun in NOUNS[part]}
nouns, noun_kinds = list(kind_of), np.array(list(kind_of.values()))
rows = [index[noun] for noun in nouns]


def nearest(table, k=5):
    """For each noun the k nouns with the largest cosine, the nearest first: (nouns, k)."""
    unit = table[rows] / np.linalg.norm(table[rows], axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1)[:, :k]


for name, table in {"random vectors": rng.standard_normal((len(index), 32)), **vectors}.items():
    share = (noun_kinds[nearest(table)] == noun_kinds[:, None]).mean()
    print(f"{name:<15} {share:.0%} of the neighbours are of the noun's own kind")
for noun in ("dog", "wine", "library", "sweater", "king"):
    print(f"{noun:>8}: {', '.join(nouns[n] for n in nearest(vectors['skip-gram'])[nouns.index(noun)])}")

# %% [markdown]
# (Do not rank the methods by these few thousand sentences; each was made for billions of words.) The skip-gram vectors,
# seen along the two directions in which they differ most:

# %%
unit = vectors["skip-gram"][rows]
unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
_, spread, directions = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
draw_map((unit - unit.mean(axis=0)) @ directions[:2].T, nouns, noun_kinds, spread[:2] ** 2 / (spread**2).sum())

# %% [markdown]
# Words are near each other because they can stand in each other's place: what is eaten, what is worn, who can laugh.
# Animals lie beside people, because both can do things. And since in this grammar all people do the same things, a king
# has no more in common with a queen than with a waiter: vectors know what the text shows, and nothing else.
#
# One limit remains whatever the method. A word has one vector, the *watch* on a wrist the same as *watch* what you do.
# All that depends on the sentence is left to the layers above, and that is what a Transformer is for. Its own table is
# shaped by its own task, from the first step on.
#
# ## Common mistakes, and what they look like

# %%
repeated = np.array([7, 7, 7])
lost = np.zeros((10, 1))
lost[repeated] += np.ones((3, 1))
print(f"dtable[ids] += dy: three gradients of 1 add up to {lost[7, 0]:.0f}")

ids = tokenizer.encode("日本")
print("bytes read one at a time:", " ".join(decode([i]) for i in ids[1:]))

other = BPETokenizer.train((example.german for example in training), tokenizer.vocab_size)
print("ids of one tokenizer, decoded by another:", other.decode(tokenizer.encode(test[0].english)))

pair = [tokenizer.encode("He sleeps."), tokenizer.encode(test[0].german)]
alone, together = collate(pair[:1], pair[:1]).source, collate(pair, pair).source
table = rng.standard_normal((tokenizer.vocab_size, 2))
for name, row in (("alone", alone[0]), ("beside a longer sentence", together[0])):
    print(f"mean vector of 'He sleeps.' {name}: {table[row].mean(axis=0).round(2)}")

# %% [markdown]
# * **`dtable[ids] += dy`.** NumPy reads, adds once and writes once for each id. Use a scatter-add: `np.add.at`, or sort
#   and sum, as the package does.
# * **Bytes decoded one token at a time.** Every character that is spelled in bytes turns into �. Join first.
# * **A model with another model's tokenizer.** Ids are names, and the names have changed: nonsense, without an error.
#   Keep the two together.
# * **Padding that counts.** The same sentence gives another result in another batch. Divide by the real tokens, mask
#   the others.
# * **"The Transformer uses word2vec."** It does not: see above.
#
# ## What changed since 2017
#
# GPT-2 (2019) ran BPE on bytes instead of characters, so that no text is unknown to it; most large language models now
# do that, or fall back on bytes. Vocabularies have grown; some models have none and read bytes (ByT5, 2021). And
# vectors of words alone gave way to those that a whole model computes for a word in its sentence (ELMo and BERT, 2018).
#
# ## Where next
#
# [Lesson 03](03_before_attention.ipynb): a sentence is a sequence of vectors now. How to read it, before attention.
