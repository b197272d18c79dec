# %% [markdown]
# # 02 · Text to numbers, and back
#
# **You will be able to** turn any text into integers and back without losing a character, put sentences of different
# lengths into one batch, and look the integers up as vectors whose gradient you can write; and, if you like, learn the
# vocabulary yourself by byte-pair encoding.
#
# | | |
# |---|---|
# | you know | [00](00_gradients.ipynb): backwards; [01](01_softmax.ipynb): scores, probabilities, gradient descent |
# | runs in | 60 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §5.1 (byte-pair encoding, one vocabulary for both languages), §3.4 (embeddings) |
# | in the package | [`data`](../minitransformer/data): bpe, tokenizer; [`ops`](../minitransformer/ops): embedding |
#
# A model computes with arrays of numbers. A sentence becomes one in two steps: **text → integers** (a tokenizer,
# learned once, by counting) and **integers → vectors** (an embedding, learned with everything else, by gradient
# descent).

# %%
import re
import unicodedata
from collections import Counter
from itertools import islice, pairwise

import numpy as np

from course import start
from course.lesson_02.nouns import kinds_of_nouns
from course.lesson_02.pictures import aligned, draw_lookup, draw_map, draw_merge_trees, draw_vocabulary
from minitransformer.data.batching import collate
from minitransformer.data.bpe import choose_characters, count_words, learn_merges, split_words
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.gradcheck import check_gradients, error, numerical_gradient
from minitransformer.grammar import count_sentences, sample

check = start("02")
rng = np.random.default_rng(0)

# %% [markdown]
# ## The corpus
#
# The course translates a small language: a [grammar](../minitransformer/grammar) in the package draws English sentences
# together with their German. It has the difficulties of German: cases, genders, verbs that move to the end or split in
# two. Unlike in real text, every test sentence is new, and has exactly one right translation.

# %%
training = list(islice(sample("train", seed=0), 10_000))
test = list(islice(sample("test", seed=0), 500))
for example in training[4:6]:
    print(f"{example.english}\n    {example.german}")
print(f"sentences in the language: {count_sentences():.0e}; here {len(training):,} to learn from")

# %% [markdown]
# ## A number for each word
#
# Cut the text into words and punctuation, list the distinct ones, and number the list.


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
# The numbers are names, not amounts: *Tuesday* is not between *the* and *dog*. A **one-hot** vector has no such order:
# it has length $V$ (the size of the vocabulary), with a 1 at the word's index and 0 elsewhere. We never store such
# vectors, since the id says the same. But they help us to think: below, they turn a table look-up into a matrix
# product.
#
# ### Where words fail
#
# A word that was not in the training text has no number. German makes long words out of short ones, so this happens
# even in our small language. (In a real language every new name is such a word.)

# %%
for size in (100, 1000, len(training)):
    known = number(example.german for example in training[:size])
    words = [word for example in test for word in words_of(example.german)]
    unknown = np.mean([word not in known for word in words])
    print(f"{size:>6,} sentences: {len(known):>5,} German words, {unknown:.1%} of the test's words unknown")

texts = [text for example in test for text in (example.english, example.german)]
print(f"mean length of a test sentence: {np.mean([len(words_of(text)) for text in texts]):.1f} words,", end=" ")
print(f"{np.mean([len(text) for text in texts]):.1f} characters")

# %% [markdown]
# The other extreme is a number for each **character**. There are few, and almost none is ever missing. But sentences
# become several times as long, and attention, as lesson 04 shows, compares every position with every other.
#
# ## A number for each piece
#
# The paper (§5.1) takes the middle: frequent words are one token, rare words are several pieces. [**Byte-pair
# encoding**](glossary.md#byte-pair-encoding) (Sennrich, Haddow & Birch, 2016) finds the pieces. It starts from
# characters, joins the most frequent pair of neighbours into a new [token](glossary.md#token), and repeats, until the
# vocabulary has the size that we want: about 37,000 tokens in the paper, 2,000 for our translator, one vocabulary for
# both languages.
#
# The package's tokenizer learns it here. The mark ▁ is the space before a word. The word *hedgehoglets* never occurred,
# and stays in pieces. Characters that never occurred are spelled in bytes, so no text is unknown:

