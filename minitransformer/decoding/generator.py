"""The generator from text to text: a language model, its tokenizer, and the choice of each next token."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ..models import GPT, IGNORED, Decoding, most_tokens
from .loading import FromCheckpoint
from .sampling import Sampling
from .search import Start, beam_search, is_end
from .speculative import Draft, check_draft, common_length, speculate
from .tokenizer import Messages, Tokenizer, check_vocabulary, encode_chat, encode_prompt, without_text

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BYTE = re.compile("<0x[0-9A-F]{2}>$")
"""A token of one byte. If a later byte makes a run of them invalid UTF-8, some tokenizers drop its characters."""

SAMPLED = Sampling()


class Generator(FromCheckpoint):
    """Continues texts with a trained language model: `Generator.from_checkpoint(path).generate("Once upon a time")`.

    A `draft` proposes tokens, of which the model reads several at once. Texts are drawn one after the other, from the
    same distribution as without it; at temperature 0 they are the same texts. A beam does not use it.

    With `cache_in_bytes` the keys and values of a text take a little more than a quarter of float32's memory, and are
    rounded (`ByteCache`): texts may be others. A draft keeps its own in floats.

    Raises `ValueError` for a model that is no language model, or that has fewer tokens than the tokenizer, for bytes
    where linear attention keeps neither keys nor values, and as `check_draft` does.
    """

    def __init__(
        self, model: GPT, tokenizer: Tokenizer, draft: Draft | None = None, cache_in_bytes: bool = False
    ) -> None:
        if not isinstance(model, GPT):
            raise ValueError(f"a model of kind {model.config.kind!r} does not continue texts")
        check_vocabulary(model.config, tokenizer)
        if draft is not None:
            check_draft(draft, model)
        if cache_in_bytes and model.config.attention == "linear":
            raise ValueError(
                "linear attention keeps sums of what it reads: there are no keys and values to hold in bytes"
            )
        self.model, self.tokenizer, self.draft, self.cache_in_bytes = model, tokenizer, draft, cache_in_bytes
        self.forbidden = without_text(model.config, tokenizer)
        self.pieces: Callable[[list[int]], list[str]] = getattr(tokenizer, "pieces", tokenizer.tokens)
        self.last_chat: tuple[list[int], list[int], Decoding] | None = None
        """The ids of the last conversation, those of the answer, and the state that has read nearly all of them."""

    def generate(
        self, prompts: str | Sequence[str], max_tokens: int = 100, sampling: Sampling = SAMPLED, beam: int | None = None
    ) -> list[str]:
        """Continue each prompt up to the end mark or `max_tokens` tokens; return the texts without the prompts.

        A text does not depend on the other prompts, with one exception: all texts end where that of the longest prompt
        reaches the model's longest text. With a `beam` the most probable texts are searched, and nothing is drawn.
        Raises `ValueError` for a prompt that is as long as the model's longest text, or longer.
        """
        encoded = [self.encode(prompt) for prompt in ([prompts] if isinstance(prompts, str) else prompts)]
        if beam is not None:
            return [self.text_after(ids, self.search(ids, max_tokens, beam)) for ids in encoded]
        written: list[list[int]] = [[] for _ in encoded]
        for tokens in self._tokens(encoded, max_tokens, sampling):
            for number, token in tokens:
                written[number].append(token)
        return list(map(self.text_after, encoded, written))

    def chat(self, messages: Messages, max_tokens: int = 1000, sampling: Sampling = SAMPLED) -> str:
        """Return the model's answer to a conversation: `chat([{"role": "user", "content": "Hello"}])`.

        It ends where the model ends a text, at the mark that the tokenizer's chat template puts after an answer, or
        after `max_tokens` tokens. What the last conversation began with too is not read again. Raises `ValueError` as
        `encode` does.
        """
        return "".join(self.stream(messages, max_tokens, sampling))

    def stream(self, prompt: str | Messages, max_tokens: int = 100, sampling: Sampling = SAMPLED) -> Iterator[str]:
        """Yield the text of `generate` piece by piece, each as soon as no later token can change its characters.

        With messages in place of a prompt it is that of `chat`. A generator reads one conversation at a time: to go on
        with an answer after another one has begun gives the wrong text.
        """
        encoded, ids = self.encode(prompt), list[int]()
        said, options = "", dict[str, Any]()
        if not isinstance(prompt, str):
            options = {"ends": getattr(self.tokenizer, "turn_ends", ()), "state": self._read(encoded, ids)}
        for tokens in self._tokens([encoded], max_tokens, sampling, **options):
            ids += [token for _, token in tokens]
            text = self.text_after(encoded, ids)
            is_whole = not text.endswith(REPLACEMENT) and not BYTE.match("".join(self.pieces(ids[-1:])))
            if is_whole and len(text) > len(said):
                yield text[len(said) :]
                said = text
        text = self.text_after(encoded, ids)
        if len(text) > len(said):
            yield text[len(said) :]

    def draw(self, prompts: Sequence[Sequence[int]], max_tokens: int, seed: int) -> list[list[int]]:
        """Draw what follows each prompt, given and returned as ids, with the mark that ended it, if one came.

        Tokens come from the model's own distribution. Of two draws with one seed, those of equal prompts at the same
        place are equal.
        """
        drawn: list[list[int]] = [[] for _ in prompts]
        for tokens in self._tokens(prompts, max_tokens, Sampling(seed=seed), with_ends=True):
            for number, token in tokens:
                drawn[number].append(token)
        return drawn

    def encode(self, prompt: str | Messages) -> list[int]:
        """Return the ids of a prompt or of a conversation, up to where the model goes on.

        A prompt comes after the mark that begins a text, if there is one (`encode_prompt`), and the messages of a
        conversation stand as the tokenizer's chat template writes them.

        Raises `ValueError` for a prompt without a token, for one with a token that the model lacks, and for one that
        leaves no room in the model's longest text.
        """
        config, longest = self.model.config, most_tokens(self.model.config)
        if isinstance(prompt, str):
            ids = encode_prompt(config, self.tokenizer, prompt)
        else:
            ids = encode_chat(config, self.tokenizer, prompt)
        if not ids:
            raise ValueError("a prompt must hold some text: this model has no mark that begins a text")
        if len(ids) >= longest:
            raise ValueError(f"a prompt has {len(ids)} tokens, and the model's texts have at most {longest}")
        return ids

    def text_after(self, prompt: list[int], ids: list[int]) -> str:
        """Decode ids that follow a prompt's. Alone, they could lose a space in front, which tokenizers remove."""
        before, both = (self.tokenizer.decode(each) for each in (prompt, [*prompt, *ids]))
        return both[len(before) :] if both.startswith(before) else self.tokenizer.decode(ids)

    def _read(self, ids: list[int], answer: list[int]) -> Decoding:
        """Return the state that has read a conversation but for its last token; `answer` will get that of the model.

        It is the state of the last conversation, back at the place where the two part, if there is one.
        """
        before, said, state = self.last_chat or ([], [], None)
        known = [*before, *said][: state.position] if state else []
        common = common_length(known, ids[:-1])
        if state is None or not state.cache.go_back(common):
            common, state = 0, self._start(np.empty((1, 0), np.int64))
        if common < len(ids) - 1:
            self.model.read(self.model.ops.asarray([ids[common:-1]], "int64"), state)
        self.last_chat = ids, answer, state
        return state

    def search(self, ids: list[int], max_tokens: int, beam: int) -> list[int]:
        """Return the ids that most probably go on after these, as a beam search finds; with a beam of 1, greedily."""
        limit = min(max_tokens, most_tokens(self.model.config) - len(ids))
        if limit < 1:
            return []
        prompt = np.array([ids[:-1]], np.int64)
        start = Start(np.array([ids[-1]]), np.array([limit]), self.forbidden, self._start(prompt, beam))
        return beam_search(self.model, prompt, beam, 0.0, start=start)[0][0].ids

    def _start(self, prompts: np.ndarray, num_beams: int = 1) -> Decoding:
        """Return a state that has read prompts `(B, T)`."""
        return self.model.start_decoding(prompts, num_beams, self.cache_in_bytes)

    def _tokens(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int,
        sampling: Sampling,
        ends: Collection[int] = (),
        state: Decoding | None = None,
        with_ends: bool = False,
    ) -> Iterator[list[tuple[int, int]]]:
        """Yield step by step the next token of each text that has not ended, with the text's number.

        ends: what ends a text besides the model's own marks; state: one that has read the prompts but for their last
        tokens; with_ends: yield what ends a text too.
        """
        if not prompts:
            return
        config, to_numpy = self.model.config, self.model.ops.to_numpy
        longest = max(map(len, prompts))
        limit = min(max_tokens, most_tokens(config) - longest)
        if self.draft is not None:
            yield from self._drafted(self.draft, prompts, limit, sampling, ends, state, with_ends)
            return
        padded = np.full((len(prompts), longest), IGNORED, np.int64)  # on the left
        for row, prompt in zip(padded, prompts, strict=True):
            row[longest - len(prompt) :] = prompt
        running, texts = np.arange(len(prompts)), [list(prompt) for prompt in prompts]
        state = self._start(padded[:, :-1]) if state is None else state
        ids = padded[:, -1:]
        for _ in range(limit):
            logits = to_numpy(self.model.decode_step(ids, state))[:, 0]  # (B, V)
            logits[:, self.forbidden] = -np.inf
            chosen = [sampling.choose(logits[i], np.array(texts[n]), int(n)) for i, n in enumerate(running)]
            goes_on = np.array([not is_end(token, config) and token not in ends for token in chosen])
            shown = goes_on | with_ends
            yield [(int(n), token) for n, token, there in zip(running, chosen, shown, strict=True) if there]
            if not goes_on.any():
                return
            for n, token in zip(running, chosen, strict=True):
                texts[n].append(token)
            ids = np.array(chosen)[goes_on][:, None]
            if not goes_on.all():
                running = running[goes_on]
                state.select(np.flatnonzero(goes_on))

    def _drafted(
        self,
        draft: Draft,
        prompts: Sequence[Sequence[int]],
        limit: int,
        sampling: Sampling,
        ends: Collection[int],
        state: Decoding | None,
        with_ends: bool,
    ) -> Iterator[list[tuple[int, int]]]:
        """Yield what `_tokens` yields, one text after the other, with the help of a draft."""
        for number, prompt in enumerate(prompts):
            read = self._start(np.array([prompt[:-1]], np.int64)) if state is None else state
            for token in speculate(self.model, draft, prompt, limit, sampling, number, self.forbidden, read):
                is_last = is_end(token, self.model.config) or token in ends
                if with_ends or not is_last:
                    yield [(number, token)]
                if is_last:
                    break
