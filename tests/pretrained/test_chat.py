"""Conversations: the texts and ids of `transformers`' chat templates, and the answers that its `generate` gives."""

import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from support.chat_templates import CHATML, MARKS, TEMPLATES
from support.cli_runs import Command, in_this_process, refuse
from support.model_cases import CACHED
from support.pretrained_cases import tr
from test_generate import THEIRS, V
from test_vocabularies import texts

from minitransformer import Generator, Sampling
from minitransformer.decoding import LayersDraft, PromptDraft
from minitransformer.models import GPT, GPTConfig, build_model
from minitransformer.pretrained import PretrainedError, load
from minitransformer.pretrained.tokenizers import PretrainedTokenizer, load_tokenizer

Message = dict[str, Any]
GREEDY = Sampling(temperature=0)


def conversations(count: int, seed: int = 0) -> list[list[Message]]:
    """Random ones, most of them in turns, and some with a system's message, a missing field, or roles in disorder."""
    draw, said = random.Random(seed), [*texts(), "<think>\nA cat?\n</think>\n\nA dog.", " 3 < 4 & \"a\" \t'b' \\n\n"]
    found = []
    for _ in range(count):
        roles = ["user", "assistant"] * 3 if draw.random() < 0.9 else draw.choices(["user", "assistant", "tool"], k=6)
        roles = ["system"] * (draw.random() < 0.4) + roles
        messages: list[Message] = [{"role": each, "content": draw.choice(said)} for each in roles[: draw.randint(1, 7)]]
        messages[-1] |= draw.choice([{}, {}, {}, {"tool_calls": None}, {"name": "Ann"}, {"content": None}])
        found.append(messages)
    return found


@pytest.fixture(scope="module")
def inner() -> Any:
    found = tokenizers.ByteLevelBPETokenizer()
    found.train_from_iterator(texts() * 3, vocab_size=400, special_tokens=MARKS, show_progress=False)
    return tr.PreTrainedTokenizerFast(
        tokenizer_object=found._tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


# --- Templates ------------------------------------------------------------------------------------------------


PLACES = [
    *((name, "a file", 25) for name in TEMPLATES),
    *(("ChatML", f"{n}the options", 5) for n in ("", "several in ")),
]


@pytest.mark.parametrize(
    ("name", "place", "count"),
    [*PLACES, *(pytest.param(name, "a file", 500, marks=pytest.mark.slow) for name in TEMPLATES)],
)
def test_texts_and_ids_are_those_of_transformers(name: str, place: str, count: int, inner: Any, tmp_path: Path) -> None:
    template, end = TEMPLATES[name]
    inner.chat_template = template
    inner.save_pretrained(tmp_path, save_jinja_files=place == "a file")
    assert (tmp_path / "chat_template.jinja").exists() == (place == "a file")
    if place == "several in the options":
        options = json.loads((tmp_path / "tokenizer_config.json").read_text())
        options["chat_template"] = [{"name": "default", "template": template}, {"name": "rag", "template": ""}]
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    there: Any = tr.AutoTokenizer.from_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path, "llama", {})
    refused = 0
    for number, messages in enumerate(conversations(count)):
        prompt = number % 3 > 0
        text, error = outcome(there.apply_chat_template, messages, tokenize=False, add_generation_prompt=prompt)
        if error:
            _, found = outcome(ours.apply_chat_template, messages, prompt)
            assert found == f"the chat template can't write this conversation: {error}"
            refused += 1
            continue
        assert ours.apply_chat_template(messages, prompt) == text
        ids = there.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False)
        assert ours.encode(text) == ids
    assert refused < 0.7 * count
    assert [ours.inner.id_to_token(each) for each in ours.turn_ends] == [end]


def outcome(function: Any, *arguments: Any, **options: Any) -> tuple[Any, str]:
    """What a function returns, or what it says when it fails."""
    try:
        return function(*arguments, **options), ""
    except Exception as error:
        return None, str(error)