# %%
both = [text for example in training for text in (example.english, example.german)]
tokenizer = BPETokenizer.train(both, vocab_size=2_000)
for text in ("The actresses see the hedgehog.", "Two hedgehoglets", "日本"):
    ids = tokenizer.encode(text)
    print(f"{text!r} → {' '.join(tokenizer.tokens(ids))}\n    → {ids} → {tokenizer.decode(ids)!r}")
print("the whole test text comes back:", all(tokenizer.decode(tokenizer.encode(text)) == text for text in texts))

# %% [markdown]
# ## Sentences to batches
#
# A [batch](glossary.md#batch) is a rectangle $(B, T)$ of ids, with a row for each of $B$ sentences. Shorter sentences
# are filled up with `<pad>`, id 0. [Padding](glossary.md#padding) must not count anywhere: the loss skips it, and
# attention will mask it (lesson 04). The target comes twice, shifted by one. `target_in` is the translation so far,
# beginning with `<s>` (start, [BOS](glossary.md#bos-eos)). `target_out` is the right next token at each position,
# ending with `</s>` (end, EOS). Lesson 03 uses both.

# %%
chosen = sorted(training[:40], key=lambda example: len(example.english))[:3]
batch = collate(
    [tokenizer.encode(example.english) for example in chosen], [tokenizer.encode(example.german) for example in chosen]
)
for name in ("source", "target_in", "target_out"):
    ids = getattr(batch, name)
    print(f"{name} {ids.shape}, the last row {ids[-1]}")
    print(aligned([tokenizer.tokens(row) for row in ids]))

# %% [markdown]
# ## Integers to vectors: a table
#
# Give each token a row of a table $E$ of shape $(V, C)$, where $C$ is the model's width (the paper's $d_{model}$). To
# embed a token is to look up its row:
#
# $$ y_{bt} = E_{\mathrm{ids}_{bt}} \qquad \mathrm{ids}: (B, T) \;\to\; y: (B, T, C) $$
#
# This is a linear layer without a bias. A one-hot vector times a matrix picks one row, because all other products are
# zero: $y = \mathrm{onehot}(\mathrm{ids})\, E$.

# %%
table = rng.standard_normal((tokenizer.vocab_size, 64))
ids = batch.source  # (B, T)
y = table[ids]  # (B, T, C)
one_hot = np.eye(len(table))[ids]  # (B, T, V)
print(f"the look-up against one-hot times table: {error(y, one_hot @ table):.0e}")
print(f"multiplications: {one_hot.size * table.shape[1]:,} as a product, none as a look-up")

# %% [markdown]
# The backward follows from the product. A linear layer's weight gradient is $x^\top \mathrm{d}y$ (lesson 00), so here
# $\mathrm{d}E = \mathrm{onehot}^\top\, \mathrm{d}y$. Without the zeros, row $v$ sums the gradients from all positions
# where token $v$ was looked up:
#
# $$ \mathrm{d}E_v = \sum_{b, t\,:\,\mathrm{ids}_{bt} = v} \mathrm{d}y_{bt} $$
#
# The forward *gathers* rows; the backward *scatters and adds*. Ids are integers and have no gradient.
#
# ### Exercise 1 ★☆☆: the gradient of a look-up


# %% tags=["exercise"]
def embedding_backward(dy, ids, num_rows):
    """Gradient of the table. dy (..., C), ids (...) integers in [0, num_rows) → dtable (num_rows, C).

    A table has thousands of rows, and a batch has thousands of ids: without a Python loop over either.
    """
    raise NotImplementedError


# %%
embedding_backward = check(embedding_backward)

# %% [markdown] tags=["help"]
# The word *the* is in nearly every sentence, so its row must sum many gradients. How does NumPy add to several rows at
# once if one of them is named twice? Try it with three ids and a gradient of 1 for each.
#
# ---
#
# Start with zeros of shape `(num_rows, C)`. Then `np.add.at(dtable, ids, dy)` adds each `dy` to the row of its id, even
# where an id occurs several times.

# %%
ids = np.array(tokenizer.encode("I see the king and the cat."))
table, dy = rng.standard_normal((tokenizer.vocab_size, 6)), rng.standard_normal((len(ids), 6))
dtable = embedding_backward(dy, ids, len(table))
one_hot = np.eye(len(table))[ids]
print(f"against one-hotᵀ dy {error(dtable, one_hot.T @ dy):.0e}, ", end="")
errors = check_gradients(
    lambda ids, table: (table[ids], (ids, len(table))),
    lambda dy, cache: embedding_backward(dy, *cache),
    {"ids": ids % 20, "table": rng.standard_normal((20, 3))},
)
print(f"against central differences {errors['table']:.0e}")

