"""The classifier: it says to which class a text belongs, with a BERT, or a picture, with a ViT."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import require
from ..models import BERT, Model, ViT
from .batches import padded_batches
from .filler import Guess
from .images import processor_of
from .sampling import softmax_of
from .tokenizer import check_vocabulary, encode_between_marks

PICTURES = 8
"""So many go through the model at once."""


class Classifier:
    """Names classes: `Classifier(*pretrained.load(folder)).classify(["cat.jpg", "dog.png"])`.

    A ViT classifies pictures and needs no tokenizer, a BERT texts. The names are those of the folder (`id2label`), or
    the numbers of the classes. Raises `ValueError` for a model that classifies nothing, for a BERT without a tokenizer
    or with fewer tokens than its tokenizer, and as `processor_of` does.
    """

    def __init__(self, model: Model[Any], tokenizer: Any = None) -> None:
        config = model.config
        if not isinstance(model, ViT) and not (isinstance(model, BERT) and config.head == "classes"):
            raise ValueError(
                f"a model of kind {config.kind!r} without a classifier: a ViT, a DeiT or a BERT may have one"
            )
        if isinstance(model, BERT):
            require(tokenizer is not None, "there is no tokenizer: the model can't read text")
            check_vocabulary(config, tokenizer)
        values: Mapping[str, Any] = getattr(model.origin, "values", {})
        given = values.get("id2label")
        names = given if isinstance(given, Mapping) else {}
        self.model, self.tokenizer = model, tokenizer
        self.labels = [str(names.get(str(number), number)) for number in range(config.num_classes)]
        self.processor = processor_of(model) if isinstance(model, ViT) else None
        kind = values.get("problem_type")
        require(kind != "regression", "the model's outputs are numbers (problem_type regression), not classes")
        self.independent = kind == "multi_label_classification" or config.num_classes == 1

    def classify(self, inputs: Sequence[Any], count: int = 1) -> list[list[Guess]]:
        """Return the `count` most probable classes of each input, the best first.

        Inputs are texts or, for a ViT, paths of pictures. Raises `OSError` for a file that can't be read, `ValueError`
        for one that holds no picture, for a picture whose size after all is not the model's, and for a text that is too
        long or has a token that the model lacks, and `FloatingPointError` if the model says NaN.
        """
        probabilities = self.probabilities(inputs)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :count]
        return [
            [Guess(self.labels[each], float(row[each])) for each in chosen]
            for row, chosen in zip(probabilities, best.tolist(), strict=True)
        ]

    def probabilities(self, inputs: Sequence[Any]) -> NDArray[np.float64]:
        """Return the probability of each class for each input, `(N, classes)`; a ViT takes arrays of its size too.

        They sum to 1, but for a model whose classes do not exclude each other (`multi_label_classification`), or that
        knows one class alone: there each stands for itself. Raises as `classify` does.
        """
        config: Any = self.model.config
        logits = np.zeros((len(inputs), config.num_classes))
        if self.processor is not None:
            for start in range(0, len(inputs), PICTURES):
                part = slice(start, start + PICTURES)
                logits[part] = self._forward(self.processor.arrays(inputs[part], config))
        else:
            encoded = [encode_between_marks(config, self.tokenizer, text) for text in inputs]
            for batch, ids, mask in padded_batches(encoded, config.pad_id, 2048):
                logits[batch] = self._forward(ids, mask=mask)
        if self.independent:
            return softmax_of(np.stack([logits, np.zeros_like(logits)], axis=-1))[..., 0]  # the logistic function
        return softmax_of(logits)

    def _forward(self, *inputs: Any, **options: Any) -> NDArray[Any]:
        return self.model.ops.to_numpy(self.model.forward(*inputs, **options)[0])
