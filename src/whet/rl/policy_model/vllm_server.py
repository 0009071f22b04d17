"""Texts of a policy that a server of vLLM writes: when the weights have changed, the adapters go to a new folder, and the server
is told to load it under a new name and to forget the old one.

    vllm serve PATH --enable-lora --max-lora-rank 8      with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True

The server must see the folder by the same path: it runs on this machine, or TMPDIR names a folder that both share.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from whet.errors import ProviderError, UsageError
from whet.rl.policy_model.adapter_folders import AdapterFolders
from whet.rl.policy_model.backbone import Backbone
from whet.rl.policy_model.sampling import Sample, Sampling, SamplingRow, sample_of

SERVE = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve PATH --enable-lora --max-lora-rank"
AT_ONCE = 64
"""Requests in flight: vLLM joins them to batches itself."""
PATIENCE = 600.0
"""Seconds for one request."""


def check_server(url: str, rank: int) -> None:
    """Raise UsageError for an address that is none, and for weights that are no adapters."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise UsageError(
            f"models: policy: sampler: {url} is neither transformers nor vllm nor the address of a server of vLLM, such as "
            "http://localhost:8000."
        )
    if rank < 1:
        raise UsageError(
            f"models: policy: sampler: a server of vLLM gets adapters; this is rank={rank}. Set rank=8, for example."
        )


class VllmServer:
    """A server of vLLM with the base of a policy, which gets the policy's adapters as they are at each `write`.

    It holds one adapter of this policy at a time.
    """

    def __init__(self, body: Backbone, url: str) -> None:
        check_server(url, body.settings.rank)
        self._body, self._url, self._name = body, url.rstrip("/").removesuffix("/v1"), ""
        self._folders = AdapterFolders(body)

    def write(self, rows: Sequence[SamplingRow], how: Sampling) -> list[Sample]:
        """A sample for each row, in order, with the seed of the row; log-probabilities of 0. Raises ProviderError."""
        if not rows:
            return []
        self._load_adapter()
        with ThreadPoolExecutor(min(AT_ONCE, len(rows))) as pool:
            choices = list(pool.map(lambda row: self._complete(row, how), rows))
        for row, choice in zip(rows, choices, strict=True):
            row.written, row.ended = list(choice["token_ids"]), choice["finish_reason"] == "stop"
            row.logprobs = [0.0] * len(row.written)
        return [sample_of(self._body, row, how.temperature or 1.0) for row in rows]

    def close(self) -> None:
        """Let the server forget the adapter, and delete its folder."""
        if self._name:
            self._forget(self._name)
        self._folders.close()

    def _load_adapter(self) -> None:
        number, folder = self._folders.current()
        name = f"whet-{self._folders.place.name}-{number}"
        if name == self._name:
            return
        self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        old, self._name = self._name, name
        if old:
            self._forget(old)

    def _forget(self, name: str) -> None:
        self._post("/v1/unload_lora_adapter", {"lora_name": name})

    def _complete(self, row: SamplingRow, how: Sampling) -> dict[str, Any]:
        body = {
            "model": self._name,
            "prompt": list(row.ids),
            "max_tokens": row.max_tokens,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "seed": row.seed % 2**63,
            "stop": [stop for stop in row.stops if stop],
            "stop_token_ids": sorted(self._body.ends),
            "return_token_ids": True,
        }
        (choice,) = json.loads(self._post("/v1/completions", body))["choices"]
        if choice.get("token_ids") is None:
            raise ProviderError(
                f"{self._url} returns no token_ids; vLLM does since version 0.10.2.", fatal=True
            )
        answer: dict[str, Any] = choice
        return answer

    def _post(self, path: str, body: dict[str, Any]) -> bytes:
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self._url + path, data, kind), timeout=PATIENCE
            ) as reply:
                answer: bytes = reply.read()
                return answer
        except urllib.error.HTTPError as error:
            reason = error.read(500).decode(errors="replace").strip()
            raise ProviderError(
                f"the sampler at {self._url}{path} answered {error.code}: {reason}. It must be started with: {SERVE} "
                f"{self._body.settings.rank}",
                fatal=True,
            ) from error
        except OSError as error:
            raise ProviderError(
                f"the sampler at {self._url} cannot be reached: {error}", fatal=True
            ) from error