def test_marks_that_the_tokenizer_has_by_itself(tmp_path: Path, inner: Any) -> None:
    """Options without them: the model's own. `None` in the options: none, whatever the model says."""
    template = "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"
    for options, text in (({}, "<s></s>True"), ({"bos_token": None, "pad_token": None}, "</s>False")):
        values = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 400}
        ours = PretrainedTokenizer(inner.backend_tokenizer, options, values, template)
        assert ours.apply_chat_template([{"role": "user"}]) == text


DAMAGED = {
    "an open tag": ("{% for m in messages %}", "Unexpected end of template"),
    "an unknown tag": ("{% fly %}", "unknown tag 'fly'"),
    "an unknown filter": ("{{ messages | fly }}", "No filter named 'fly'"),
    "an unknown name": ("{{ fly.away }}", "'fly' is undefined"),
    "arithmetic with texts": ("{{ 1 + 'a' }}", "unsupported operand"),
    "a division by nothing": ("{{ 1 // 0 }}", "by zero"),
    "a way out of the sandbox": ("{{ ''.__class__.__mro__ }}", "is unsafe"),
    "a conversation changed": ("{{ messages.append(1) }}", "is unsafe"),
    "a file": ("{% include '/etc/passwd' %}", "no loader"),
    "an endless range": ("{{ range(10 ** 9) }}", "Range too big"),
    "itself within itself": ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "recursion"),
    "no reason": ("{{ raise_exception('') }}", "TemplateError"),
    "several lines": ("{{ raise_exception('a\nb') }}", "conversation: a b"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_bad_template_is_refused(name: str, inner: Any) -> None:
    template, message = DAMAGED[name]
    ours = PretrainedTokenizer(inner.backend_tokenizer, {}, {}, template)
    with pytest.raises(PretrainedError) as caught:
        ours.apply_chat_template([{"role": "user", "content": "Hi"}])
    said = str(caught.value)
    assert said.startswith("the chat template can't write this conversation: ")
    assert message in said
    assert "\n" not in said


def test_what_cannot_be_written_is_refused(inner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = PretrainedTokenizer(inner.backend_tokenizer, {}, {}, CHATML)
    bad: list[Any] = [[], "Hello", ["Hello"], [{"role": "user", "content": "a"}, None]]
    for messages in bad:
        with pytest.raises(ValueError, match="a conversation is a list such as"):
            ours.apply_chat_template(messages)
    with pytest.raises(PretrainedError, match="not JSON serializable"):
        ours.apply_chat_template([{"role": "user", "content": {1, 2}}])
    for options in ({}, {"chat_template": [{"name": "rag", "template": ""}]}, {"chat_template": 5}):
        with pytest.raises(PretrainedError, match="has no chat template"):
            PretrainedTokenizer(inner.backend_tokenizer, options, {}).apply_chat_template([{"role": "user"}])
    for missing in ({"jinja2": None}, {}):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "minitransformer.pretrained.chat", raising=False)
            patch.delattr("minitransformer.pretrained.chat", raising=False)
            for name, module in missing.items():
                patch.setitem(sys.modules, name, module)
            if not missing:
                patch.setattr("importlib.metadata.version", lambda name: "3.1.5")
            with pytest.raises(PretrainedError, match=r"needs the package jinja2, 3\.1\.6 or newer"):
                ours.apply_chat_template([{"role": "user", "content": "Hi"}])


# --- Answers --------------------------------------------------------------------------------------------------

TURNS = (
    "{% for message in messages %}{{ 'w03 ' if message.role == 'user' else 'w04 ' }}{{ message.content }}"
    " {{ eos_token if message.role == 'assistant' }}{% endfor %}{% if add_generation_prompt %}w04{% endif %}"
)


def speaker(kind: str, end: int, folder: Path, eos: list[int] | None = None) -> tuple[Any, Any, Any]:
    """A model of `transformers` whose token i is the word wi, with its tokenizer; and ours from their folder.

    end: the token that the template puts after an answer; eos: those that the model's own files name.
    """
    torch.manual_seed(5)
    model = THEIRS[kind]()
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.4
    model.config.eos_token_id, model.generation_config.eos_token_id = None, eos
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i:02}": i for i in range(V)}, unk_token="w00"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = tr.PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"w{end:02}")
    tokenizer.chat_template = TURNS
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, Generator(*load(folder))


