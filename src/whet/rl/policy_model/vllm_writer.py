"""Texts of a policy that vLLM writes in this process: when the weights have changed, the adapters go to a new folder and vLLM is
asked for an adapter with the next id."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from whet.errors import UsageError
from whet.rl.policy_model.adapter_folders import AdapterFolders
from whet.rl.policy_model.backbone import VLLM_SHARE, Backbone, folder_of
from whet.rl.policy_model.sampling import Sample, Sampling, SamplingRow, sample_of

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Bounds on the rank of adapters that every version of vLLM knows."""


def check_vllm(rank: int) -> None:
    """Raise UsageError where vLLM is not installed, or cannot write with the weights of a training of this rank."""
    if importlib.util.find_spec("vllm") is None:
        raise UsageError(
            "models: policy: sampler: vllm needs vLLM. Install it with: pip install 'whet[train,vllm]', or remove the line."
        )
    if not 1 <= rank <= RANKS[-1]:
        raise UsageError(
            f"models: policy: sampler: vllm writes with adapters of rank 1 to {RANKS[-1]}; this is rank={rank}. "
            "Set rank=8, for example, or remove the line."
        )


class VllmWriter:
    """vLLM on the base of a policy, with the policy's adapters as they are at each `write`."""

    def __init__(self, body: Backbone) -> None:
        check_vllm(body.settings.rank)
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        self._body = body
        try:
            self._vllm = importlib.import_module("vllm")
            self._llm: Any = self._vllm.LLM(
                model=folder_of(body.address),
                dtype="bfloat16" if body.device.startswith("cuda") else "float32",
                max_model_len=body.weights.limit,
                gpu_memory_utilization=VLLM_SHARE,
                enable_lora=True,
                max_loras=1,
                max_lora_rank=next(bound for bound in RANKS if bound >= body.settings.rank),
            )
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"vLLM cannot open {body.address} with adapters: {error}") from error
        self._folders = AdapterFolders(body)
        self.close = self._folders.close
        self._number, self._request = 0, None

    def write(self, rows: Sequence[SamplingRow], how: Sampling) -> list[Sample]:
        """A sample for each row, in order, with the seed of the row; log-probabilities of 0."""
        if not rows:
            return []
        prompts = [{"prompt_token_ids": list(row.ids)} for row in rows]
        outputs = self._llm.generate(
            prompts, [self._params(row, how) for row in rows], use_tqdm=False, lora_request=self._adapter()
        )
        for row, output in zip(rows, outputs, strict=True):
            (text,) = output.outputs
            row.written, row.ended = list(text.token_ids), text.finish_reason == "stop"
            row.logprobs = [0.0] * len(row.written)
        return [sample_of(self._body, row, how.temperature or 1.0) for row in rows]

    def _params(self, row: SamplingRow, how: Sampling) -> object:
        return self._vllm.SamplingParams(
            temperature=how.temperature,
            top_p=how.top_p,
            max_tokens=row.max_tokens,
            seed=row.seed,
            stop=[stop for stop in row.stops if stop],
            stop_token_ids=sorted(self._body.ends),
        )

    def _adapter(self) -> object:
        """The request for the adapters as they are now; the same one for the same weights."""
        number, folder = self._folders.current()
        if number != self._number:
            lora = importlib.import_module("vllm.lora.request")
            self._number, self._request = number, lora.LoRARequest(f"policy-{number}", number, str(folder))
        return self._request
