"""A folder's options on the marks around a text, on its search and on its types are obeyed, and go back with it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tokenizers
import torch
from support.cli_runs import in_this_process
from support.pretrained_cases import tr

from minitransformer.cli.evaluate import score_of
from minitransformer.data import BPETokenizer
from minitransformer.data.text import TextDataset
from minitransformer.decoding import Generator, Sampling, Translator
from minitransformer.models import GPT, GPTConfig, T5Config, Transformer
from minitransformer.pretrained import PretrainedError, PretrainedTokenizer, load, save

WORDS = ["<unk>", "<s>", "</s>", "<|end|>", "a", "b", "c", "d"]
GREEDY = Sampling(temperature=0.0)


def tokenizer(before: str = "", after: str = "", more: tuple[str, ...] = ()) -> tokenizers.Tokenizer:
    """Words between spaces, with marks before and after a text."""
    vocabulary = {word: index for index, word in enumerate([*WORDS, *more])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(WORDS[1:4])
    marks = [(mark, vocabulary[mark]) for mark in (before, after) if mark]
    single = f"{before} $A {after}".split()
    inner.post_processor = tokenizers.processors.TemplateProcessing(single=single, special_tokens=marks)
    return inner


def folder_of(path: Path, inner: tokenizers.Tokenizer, generation: Any = None, **changed: Any) -> Path:
    """A small Llama with a tokenizer; `changed` options, and what says how to generate."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = tr.LlamaForCausalLM(tr.LlamaConfig(vocab_size=len(WORDS), **sizes, max_position_embeddings=32))
    for parameter in model.parameters():
        parameter.data *= 20
    model.save_pretrained(path)
    inner.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}')
    config = path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changed))
    (path / "generation_config.json").unlink()
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return path


@pytest.mark.parametrize("before", ["", "<s>"])
def test_the_tokenizer_says_whether_a_mark_begins_a_text(before: str, tmp_path: Path) -> None:
    """Ids, the texts that follow and the score are those of `transformers`; a mark that is there is not put twice."""
    folder = folder_of(tmp_path, tokenizer(before))
    model, ours = load(folder)
    there, theirs = tr.AutoModelForCausalLM.from_pretrained(folder), tr.AutoTokenizer.from_pretrained(folder)
    generator = Generator(model, ours)
    for prompt in ("a b", "d", "c a d b"):
        given = theirs(prompt, return_tensors="pt", return_token_type_ids=False)
        assert generator.encode(prompt) == given["input_ids"][0].tolist()
        written = there.generate(**given, max_new_tokens=8, do_sample=False, pad_token_id=0)[0]
        after = written[given["input_ids"].shape[1] :].tolist()
        assert (
            generator.generate(prompt, 8, GREEDY)[0].split() == theirs.decode(after, skip_special_tokens=True).split()
        )
        ids = torch.tensor(theirs(prompt + "\n")["input_ids"])
        if len(ids) > 1:
            loss = there(ids[None], labels=ids[None]).loss.item() * (len(ids) - 1)
            assert score_of(model, ours, [prompt], None).nats == pytest.approx(loss, rel=1e-5)
    assert generator.encode("<s> a b") == [1, 4, 5]
    assert generator.encode("") == [1]


def test_a_source_is_marked_as_its_tokenizer_says(tmp_path: Path) -> None:
    config = T5Config(len(WORDS), d_model=8, num_heads=2, d_k=4, d_ff=8, num_layers=1, eos_id=2)
    for after, ids in (("</s>", [4, 5, 2]), ("", [4, 5])):
        save(Transformer(config), tmp_path)
        tokenizer(after=after).save(str(tmp_path / "tokenizer.json"))
        assert Translator(*load(tmp_path)).encode(["a b"], truncate=False) == [ids]


def test_a_mark_that_our_models_learned_is_written_for_theirs(tmp_path: Path) -> None:
    ours = BPETokenizer.train(["a b c d"] * 3, 264)
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "max_length": 16}
    for bos, marks in ((ours.bos_id, [ours.bos_id]), (ours.eos_id, []), (None, [])):
        model = GPT(GPTConfig(ours.vocab_size, **sizes, bos_id=bos, eos_id=ours.eos_id))
        save(model, tmp_path, ours)
        expected = [*marks, *ours.encode("a b")]
        assert tr.AutoTokenizer.from_pretrained(tmp_path)("a b")["input_ids"] == expected
        assert Generator(*load(tmp_path)).encode("a b") == Generator(model, ours).encode("a b") == expected