# %% [markdown]
# The picture shows both directions for one sentence. Each row of colours is a vector of six numbers (green positive,
# purple negative). The two lines to *the* are bold: the forward reads its row twice, and the backward adds two
# gradients.

# %% tags=["picture"]
draw_lookup(tokenizer, table, ids, dy, dtable, others=(500, 1000, 1500))

# %% [markdown]
# The vectors are random at first. Gradient descent then changes them like any other parameter, with the gradient that
# you wrote. (§3.4: "we use learned [embeddings](glossary.md#embedding)". The Transformer does not use word2vec, as many
# people think; an optional part below explains word2vec.) The paper multiplies the looked-up vectors by $\sqrt{C}$ and
# uses the same table again as the output layer; lesson 08 puts the two together.
#
# ## Byte-pair encoding, by hand (optional)
#
# Start from characters. Find the most frequent pair of neighbours, make it a symbol of its own, and repeat. Frequent
# words grow together into one token; rare and new ones stay in pieces. You choose only the number of merges.
#
# ### Exercise 2 ★★☆: one merge


# %% tags=["exercise"]
def merge(symbols, pair, new):
    """A copy of the list `symbols` in which each occurrence of `pair`, two neighbours, is replaced by `new`.

    From left to right: merge(["a", "a", "a"], ("a", "a"), "aa") is ["aa", "a"]. Symbols may be strings or numbers.
    """
    raise NotImplementedError


# %%
merge = check(merge)

# %% [markdown] tags=["help"]
# Go through the list from left to right and build a new one. At each position there are two cases. How many symbols of
# the old list does each case use up? And which case applies to the last symbol, which has no neighbour?
#
# ---
#
# Use `while i < len(symbols):` and not a `for`. The condition is `tuple(symbols[i : i + 2]) == pair`; at the end the
# slice is simply shorter. If it holds, append `new` and go on by 2; if not, append `symbols[i]` and go on by 1.

# %% [markdown]
# The rest is counting. Merges stay inside a word, so we keep each distinct word once, with its count. The space before
# a word belongs to the word. So cutting loses nothing, and *low* is the same token everywhere in a sentence.


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
# Look at *est*: counting has found an English ending. This loop counts every pair again for each merge. The package's
# [`learn_merges`](../minitransformer/data/bpe.py) corrects only the counts that a merge has changed. It finds the same
# merges:

# %%
word_counts = count_words(both)
characters = choose_characters(word_counts)
merges = learn_merges(word_counts, characters, 10_000)  # or as many as there are
mine, _ = learn_bpe(word_counts, 40)
print(f"{len(word_counts):,} distinct words, {len(characters)} characters, {len(merges):,} merges until all are whole")
print("the first 40 agree:", mine == merges[:40])
print("the oldest:", ", ".join("".join(pair).replace(" ", "▁") for pair in merges[:16]))

# %% [markdown]
# The next picture builds two words of the corpus, with a row for each merge, the oldest at the bottom. **Cut the tree
# at any height, and you read the tokens of a vocabulary with that many merges.** Two cuts are drawn.

# %%
draw_merge_trees([" Schauspielerinnen", " hedgehogs"], merges, cuts=(30, 300))

# %% [markdown]
# *Schauspielerinnen*, actresses, consists of pieces that other words share. It ends like every feminine plural in
# *-innen*.
#
# ### How many merges?

# %%
wanted = (0, 30, 100, 300, 1000, 2000, 3000, len(merges))
sizes, rare, lengths = [], [], {"English": [], "German": []}  # rare: the share of tokens seen less than ten times
for num_merges in wanted:
    trial = BPETokenizer(characters, merges[:num_merges])
    seen = np.bincount(np.concatenate([trial.encode(text) for text in both]), minlength=trial.vocab_size)
    seen = seen[-(len(characters) + num_merges) :]  # characters and merges, without the special tokens
    sizes.append(len(seen))
    rare.append((seen < 10).mean())
    for language, length in lengths.items():
        length.append(np.mean([len(trial.encode(getattr(example, language.lower()))) for example in test]))

