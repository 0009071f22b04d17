"""A module `vllm` with the names and parameters of vLLM 0.11 that whet uses. It samples from the weights with transformers and
PEFT, and, as vLLM does, reads the folder of an adapter once for each id. `serving` is the same as a server: the part of the HTTP
interface of `vllm serve` that whet uses, adapters loaded and unloaded while it runs."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest


@dataclass(frozen=True)
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""

    def __post_init__(self) -> None:
        if self.lora_int_id < 1:
            raise ValueError(f"id must be > 0, got {self.lora_int_id}")


@dataclass(frozen=True)
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: list[str] = field(default_factory=list)
    stop_token_ids: list[int] = field(default_factory=list)
    max_tokens: int | None = 16


class LLM:
    made: ClassVar[list[LLM]] = []

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "auto",
        max_model_len: int | None = None,
        gpu_memory_utilization: float = 0.9,
        enable_lora: bool = False,
        max_loras: int = 1,
        max_lora_rank: int = 16,
    ) -> None:
        import transformers

        assert enable_lora and dtype == "float32" and max_loras == 1 and 0 < gpu_memory_utilization < 1
        self.model, self.longest, self.rank = model, max_model_len, max_lora_rank
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        self.loaded: dict[int, Any] = {}
        LLM.made.append(self)

    def generate(
        self,
        prompts: Sequence[dict[str, list[int]]],
        sampling_params: Sequence[SamplingParams],
        *,
        use_tqdm: bool = True,
        lora_request: LoRARequest | None = None,
    ) -> list[SimpleNamespace]:
        assert lora_request is not None and len(prompts) == len(sampling_params) > 0
        if lora_request.lora_int_id not in self.loaded:
            self.loaded = {lora_request.lora_int_id: self._load(Path(lora_request.lora_path))}
        model = self.loaded[lora_request.lora_int_id]
        pairs = zip(prompts, sampling_params, strict=True)
        return [SimpleNamespace(outputs=[self._write(model, p["prompt_token_ids"], how)]) for p, how in pairs]

    def _load(self, folder: Path) -> Any:
        import peft
        import transformers

        assert json.loads((folder / "adapter_config.json").read_text())["r"] <= self.rank
        base = transformers.AutoModelForCausalLM.from_pretrained(self.model)
        return peft.PeftModel.from_pretrained(base, str(folder)).eval()

    def _write(self, model: Any, prompt: list[int], how: SamplingParams) -> SimpleNamespace:
        import torch

        generator = torch.Generator().manual_seed(how.seed or 0)
        written: list[int] = []
        while len(written) < (how.max_tokens or 16):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([[*prompt, *written]])).logits[0, -1].float()
            shares = (logits / (how.temperature or 1.0)).softmax(-1)
            drawn = (
                shares.argmax() if how.temperature == 0 else torch.multinomial(shares, 1, generator=generator)
            )
            written.append(int(drawn))
            text = self.tokenizer.decode(written, skip_special_tokens=True)
            if written[-1] in how.stop_token_ids or any(stop in text for stop in how.stop):
                return SimpleNamespace(token_ids=written, finish_reason="stop")
        return SimpleNamespace(token_ids=written, finish_reason="length")


def install(patch: pytest.MonkeyPatch) -> None:
    """Make the stub what `import vllm` gets."""
    import sys
    from importlib.machinery import ModuleSpec

    module, lora, request = (ModuleType(name) for name in ("vllm", "vllm.lora", "vllm.lora.request"))
    module.__spec__ = ModuleSpec("vllm", None)
    vars(module).update(LLM=LLM, SamplingParams=SamplingParams, lora=lora)
    vars(request).update(LoRARequest=LoRARequest)
    vars(lora).update(request=request)
    for one in (module, lora, request):
        patch.setitem(sys.modules, one.__name__, one)
    patch.setattr(LLM, "made", [])
    patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


@dataclass
class Served:
    """A server: its address, the adapters that it holds by name, and all names that it ever held."""

    url: str
    adapters: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serving(model: str, *, updating: bool = True, ids: bool = True) -> Iterator[Served]:
    """`vllm serve MODEL --enable-lora`; `updating` is VLLM_ALLOW_RUNTIME_LORA_UPDATING, without `ids` it is older than 0.10.2."""
    llm = LLM(model, dtype="float32", enable_lora=True, gpu_memory_utilization=0.5, max_loras=1)
    served, lock = Served(""), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                code, said = self.answer(body)
            data = json.dumps(said).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def answer(self, body: dict[str, Any]) -> tuple[int, Any]:
            if "lora_adapter" in self.path and not updating:
                return 404, {"detail": "Not Found"}
            if self.path == "/v1/load_lora_adapter":
                if body["lora_name"] in served.adapters:
                    return 400, {"error": {"message": "already loaded"}}
                served.adapters[body["lora_name"]] = llm._load(Path(body["lora_path"]))
                served.names.append(body["lora_name"])
                return 200, "Success"
            if self.path == "/v1/unload_lora_adapter":
                del served.adapters[body["lora_name"]]
                return 200, "Success"
            assert self.path == "/v1/completions"
            how = SamplingParams(
                1,
                *(
                    body[key]
                    for key in ("temperature", "top_p", "seed", "stop", "stop_token_ids", "max_tokens")
                ),
            )
            said = llm._write(served.adapters[body["model"]], body["prompt"], how)
            assert body["return_token_ids"]
            more = {"token_ids": said.token_ids} if ids else {}
            return 200, {"choices": [{"text": "", "finish_reason": said.finish_reason, **more}]}

        def log_message(self, *_: Any) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield served
        finally:
            server.shutdown()