def answer_of(model: Any, tokenizer: Any, messages: list[Message], ends: list[int], most: int = 12) -> str:
    """The greedy answer of `transformers`."""
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    options: dict[str, Any] = {"do_sample": False, "pad_token_id": 0, "eos_token_id": ends or None}
    written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=most, **options)
    return tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3"])
def test_answers_are_those_of_transformers_turn_by_turn(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is read once: what a turn adds is all that the model reads."""
    model, tokenizer, generator = speaker(kind, 2, tmp_path)
    longest = generator.model.config.max_length
    read: list[int] = []
    original = GPT.read
    monkeypatch.setattr(GPT, "read", lambda self, ids, state: read.append(ids.shape[1]) or original(self, ids, state))
    messages: list[Message] = []
    for text in ("w07 w08", "w09", "w10 w11 w12"):
        messages.append({"role": "user", "content": text})
        most = min(6, longest - len(tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]))
        wanted = answer_of(model, tokenizer, messages, [2], most)
        read.clear()
        assert generator.chat(messages, most, GREEDY).strip() == wanted.strip()
        if len(messages) > 1:
            assert sum(read) <= len(text.split()) + 3 + most
        messages.append({"role": "assistant", "content": wanted})
    other = [{"role": "user", "content": "w07 w13 w14"}]  # from the second word on another conversation
    assert generator.chat(other, 6, GREEDY).strip() == answer_of(model, tokenizer, other, [2], 6).strip()
    plain = generator.generate("w07 w08", 5, GREEDY)
    generator.chat(other, 3)
    assert generator.generate("w07 w08", 5, GREEDY) == plain


def test_an_answer_that_nobody_read_to_its_end(tmp_path: Path) -> None:
    model, tokenizer, generator = speaker("llama", 2, tmp_path)
    messages: list[Message] = [{"role": "user", "content": "w07 w08"}]
    for pieces in (0, 1, 3):
        stream = generator.stream(messages, 12, GREEDY)
        for _ in range(pieces):
            next(stream)
        assert generator.chat(messages, 12, GREEDY).strip() == answer_of(model, tokenizer, messages, [2]).strip()


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_answers_with_a_draft_are_the_same(kind: str, tmp_path: Path) -> None:
    """Turn by turn, from a state that may have read more of the last answer than somebody asked for."""
    model, tokenizer, generator = speaker(kind, 2, tmp_path)
    for draft, least in ((LayersDraft(generator.model, 1), 20), (PromptDraft(V, 3), 3)):
        drafted = Generator(generator.model, generator.tokenizer, draft)
        messages: list[Message] = []
        for text in ("w07 w08 w07 w08", "w09 w07"):
            messages.append({"role": "user", "content": text})
            for _ in zip(range(2), drafted.stream(messages, 9, GREEDY), strict=False):
                pass
            wanted = answer_of(model, tokenizer, messages, [2], 9)
            assert drafted.chat(messages, 9, GREEDY).strip() == wanted.strip()
            messages.append({"role": "assistant", "content": wanted})
        assert draft.proposed >= least


@pytest.mark.parametrize("by", ["the turn's mark", "the model's list"])
def test_an_answer_ends_where_the_model_says(by: str, tmp_path: Path) -> None:
    messages: list[Message] = [{"role": "user", "content": "w07 w08"}]
    model, tokenizer, generator = speaker("llama", 2, tmp_path / "endless")
    words = generator.chat(messages, 12, GREEDY).split()
    assert len(words) == 12
    place = max(i for i, word in enumerate(words) if word not in words[:i])
    assert place > 0
    end = int(words[place][1:])
    if by == "the turn's mark":
        model, tokenizer, generator = speaker("llama", end, tmp_path / "ends")
        assert generator.tokenizer.turn_ends == {end}
    else:
        model, tokenizer, generator = speaker("llama", 2, tmp_path / "ends", eos=[50, end])
    assert generator.chat(messages, 12, GREEDY).split() == words[:place]
    assert answer_of(model, tokenizer, messages, [50, end]).split()[:place] == words[:place]


CACHES = CACHED | {"linear": {"attention": "linear", "attention_dropout": 0.0, "dropout": 0.0}}


@pytest.mark.parametrize("name", CACHES)
def test_a_state_that_goes_back_reads_on_as_a_new_one(name: str) -> None:
    model = build_model(GPTConfig(30, 16, 2, 16, 2, max_length=64, init_std=0.5, **CACHES[name]), dtype="float64")
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 30, (1, 60))
    went = 0
    for back, more in ((40, 9), (20, 5), (19, 30), (3, 1), (0, 7)):
        state = model.start_decoding(ids[:, :20])
        for place in range(20, 50):
            model.decode_step(ids[:, place : place + 1], state)
        if not state.cache.go_back(back):
            assert state.position == 50
            continue
        went += 1
        other = rng.integers(0, 30, (1, more))
        model.read(other, state)
        logits = model.decode_step(ids[:, :1], state)
        whole = np.concatenate([ids[:, :back], other, ids[:, :1]], axis=1)
        np.testing.assert_allclose(logits[0, 0], model.forward(whole)[0][0, -1], atol=1e-12)
    assert went == {"linear": 0, "a window": 1, "windows in turn": 1}.get(name, 5)
    state = model.start_decoding(ids[:, :20])
    assert state.cache.go_back(20)  # where it is


# --- The command line -----------------------------------------------------------------------------------------


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return in_this_process(capsys)


def test_a_conversation_at_the_command_line(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer, _ = speaker("llama", 2, tmp_path / "model")
    chat = ["generate", tmp_path / "model", "--chat", "--temperature", "0", "--max-tokens", "4"]
    for system in ([], ["--system", "w20 w21"]):
        messages: list[Message] = [{"role": "system", "content": system[1]}] if system else []
        wanted = []
        for text in ("w07 w08", "w09"):
            messages.append({"role": "user", "content": text})
            wanted.append(answer_of(model, tokenizer, messages, [2], 4).strip())
            messages.append({"role": "assistant", "content": wanted[-1]})
        assert len({*wanted}) == 2
        status, out, _ = command(*chat, *system, "w07 w08", "w09")
        assert (status, out.splitlines()) == (0, wanted)
        (tmp_path / "turns").write_text("w07 w08\n\n  \nw09\n")
        assert command(*chat, *system, "--file", tmp_path / "turns") == (0, out, "")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"w07 w08\n\nw09")))
        assert command(*chat, *system) == (0, out, "")
        lines = iter(["w07 w08", "w03 " * 50, "", "w09"])
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda prompt, lines=lines: next(lines, None) or _end(lines))
        status, typed, _ = command(*chat, *system)
        asks, first, error, second, last = typed.splitlines()
        assert (status, [first, second, last]) == (0, [*wanted, ""])
        assert "Ctrl-D ends" in asks
        assert error.startswith("minitransformer: error: a prompt has ")


def _end(lines: Any) -> str:
    """An empty line is one, and after the last line the input ends."""
    if lines.__length_hint__():
        return ""
    raise EOFError


def test_what_is_no_conversation_is_refused(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speaker("llama", 2, tmp_path / "model")
    template = tmp_path / "model" / "chat_template.jinja"
    chat = ["generate", tmp_path / "model", "--chat", "Hello"]
    refuse(command, *chat, "--samples", "2", says="--chat does not go with --samples, --beam or --lens")
    refuse(command, *chat, "--beam", "2", says="--chat does not go with")
    refuse(command, *chat, "--lens", tmp_path / "a.png", says="--chat does not go with")
    refuse(command, *chat[:2], "Hello", "--system", "Be brief.", says="--system goes with --chat")
    refuse(command, *chat, "--system", "\udcff", says="--system is not UTF-8")
    refuse(command, *chat[:3], "w03 " * 50, says="the model's texts have at most 40")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xe4\n")))
    refuse(command, *chat[:3], says="standard input, line 1: not UTF-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n \n")))
    refuse(command, *chat[:3], says="nothing was said")
    monkeypatch.setattr(sys, "stdin", None)
    refuse(command, *chat[:3], says="standard input is closed")
    template.write_text("{{ raise_exception('System role not supported') }}")
    refuse(command, *chat, says="can't write this conversation: System role not supported")
    template.unlink()
    refuse(command, *chat, says="has no chat template")