word_lengths = {
    language: np.mean([len(split_words(" " + getattr(example, language.lower()))) for example in test])
    for language in lengths
}
draw_vocabulary(
    np.array(sizes), {name: np.array(length) for name, length in lengths.items()}, word_lengths, len(word_counts),
    np.array(rare),
)  # fmt: skip

# %% [markdown]
# From left to right a sentence shrinks from its characters to its words, most of it in the first few hundred merges.
# The right picture shows the price. Each token has a vector of its own to learn, and a larger vocabulary has more
# tokens that hardly ever occur. Some are rare words. Others are only steps on the way to a longer token, such as
# *▁hedgeho*, and never occur alone afterwards. The number of merges is a compromise.
#
# ### Any text at all
#
# One gap remains: a character that is not in the training text. **Byte fallback** closes it. In UTF-8 every text is a
# sequence of bytes. There are only 256 different bytes, so give each an id. The package's ids:
#
# | ids | |
# |---|---|
# | 0, 1, 2 | `<pad>`, `<s>`, `</s>`: padding, start and end; no text yields them |
# | 3 … 258 | the bytes 0 … 255 |
# | 259 … | the characters, then the merges, oldest first |
#
# To encode a word, write it as characters and spell unknown ones in bytes. Then **make the oldest merge that applies,
# everywhere in the word, until none applies**. The vocabulary was learned in this order.
#
# ### Exercise 3 ★★☆: an encoder for any text


# %% tags=["exercise"]
def encode(word, characters, merges):
    """The list of ids of a word (a str).

    characters: {character: id}. A character that is not in it becomes its UTF-8 bytes, byte b as the id 3 + b.
    merges: {(id, id): new id}; an older merge has a smaller new id.
    Use your `merge` to carry out each of them.
    """
    raise NotImplementedError


# %%
encode = check(encode)

# %% [markdown] tags=["help"]
# There are two stages. First every character becomes one id, or several if it is spelled in bytes. Then merge as long
# as you can. After each merge there are new neighbours: how do you find the pairs that may be merged now, and which of
# them is the oldest?
#
# ---
#
# The bytes of an unknown character are `character.encode("utf-8")`. In the second stage, `candidates = [pair for pair
# in pairwise(ids) if pair in merges]`, and the oldest is `min(candidates, key=merges.get)`. Repeat until there are no
# candidates.

# %% [markdown]
# Decoding is simpler, with one trap. A character's bytes may lie in several tokens, so join the bytes of all tokens
# *before* you decode them as UTF-8. A model may write bytes that are not UTF-8; they become �.

# %%
pieces = [*tokenizer.characters, *("".join(pair) for pair in tokenizer.merges)]  # the text of ids 259, 260, …
id_of = {piece: 259 + n for n, piece in enumerate(pieces)}
known_characters = {character: id_of[character] for character in tokenizer.characters}
known_merges = {(id_of[a], id_of[b]): id_of[a + b] for a, b in tokenizer.merges}


def encode_text(text):
    """One space is put first, so that the first word is like any other."""
    return [i for word in split_words(" " + text) for i in encode(word, known_characters, known_merges)]


def decode(ids):
    """The text of ids from 3 on."""
    data = b"".join(bytes([i - 3]) if i < 259 else pieces[i - 259].encode() for i in ids)
    return data.decode("utf-8", "replace").removeprefix(" ")


print("as the package on the test text:", all(encode_text(text) == tokenizer.encode(text) for text in texts))
for text in ("The hedgehog sleeps.", "naïve 日本語 🦔"):
    print(f"{text!r} → {' '.join(tokenizer.tokens(encode_text(text)))} → {decode(encode_text(text))!r}")

code_points = rng.integers(1, 0x110000, (1000, 20))  # of all of Unicode, except the surrogates, which are no characters
strange = ["".join(chr(c) for c in row if not 0xD800 <= c <= 0xDFFF) for row in code_points]
print("a thousand random strings come back:", all(decode(encode_text(text)) == text for text in strange))

