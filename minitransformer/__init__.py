"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) and its family, from scratch in NumPy.

    from minitransformer import Generator, Translator, pretrained
    Translator.from_checkpoint("runs/demo/model.safetensors").translate(["The old teacher reads a book."])
    Generator(*pretrained.load("gpt2")).generate("Once upon a time")

Importing the package is fast: the names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers take this name for True; importing it from `typing` would be slower than the rest
if TYPE_CHECKING:
    from typing import Any

    from minitransformer.data.batching import Batch
    from minitransformer.data.token_dataset import Batches, TokenDataset
    from minitransformer.data.tokenizer import BPETokenizer
    from minitransformer.decoding import (
        Classifier,
        Describer,
        Embedder,
        Filler,
        Generator,
        Matcher,
        Sampling,
        Translator,
    )
    from minitransformer.evaluation import evaluate
    from minitransformer.gradcheck import check_gradients
    from minitransformer.inside import attention_maps, logit_lens, record
    from minitransformer.models import (
        BERT,
        CLIP,
        GPT,
        BERTConfig,
        Captioner,
        CaptionerConfig,
        CLIPConfig,
        ConvolutionalConfig,
        ConvolutionalTranslator,
        GPTConfig,
        MarianConfig,
        RecurrentConfig,
        RecurrentTranslator,
        T5Config,
        Transformer,
        TransformerConfig,
        ViT,
        ViTConfig,
    )
    from minitransformer.training import Trainer, TrainingDiverged, TrainingSettings
    from minitransformer.training.checkpoint import (
        Checkpoint,
        CheckpointError,
        average_checkpoints,
        load_checkpoint,
        save_checkpoint,
    )

__version__ = "0.2.0"

__all__ = [
    "BERT",
    "CLIP",
    "GPT",
    "BERTConfig",
    "BPETokenizer",
    "Batch",
    "Batches",
    "CLIPConfig",
    "Captioner",
    "CaptionerConfig",
    "Checkpoint",
    "CheckpointError",
    "Classifier",
    "ConvolutionalConfig",
    "ConvolutionalTranslator",
    "Describer",
    "Embedder",
    "Filler",
    "GPTConfig",
    "Generator",
    "MarianConfig",
    "Matcher",
    "RecurrentConfig",
    "RecurrentTranslator",
    "Sampling",
    "T5Config",
    "TokenDataset",
    "Trainer",
    "TrainingDiverged",
    "TrainingSettings",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "ViT",
    "ViTConfig",
    "__version__",
    "attention_maps",
    "average_checkpoints",
    "check_gradients",
    "evaluate",
    "load_checkpoint",
    "logit_lens",
    "record",
    "save_checkpoint",
]

_NAMES_IN = {
    "data.batching": "Batch",
    "data.token_dataset": "Batches TokenDataset",
    "data.tokenizer": "BPETokenizer",
    "decoding": "Classifier Describer Embedder Filler Generator Matcher Sampling Translator",
    "evaluation": "evaluate",
    "gradcheck": "check_gradients",
    "inside": "attention_maps logit_lens record",
    "models": "BERT BERTConfig CLIP CLIPConfig Captioner CaptionerConfig ConvolutionalConfig ConvolutionalTranslator "
    "GPT GPTConfig MarianConfig RecurrentConfig RecurrentTranslator T5Config Transformer TransformerConfig "
    "ViT ViTConfig",
    "training": "Trainer TrainingDiverged TrainingSettings",
    "training.checkpoint": "Checkpoint CheckpointError average_checkpoints load_checkpoint save_checkpoint",
}
_HOME_OF = {name: module for module, names in _NAMES_IN.items() for name in names.split()}
_MODULES = ("data", "decoding", "gradcheck", "layers", "models", "ops", "plots", "pretrained", "training")


def __getattr__(name: str) -> Any:
    """Load a module, or a public name from the module that defines it."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
