"""The whole model of the capstone: it reads the course's weights, translates, and trains."""

import json
import re
from functools import cached_property

import numpy as np

from ..lesson_01.solutions import softmax
from ..lesson_02.solutions import encode
from ..lesson_04.solutions import causal_mask
from ..lesson_06.solutions import sinusoids
from ..lesson_08.solutions import decoder_backward, decoder_layer, encoder_layer, transformer
from ..lesson_09.solutions import adam_step, schedule
from ..lesson_11.solutions import beam_search
from .layers import Layers
from .solutions import decoder_layer_backward, model_gradients

PAD, BOS, EOS = 0, 1, 2
LONGEST = 1000  # tokens of a sentence


def check_length(ids):
    """Raise ValueError for sentences (B, T) that have more tokens than there are positions."""
    if ids.shape[1] > LONGEST:
        raise ValueError(f"a sentence has at most {LONGEST} tokens, not {ids.shape[1]}")


class Sublayers:
    """The parts that a layer of both stacks calls. Each leaves its cache for the backward."""

    def __init__(self, layers, name):
        self.layers, self.name, self.caches, self.kept = layers, name, {}, None

    def sublayer(self, part, *inputs):
        """A sub-layer of `Layers`, and dropout on what it gives."""
        out, self.caches[part] = getattr(self.layers, part)(f"{self.name}.{part}", *inputs)
        out, self.kept = self.layers.dropout(out)
        return out

    def norm(self, part, x):
        """The norm after a sub-layer; its cache has what the sub-layer's dropout kept, too."""
        y, cache = self.layers.norm(f"{self.name}.{part}", x)
        self.caches[part] = self.kept, cache
        return y

    def self_attention(self, x, mask):
        return self.sublayer("self_attention", x, mask)

    def self_attention_norm(self, x):
        return self.norm("self_attention_norm", x)

    def feed_forward(self, x):
        return self.sublayer("feed_forward", x)

    def feed_forward_norm(self, x):
        return self.norm("feed_forward_norm", x)


class EncoderLayer(Sublayers):
    """One layer of the encoder, in the order of `encoder_layer`."""

    def forward(self, x, mask):
        self.caches = {}
        return encoder_layer(self, x, mask), tuple(self.caches.values())

    def backward(self, dx, cache):
        self_attention, self_norm, feed_forward, last_norm = cache
        dx, dout = self.layers.add_norm_backward(dx, last_norm)
        dx = dx + self.layers.feed_forward_backward(dout, feed_forward)
        dx, dout = self.layers.add_norm_backward(dx, self_norm)
        return dx + self.layers.self_attention_backward(dout, self_attention)


class DecoderLayer(Sublayers):
    """One layer of the decoder: the parts that `decoder_layer` calls, and what `decoder_backward` wants."""

    def cross_attention(self, x, memory, mask):
        return self.sublayer("cross_attention", x, memory, mask)

    def cross_attention_norm(self, x):
        return self.norm("cross_attention_norm", x)

    def forward(self, x, memory, mask, memory_mask):
        self.caches = {}
        return decoder_layer(self, x, memory, mask, memory_mask), tuple(self.caches.values())

    def backward(self, dx, cache):
        return decoder_layer_backward(self.layers, dx, cache)


