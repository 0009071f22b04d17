"""Environment variables: those that whet reads itself, and those that the code of a task folder may see."""

from __future__ import annotations

import os
from collections.abc import Collection

INHERITED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "COLUMNS", "LINES", "NO_COLOR"),
    *("LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("DYLD_LIBRARY_PATH", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "COMSPEC", "PATHEXT"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
    *("TOKENIZERS_PARALLELISM", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)
"""The variables that a program needs to run as it would without `env:`, in large or small letters."""
INHERITED_PREFIXES = ("LC_", "XDG_", "PYTHON", "OMP_", "MKL_", "OPENBLAS_", "CUDA_")

TRUSTED_HOSTS = "WHET_TRUSTED_HOSTS"
"""The variable that names hosts, separated by commas, to which a task file may send what the environment keeps secret."""

_withheld: dict[str, str] = {}


def variable(name: str) -> str | None:
    """The value of a variable that whet itself reads, even if `restrict` removed it; None if it is not set."""
    return os.environ.get(name, _withheld.get(name))


def whole_environment() -> dict[str, str]:
    """The environment with the variables that `restrict` removed, for another process of whet, which removes them itself."""
    return {**_withheld, **os.environ}


def restrict(names: Collection[str]) -> None:
    """Remove all variables but these and the harmless ones from the environment of this process.

    A variable that an earlier call removed returns if this call names it.
    """
    for name, value in whole_environment().items():
        if (
            name in names
            or name.upper() in INHERITED_VARIABLES
            or name.upper().startswith(INHERITED_PREFIXES)
        ):
            os.environ[name] = value
            _withheld.pop(name, None)
        else:
            _withheld[name] = value
            os.environ.pop(name, None)
