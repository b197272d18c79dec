"""A folder with a Marian or a T5 translates text as `transformers` does, in Python and at the command line."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import torch
from support.pretrained_cases import tr

from minitransformer.cli import main
from minitransformer.decoding import Translator
from minitransformer.grammar.generation import sample
from minitransformer.pretrained import load

PAIRS = list(islice(sample("train", seed=1), 300))
SENTENCES = ["The dog sleeps.", "A cat eats a fish in the old garden.", "", "Two teachers read!"]


def marian(folder: Path) -> Any:
    """A random Marian whose texts are cut by sentencepiece; the padding token is the last and begins a target."""
    for side in ("source", "target"):
        texts = iter([pair.english if side == "source" else pair.german for pair in PAIRS])
        options: dict[str, Any] = {"vocab_size": 150, "bos_id": -1, "eos_id": 0, "unk_id": 1, "minloglevel": 2}
        with (folder / f"{side}.spm").open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=texts, model_writer=file, **options)
    models = [sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{s}.spm")) for s in ("source", "target")]
    pieces = dict.fromkeys(["</s>", "<unk>", *(m.id_to_piece(i) for m in models for i in range(2, 150)), "<pad>"])
    (folder / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(pieces)}))
    pad = len(pieces) - 1
    heads = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("attention_heads", "layers")}
    heads |= {"encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "init_std": 0.4}
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": None}
    model = tr.MarianMTModel(tr.MarianConfig(vocab_size=len(pieces), d_model=16, dropout=0.0, **heads, **special))
    model.final_logits_bias[0, 0] = 1.0  # some texts end soon
    source, target, vocab = (str(folder / name) for name in ("source.spm", "target.spm", "vocab.json"))
    return model, tr.MarianTokenizer(source, target, vocab)


def t5(folder: Path) -> Any:
    """A random T5, whose texts a Unigram model cuts."""
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    inner.decoder = tokenizers.decoders.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    special = ["<pad>", "</s>", "<unk>"]
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>")  # pyright: ignore
    inner.train_from_iterator([text for pair in PAIRS for text in (pair.english, pair.german)], trainer)
    marks = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    inner.post_processor = marks  # pyright: ignore[reportAttributeAccessIssue]
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    there = tr.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    there.save_pretrained(folder)
    sizes = {"num_heads": 2, "d_kv": 8, "d_ff": 24, "num_layers": 2, "dropout_rate": 0.0}
    special_ids = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1}
    return tr.T5ForConditionalGeneration(tr.T5Config(vocab_size=210, d_model=16, **sizes, **special_ids)), there


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")  # it would tidy the punctuation
@pytest.mark.parametrize("make", [marian, t5])
def test_the_same_translations(make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(3)
    theirs, tokenizer = make(tmp_path)
    theirs.eval().save_pretrained(tmp_path)
    translator = Translator(*load(tmp_path))
    found = translator.translate(SENTENCES, beam=1)
    asked = [text for text in SENTENCES if text]
    batch = tokenizer(asked, padding=True, return_tensors="pt")
    options: dict[str, Any] = {"num_beams": 1, "do_sample": False, "bad_words_ids": [[theirs.config.pad_token_id]]}
    with torch.no_grad():
        outputs = theirs.generate(batch.input_ids, attention_mask=batch.attention_mask, max_new_tokens=40, **options)
    for text, ids in zip([text for text in found if text], outputs, strict=True):
        wanted = tokenizer.decode(ids, skip_special_tokens=True)
        ended = theirs.config.eos_token_id in ids[1:].tolist()
        assert text == wanted if ended else text.startswith(wanted.rstrip())
        assert wanted
    assert found[2] == ""
    assert len(set(found)) == len(SENTENCES)
    assert translator.translate(asked[::-1], beam=3) == [translator.translate(text, beam=3)[0] for text in asked[::-1]]
    assert main(["translate", str(tmp_path), *asked, "--beam", "1"]) == 0
    assert capsys.readouterr().out == "".join(f"{text}\n" for text in found if text)
