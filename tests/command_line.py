"""`whet_here`: a command as scripts see it, without the half second that a process of its own takes to start."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from whet.cli.main import main


def whet_here(folder: Path, *arguments: str, **variables: str) -> CompletedProcess[str]:
    """Exit code and output of `whet ...` in a folder, with nobody at a terminal, and these variables of OPENAI_ alone."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        open(os.devnull) as nobody,
        pytest.raises(SystemExit) as end,
    ):
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("OPENAI_")]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        for name, stream in (("stdin", nobody), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", ["whet", *arguments])
        main()
    texts = [stream.detach().getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return CompletedProcess(arguments, int(end.value.code or 0), *texts)