# %% [markdown]
# ### And SentencePiece?
#
# SentencePiece (Kudo & Richardson, 2018) is often named as an alternative to BPE. But BPE is a way to learn a
# vocabulary, and SentencePiece is a library that learns one: by BPE, or by a *unigram* model, which starts with many
# pieces and drops the least useful ones. It reads raw text, as our tokenizer does. By default it also *normalises* the
# text: it replaces characters by plainer ones with nearly the same meaning (a rule built on Unicode's NFKC). This often
# helps, but it cannot be undone:

# %%
for text in ("ﬁnd", "10²", "①", "Ｔｏｋｙｏ"):
    print(f"{text}: {unicodedata.normalize('NFKC', text)} after NFKC, {decode(encode_text(text))} after our tokenizer")

# %% [markdown]
# ## Word vectors before the Transformer: word2vec (optional)
#
# Before 2017, word vectors were often learned alone, only from which words are near each other, and then used in other
# models. The best known method is **word2vec** (Mikolov et al., 2013). Its *skip-gram* mode predicts a word's
# neighbours.
#
# The given word $c$ has a vector $h$ from one table, and every possible neighbour $w$ a vector $u_w$ from a second
# table. The score of $w$ is the dot product $s = u_w \cdot h$. A softmax over all $V$ words would be costly. So
# word2vec asks an easier question, for the true neighbour and for a few words drawn at random: is this the true one?
# The probability of "yes" is $\sigma(s) = 1 / (1 + e^{-s})$, the softmax of the two scores $s$ and 0. This is *negative
# sampling*:
#
# $$ L = -\log \sigma(s_0) - \sum_{k=1}^{K} \log\big(1 - \sigma(s_k)\big), \qquad
#    \frac{\partial L}{\partial s_k} = \sigma(s_k) - [k = 0] $$
#
# Here $s_0$ is the true neighbour's score and $s_1, \dots, s_K$ are those of the random words; $[k = 0]$ is 1 for the
# true one, else 0. The gradient is lesson 01's probability minus target:


# %%
def sigmoid(s):
    return 1 / (1 + np.exp(-s))


def negative_sampling(s):
    """The loss for scores s (1 + K,), the true word's first."""
    return -np.log(sigmoid(s[0])) - np.log(1 - sigmoid(s[1:])).sum()


s = rng.standard_normal(6)
print(f"against central differences {error(sigmoid(s) - np.eye(6)[0], numerical_gradient(negative_sampling, s)):.0e}")

# %% [markdown]
# The original has two tricks: it leaves very frequent words out at random, and draws random words in proportion to
# $\mathrm{count}^{3/4}$. One thing is different here. The original changes the vectors after every pair of words. We
# take 512 pairs at a time and add their gradients (no mean), so that together they move the vectors about as far.

# %%
sentences = [words_of(example.english.lower()) for example in training]
counts = Counter(word for sentence in sentences for word in sentence)
index = {word: n for n, word in enumerate(counts)}
frequency = np.array([*counts.values()]) / counts.total()
kept = np.sqrt(1e-3 / np.maximum(frequency, 1e-3))  # the probability to keep a word: 1 unless it is very frequent
noise = np.cumsum(frequency**0.75) / (frequency**0.75).sum()

pairs = []  # each word, with each of up to two on either side of it
for sentence in sentences:
    ids = np.array([index[word] for word in sentence])
    ids = ids[rng.random(len(ids)) < kept[ids]]
    for distance in (1, 2):
        near = np.stack([ids[:-distance], ids[distance:]], axis=1)
        pairs += [near, near[:, ::-1]]
pairs = np.concatenate(pairs)  # (N, 2)


def skip_gram(epochs=4, lr=0.05, width=32, num_noise=5, batch_size=512):
    """Vectors (V, width) learned by predicting the second word of each pair from the first."""
    table, out_table = 0.1 * rng.standard_normal((len(index), width)), np.zeros((len(index), width))
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(len(pairs)), len(pairs) // batch_size):
            given, true = pairs[rows].T
            random_words = noise.searchsorted(rng.random((len(rows), num_noise)))
            words = np.concatenate([true[:, None], random_words], axis=1)  # (n, 6), the true one first
            h, u = table[given], out_table[words]  # (n, width), (n, 6, width)
            dscores = sigmoid((u @ h[..., None])[..., 0])  # (n, 6)
            dscores[:, 0] -= 1
            dh, du = (dscores[:, None] @ u)[:, 0], dscores[..., None] * h[:, None]
            table -= lr * embedding_backward(dh, given, len(table))
            out_table -= lr * embedding_backward(du, words, len(table))
    return table