@pytest.mark.parametrize("first", ["x", "ab"])
def test_marks_around_a_text_of_no_tokens(first: str) -> None:
    """Whatever letters the tokenizer knows."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({"<s>": 0, "</s>": 1, first[0]: 2, "y": 3}, []))
    marks = [("<s>", 0), ("</s>", 1)]
    inner.add_special_tokens(["<s>", "</s>"])
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A </s>".split(), special_tokens=marks)
    assert PretrainedTokenizer(inner, {}, {}).around("") == ([0], [], [1])


SETTINGS = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "bos_token_id": 1, "a_new_one": [3]}


@pytest.mark.parametrize("there", ["generation_config.json", "config.json", "both"])
def test_each_of_several_end_marks_ends_a_text(there: str, tmp_path: Path) -> None:
    """In the file of the model or in that of its generation, which goes first."""
    ends = {"eos_token_id": [2, 3]}
    generation = None if there == "config.json" else SETTINGS | ends
    changed: dict[str, Any] = ends if there == "config.json" else {"eos_token_id": 7 if there == "both" else 2}
    model, ours = load(folder_of(tmp_path / "in", tokenizer(), generation, **changed))
    assert (model.config.eos_id, model.config.other_eos_ids) == (2, (3,))
    output = model.parameters.named["output.table"]
    for end in (2, 3):
        output.data[...] = 0.0
        model.parameters.refresh()
        hidden = model.decoder.forward(np.array([[4]]), _context())[0][0, 0]
        output.data[end] = hidden
        model.parameters.refresh()
        assert Generator(model, ours).generate(["a", "a"], 5, GREEDY) == ["", ""]
        assert Generator(model, ours).generate("a", 5, beam=2) == [""]
    save(model, tmp_path / "out", ours)
    for name in ("config.json", "generation_config.json"):
        before, after = (tmp_path / folder / name for folder in ("in", "out"))
        if before.exists():
            was, now = (json.loads(path.read_text()) for path in (before, after))
            assert {**was, "dtype": None} == {**now, "dtype": None} if name == "config.json" else was == now


def _context() -> Any:
    from minitransformer.layers import Context

    return Context()


def test_a_sampling_default_is_shown_and_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path, tokenizer(), SETTINGS)
    run = in_this_process(capsys)
    plain, same = (run("generate", folder, "a b", "--seed", "3", *more) for more in ([], ["--temperature", "1"]))
    assert "suggests --temperature 0.6 --top-p 0.9" in plain[2]
    assert "suggests" not in same[2]
    neutral = {"temperature": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "top_p": 7, "eos_token_id": 2}
    (folder / "generation_config.json").write_text(json.dumps(neutral))
    assert "suggests" not in run("generate", folder, "a b")[2]
    assert plain[1] == same[1]


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_model_goes_back_as_it_came(kind: str, tmp_path: Path) -> None:
    """In its type as long as that holds the weights, and with its chat's template."""
    source, target = tmp_path / "in", tmp_path / "out"
    folder_of(source, tokenizer())
    half = tr.LlamaForCausalLM.from_pretrained(source).to(getattr(torch, kind))
    half.save_pretrained(source)
    (source / "chat_template.jinja").write_text("{{ messages }} ä")
    model, ours = load(source)
    save(model, target, ours)
    was, now = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (source, target))
    assert {name: each.dtype for name, each in was.items()} == {name: each.dtype for name, each in now.items()}
    assert all(torch.equal(was[name], now[name]) for name in was)
    assert json.loads((target / "config.json").read_text())["dtype"] == kind
    assert (target / "chat_template.jinja").read_text() == "{{ messages }} ä"
    config = target / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"dtype": "float32"}))  # computes in float32
    again = tmp_path / "again"
    save(load(target)[0], again)
    assert json.loads((again / "config.json").read_text())["dtype"] == "float32"
    assert torch.equal(
        safetensors.torch.load_file(again / "model.safetensors")["lm_head.weight"], was["lm_head.weight"]
    )
    model.parameters.data[3] += 1e-6
    save(model, target, ours)
    assert {each.dtype for each in safetensors.torch.load_file(target / "model.safetensors").values()} == {
        torch.float32
    }
    assert json.loads((target / "config.json").read_text())["dtype"] == "float32"