class MyTransformer(Layers):
    """The paper's model. `weights` are arrays by the names of a checkpoint of the course.

    In use it is `transformer`, by way of `logits`. In training it is the same layers with their caches, in `encode`
    and `decode`, and dropout.
    """

    pad = PAD

    def __init__(self, weights, num_heads):
        super().__init__(weights, num_heads)
        count = {side: len([name for name in weights if re.fullmatch(rf"{side}.*\d\.feed_forward\.expand\.bias", name)])
                 for side in ("encoder", "decoder")}  # fmt: skip
        self.encoder = [EncoderLayer(self, f"encoder.layers.{n}") for n in range(count["encoder"])]
        self.decoder = [DecoderLayer(self, f"decoder.layers.{n}") for n in range(count["decoder"])]

    @property
    def table(self):
        return self.weights["tokens.table"]

    @cached_property
    def positions(self):
        return sinusoids(LONGEST, self.table.shape[1]).astype(self.table.dtype)

    def embed(self, ids):
        """√C · table[ids] + positions, with dropout: (B, T) → (B, T, C)."""
        check_length(ids)
        return self.dropout(self.table.shape[1] ** 0.5 * self.table[ids] + self.positions[: ids.shape[1]])

    def encode(self, source):
        """source (B, Ts) → the memory (B, Ts, C), and the caches."""
        x, kept = self.embed(source)
        mask = (source != PAD)[:, None, None, :]  # True: may be attended to, so no padding
        caches = []
        for layer in self.encoder:
            x, cache = layer.forward(x, mask)
            caches.append(cache)
        return x, (kept, caches)

    def encode_backward(self, dmemory, cache):
        """→ the gradient of what `embed` computed, before its dropout."""
        kept, caches = cache
        for layer, layer_cache in zip(reversed(self.encoder), reversed(caches), strict=True):
            dmemory = layer.backward(dmemory, layer_cache)
        return self.dropout_backward(dmemory, kept)

    def decode(self, target, memory, source):
        """target (B, Tt), memory (B, Ts, C), source (B, Ts) → the hidden states (B, Tt, C), and the caches."""
        x, kept = self.embed(target)
        mask, memory_mask = causal_mask(target.shape[1], target.shape[1]), (source != PAD)[:, None, None, :]
        caches = []
        for layer in self.decoder:
            x, cache = layer.forward(x, memory, mask, memory_mask)
            caches.append(cache)
        return x, (kept, caches)

    def decode_backward(self, dhidden, cache):
        """→ the gradient of what `embed` computed, before its dropout, and that of the memory."""
        kept, caches = cache
        dx, dmemory = decoder_backward(dhidden, self.decoder, caches)
        return self.dropout_backward(dx, kept), dmemory

    def logits(self, source, target):
        """(B, Ts) and (B, Tt) → (B, Tt, V)."""
        check_length(source)
        check_length(target)
        return transformer(self, source, target)

    def loss_and_gradients(self, source, target_in, target_out, label_smoothing=0.1):
        """The loss of a batch; its gradients are in `gradients` then, and nothing else is."""
        for gradient in self.gradients.values():
            gradient[...] = 0
        return model_gradients(self, source, target_in, target_out, label_smoothing)

    def search(self, source, num_beams=4, extra=20):
        """The ids of a translation of one sentence, whose ids are `source`."""
        source = np.array([[*source, EOS]])

        def next_log_probs(prefix):
            logits = self.logits(source, np.array([[BOS, *prefix]]))[0, -1]
            log_probs = np.full(len(logits), -np.inf)  # PAD and BOS are never written
            log_probs[EOS:] = np.log(softmax(logits[EOS:].astype(np.float64)))
            return log_probs

        ids, _ = beam_search(next_log_probs, num_beams, EOS, source.shape[1] + extra, 0.6)
        return [token for token in ids if token != EOS]

    def train(self, batches, steps, warmup_steps=200, rate=0.1, report=print):
        """Train for `steps` batches (source, target_in, target_out); returns the loss of each step.

        The loss is reported ten times on the way.
        """
        width = self.table.shape[1]
        moments = {name: (np.zeros_like(weight), np.zeros_like(weight)) for name, weight in self.weights.items()}
        self.rate, losses = rate, []
        for step in range(1, steps + 1):
            losses.append(self.loss_and_gradients(*next(batches)))
            for name, weight in self.weights.items():
                m, v = moments[name]
                weight[...], m[...], v[...] = adam_step(
                    weight, self.gradients[name], m, v, step, schedule(step, width, warmup_steps)
                )
            if step * 10 // steps > (step - 1) * 10 // steps:
                report(f"step {step:5}   loss {np.mean(losses[-20:]):.2f}")
        self.rate = 0.0
        return losses


class Tokenizer:
    """Text to ids and back, with the words, characters and merges of a checkpoint's tokenizer."""

    def __init__(self, fields):
        self.words = re.compile(fields["word_pattern"]).findall
        names = [*fields["characters"], *("".join(pair) for pair in fields["merges"])]
        ids = {name: 259 + number for number, name in enumerate(names)}
        self.characters = {character: ids[character] for character in fields["characters"]}
        self.merges = {(ids[a], ids[b]): ids[a + b] for a, b in fields["merges"]}
        self.bytes = [b"", b"", b"", *(bytes([byte]) for byte in range(256)), *(name.encode() for name in names)]

    def encode(self, text):
        return [token for word in self.words(" " + text) for token in encode(word, self.characters, self.merges)]

    def decode(self, ids):
        return b"".join(self.bytes[token] for token in ids).decode("utf-8", "replace").removeprefix(" ")


def load(path):
    """The model and the tokenizer of a checkpoint: safetensors, a header in JSON and the arrays behind it."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    about = json.loads(header.pop("__metadata__")["minitransformer"])
    weights = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        weights[name] = np.frombuffer(data[first:last], np.float32).reshape(entry["shape"]).copy()
    return MyTransformer(weights, about["config"]["num_heads"]), Tokenizer(json.loads(about["tokenizer"]))


def translate(model, tokenizer, text, num_beams=4):
    """The translation of a sentence."""
    return tokenizer.decode(model.search(tokenizer.encode(text), num_beams))