vectors = skip_gram()

# %% [markdown]
# ### What did the vectors learn?
#
# The grammar's author sorted the nouns into kinds: people, animals, clothing, … The vectors have only seen sentences,
# never that list. For each noun, take the five nouns with the largest cosine of the angle between the vectors, and
# count how many of them are of its own kind.

# %%
kind_of = kinds_of_nouns()
nouns, noun_kinds = list(kind_of), np.array(list(kind_of.values()))


def directions_of(table):
    """The nouns' vectors, made length 1."""
    rows = table[[index[noun] for noun in nouns]]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def nearest(table, k=5):
    """For each noun the k nouns with the largest cosine, the nearest first: (nouns, k)."""
    unit = directions_of(table)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1)[:, :k]


for name, vectors_of in (("random vectors", rng.standard_normal(vectors.shape)), ("skip-gram", vectors)):
    share = (noun_kinds[nearest(vectors_of)] == noun_kinds[:, None]).mean()
    print(f"{name:<15} {share:.0%} of the neighbours are of the noun's own kind")
for noun in ("dog", "wine", "library", "king"):
    print(f"{noun:>8}: {', '.join(nouns[n] for n in nearest(vectors)[nouns.index(noun)])}")

# %% [markdown]
# A vector of 32 numbers is hard to draw. So draw each noun along the two directions in which the vectors differ most,
# the first two *principal components*. (NumPy finds them with `svd`, the singular value decomposition, which rotates
# the axes so that the first one has the largest spread, the second the next, and so on.)

# %%
unit = directions_of(vectors)
_, spread, directions = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
draw_map((unit - unit.mean(axis=0)) @ directions[:2].T, nouns, noun_kinds, spread[:2] ** 2 / (spread**2).sum())

# %% [markdown]
# Words are near each other if they can replace each other: food, clothes, people who laugh. Animals are beside
# people, because both can act. In this grammar all people do the same things, so a king has no more in common with a
# queen than with a waiter. The vectors know only what the text shows.
#
# Two relatives. word2vec's other mode, **CBOW**, predicts a word from the mean of its neighbours' vectors. **GloVe**
# (Pennington, Socher & Manning, 2014) first counts how often word $j$ is near word $i$, and then fits two tables of
# vectors so that $a_i \cdot b_j$ (plus a bias for each word) comes close to the logarithm of that count.
#
# They share one limit: a word has one vector, so the *watch* on a wrist is the same as to *watch* a film. Only the
# layers above can use the rest of the sentence, as a Transformer does.
#
# ## Common mistakes, and what they look like

# %%
repeated, lost = np.array([7, 7, 7]), np.zeros((10, 1))
lost[repeated] += np.ones((3, 1))
print(f"dtable[ids] += dy: three gradients of 1 add up to {lost[7, 0]:.0f}")

other = BPETokenizer.train((example.german for example in training), tokenizer.vocab_size)
print("ids of one tokenizer, decoded by another:", other.decode(tokenizer.encode(test[0].english)))

pair = [tokenizer.encode("He sleeps."), tokenizer.encode(test[0].german)]
alone, together = collate(pair[:1], pair[:1]).source, collate(pair, pair).source
for name, row in (("alone", alone[0]), ("beside a longer sentence", together[0])):
    print(f"mean vector of 'He sleeps.' {name}: {table[row].mean(axis=0)[:2].round(2)}, …")

# %% [markdown]
# * **`dtable[ids] += dy`.** NumPy reads all rows, adds, and writes all rows. Of several gradients for one row it keeps
#   only the last.
# * **A model with another model's tokenizer.** Ids are names, and the names have changed: you get nonsense, without an
#   error. Keep the two together.
# * **Padding that counts.** The same sentence gives another result in another batch. Divide by the number of real
#   tokens, and mask the others.
#
# ## What changed since 2017
#
# GPT-2 (2019) ran BPE on bytes instead of characters, so no text is unknown to it. Most large language models now do
# that, or fall back on bytes. Vocabularies have grown. Some models have none and read bytes (ByT5, 2021).
#
# ## Where next
#
# [Lesson 03](03_before_attention.ipynb): a sentence is a sequence of vectors now. How did networks read it before
# attention?