def test_a_token_that_the_model_lacks_is_refused_where_a_text_has_it(tmp_path: Path) -> None:
    model, ours = load(folder_of(tmp_path, tokenizer(more=("new",))))
    generator = Generator(model, ours)
    assert generator.encode("a b") == [4, 5]
    with pytest.raises(ValueError, match="the token 'new', id 8, but the model has 8 ids"):
        generator.generate("a new")


def test_relative_positions_know_no_end(tmp_path: Path) -> None:
    config = T5Config(len(WORDS), d_model=8, num_heads=2, d_k=4, d_ff=8, num_layers=1, max_length=4, eos_id=2)
    translator = Translator(Transformer(config), _Plain())
    source = "a b c d a b c d"
    assert translator.encode([source], truncate=False) == [[4, 5, 6, 7, 4, 5, 6, 7, 2]]
    translator.translate(source, beam=1)


def test_a_line_may_be_as_long_as_relative_positions_let_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = T5Config(len(WORDS), d_model=8, num_heads=2, d_k=4, d_ff=8, num_layers=1, max_length=4, eos_id=2)
    save(Transformer(config), tmp_path)
    tokenizer(after="</s>").save(str(tmp_path / "tokenizer.json"))
    assert in_this_process(capsys)("translate", tmp_path, "a b c d a b c d", "--beam", "1")[0] == 0


class _Plain:
    """A tokenizer that knows no marks."""

    vocab_size = len(WORDS)

    def encode(self, text: str) -> list[int]:
        return [WORDS.index(word) for word in text.split()]

    def decode(self, ids: Any) -> str:
        return " ".join(WORDS[each] for each in ids)

    def tokens(self, ids: Any) -> list[str]:
        return [WORDS[each] for each in ids]


def test_lines_end_with_the_mark_of_their_model() -> None:
    config = GPTConfig(9, d_model=4, num_heads=1, d_ff=4, num_layers=1, max_length=8, bos_id=8, eos_id=8)
    with pytest.raises(ValueError, match="the lines end with id 2, but the model's texts with 8"):
        TextDataset.from_lines([[4, 5]]).batches(16, 0, config)
    text = TextDataset.from_lines([[4, 5], [6]], end=8)
    assert text.stream.tolist() == [4, 5, 8, 6, 8]
    text.batches(16, 0, config)
    text.batches(16, 0, replace(config, eos_id=7, other_eos_ids=(8,)))


def test_what_tokenizer_config_says_goes_before_tokenizer_json(tmp_path: Path) -> None:
    """Letters' case, and tokens that were added, as `transformers` reads them."""
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "A", "a"])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    tr.BertForMaskedLM(tr.BertConfig(vocab_size=8, **sizes)).save_pretrained(tmp_path)
    inner.save(str(tmp_path / "tokenizer.json"))
    options = {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "extra_special_tokens": ["[NEW]"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    theirs, (_, ours) = tr.AutoTokenizer.from_pretrained(tmp_path), load(tmp_path)
    text = "A a [NEW] a"
    assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"] == [5, 6, 7, 6]


def test_the_index_of_shards_decides(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, tokenizer())
    whole = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(whole)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    places = {name: shard for shard, held in shards.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    def write(**more: dict[str, torch.Tensor]) -> None:
        for shard, held in shards.items():
            tensors = {name: whole[name] for name in held} | more.get(shard[0], {})
            safetensors.torch.save_file(tensors, folder / shard)

    write()
    load(folder)
    write(b={names[0]: whole[names[0]] + 1})
    with pytest.raises(PretrainedError, match=rf"b.safetensors is not what .* says: it also holds {names[0]}"):
        load(folder)
    shards["a.safetensors"].remove(names[2])
    write()
    with pytest.raises(PretrainedError, match=rf"a.safetensors is not what .* says: it lacks {names[2]}"):
        load(folder)
