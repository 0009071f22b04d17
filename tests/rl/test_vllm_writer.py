"""A policy whose texts vLLM writes: they follow the weights, and what is recorded of them is what the update computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from benchmarks.simulated.clause_tasks import write_task  # noqa: E402 - after the checks for extras
from tests.rl import vllm_stub  # noqa: E402 - after the checks for extras
from tests.rl.reading import token_scores  # noqa: E402
from tests.rl.tiny_llama import save  # noqa: E402

from whet import api  # noqa: E402
from whet.errors import ProviderError, UsageError  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Update, backbone  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf/{save(tmp_path_factory.mktemp('base'))}"


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm_stub.install(monkeypatch)


def learn(policy: PolicyModel) -> None:
    samples = policy.sample([ASK], 4, max_tokens=6, seed=3)[0]
    policy.update(samples, [1.0, -1.0, 0.5, -0.5], Update(lr=0.3))


def greedy(policy: PolicyModel) -> Any:
    (sample,) = policy.sample([ASK], 1, max_tokens=8, temperature=0)[0]
    return sample


def test_texts_follow_the_weights(base: str, vllm: None) -> None:
    """After an update and after a return to saved weights vLLM writes what the weights say, as transformers does."""
    policy = PolicyModel.open(base, LoraSettings(rank=4), seed=1, sampler="vllm")
    first, saved = greedy(policy), policy.save()
    learn(policy)
    second = greedy(policy)
    assert first.tokens != second.tokens, "the update changes the likeliest text"
    (llm,) = vllm_stub.LLM.made
    assert list(llm.loaded) == [2], "the second adapters, which no later text needed again"
    plain = PolicyModel.open(base, LoraSettings(rank=4), seed=1)
    assert (first.tokens, first.text, first.ended) == (
        greedy(plain).tokens,
        greedy(plain).text,
        greedy(plain).ended,
    )
    plain.load(policy.save())
    assert second.tokens == greedy(plain).tokens
    policy.load(saved)
    assert greedy(policy).tokens == first.tokens
    policy.close()
    assert greedy(policy).tokens == first.tokens, "from then on transformers writes"
    assert len(llm.loaded) == 1 and llm.longest == policy.body.weights.limit and llm.rank == 8


def test_the_recorded_probabilities_are_those_of_the_update(base: str, vllm: None) -> None:
    policy = PolicyModel.open(base, LoraSettings(rank=4), seed=1, sampler="vllm")
    learn(policy)
    samples = policy.sample([ASK], 5, max_tokens=6, temperature=1.3, seed=9)[0]
    assert len({sample.tokens for sample in samples}) > 1, "each row has its own seed"
    assert samples == policy.sample([ASK], 5, max_tokens=6, temperature=1.3, seed=9)[0]
    assert samples != policy.sample([ASK], 5, max_tokens=6, temperature=1.3, seed=10)[0]
    for sample in samples:
        (scores,) = token_scores(policy, [sample])[0].tolist()
        assert sample.logprobs == pytest.approx(scores, abs=1e-5)
        assert min(sample.logprobs) < 0
    word = samples[0].text.split()[2]
    stopped = policy.sample([ASK], 5, max_tokens=6, temperature=1.3, seed=9, stop=[word])[0]
    assert stopped[0].ended and stopped[0].text.endswith(word) and len(stopped[0].tokens) < 6
    turns = policy.sample_turn(samples, [[Message("user", "say it")]] * 5, max_tokens=4, seed=2)
    assert all(turn.tokens[: len(s.tokens)] == s.tokens for turn, s in zip(turns, samples, strict=True))
    policy.close()


def test_a_server_gets_the_adapters_whenever_they_have_changed(base: str) -> None:
    """It writes what the weights say, holds one adapter at a time, and forgets it at the end."""
    with vllm_stub.serving(base.removeprefix("hf/")) as server:
        policy = PolicyModel.open(base, LoraSettings(rank=4), seed=1, sampler=f"{server.url}/v1")
        plain = PolicyModel.open(base, LoraSettings(rank=4), seed=1)
        assert greedy(policy).tokens == greedy(plain).tokens
        learn(policy)
        plain.load(policy.save())
        (many,) = policy.sample([ASK], 5, max_tokens=6, temperature=1.3, seed=9)
        assert many == policy.sample([ASK], 5, max_tokens=6, temperature=1.3, seed=9)[0]
        assert len({sample.tokens for sample in many}) > 1, "each row has its own seed"
        assert greedy(policy).tokens == greedy(plain).tokens and len(server.names) == 2
        assert list(server.adapters) == server.names[1:]
        for sample in many:
            (scores,) = token_scores(policy, [sample])[0].tolist()
            assert sample.logprobs == pytest.approx(scores, abs=1e-5), (
                "computed by the update, not by the server"
            )
        assert policy.memory.sampler == 0
        policy.close()
        assert server.adapters == {}


def test_a_server_that_cannot_be_used_says_how_to_start_it(base: str) -> None:
    for habits, said in (
        ({"updating": False}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve"),
        ({"ids": False}, "0.10.2"),
    ):
        with vllm_stub.serving(base.removeprefix("hf/"), **habits) as server:
            policy = PolicyModel.open(base, LoraSettings(rank=4), seed=1, sampler=server.url)
            with pytest.raises(ProviderError, match=said):
                greedy(policy)
    with pytest.raises(ProviderError, match="cannot be reached"):
        greedy(policy)


def in_task(folder: Path, sampler: str = "vllm") -> Path:
    write_task(folder, 1, clauses=2, rows=18)
    text = (folder / "task.yaml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith("models:")]
    models = "models: {task: embedded/tiny, policy: {address: embedded/tiny, sampler: SAMPLER}}".replace(
        "SAMPLER", sampler
    )
    (folder / "task.yaml").write_text("\n".join([*kept, models, ""]))
    return folder


SETTINGS = {"steps": 2, "group": 2, "examples": 2, "max_tokens": 6, "rewrites": 1, "checks": 1, "lr": 3e-3}


def test_a_run_trains_on_texts_of_vllm(tmp_path: Path, vllm: None) -> None:
    found = api.optimize(
        in_task(tmp_path / "task"), method="prewrite", settings=SETTINGS, run=tmp_path / "run"
    )
    assert found["status"] != "stopped"
    (llm,) = vllm_stub.LLM.made
    assert max(llm.loaded) >= 2, "later texts are of later weights"


@pytest.mark.parametrize(
    ("sampler", "rank", "said"),
    [("wllm", 8, "wllm is neither"), ("http://key@host", 8, "neither"), ("http://localhost:1", 0, "rank=0")],
)
def test_what_is_no_server_is_refused_before_anything_is_written(
    sampler: str, rank: int, said: str, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "rank": rank}
    with pytest.raises(UsageError, match=said):
        api.optimize(
            in_task(tmp_path / "task", sampler), method="prewrite", settings=settings, run=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rank", [8, 0, 600])
def test_what_vllm_cannot_do_is_refused_before_anything_is_written(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rank == 8:
        monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    else:
        vllm_stub.install(monkeypatch)
    with pytest.raises(UsageError, match=r"whet\[train,vllm\]" if rank == 8 else f"rank={rank}"):
        api.optimize(
            in_task(tmp_path / "task"),
            method="prewrite",
            settings={**SETTINGS, "rank": rank},
            run=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_a_policy_learns_on_a_gpu_of_apple_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert [backbone.device_for(one) for one in ("hf/PATH", "embedded/tiny")] == ["mps", "cpu"]
    opened: list[str | None] = []

    def load(name: str, device: str | None) -> object:
        opened.append(device)
        raise UsageError(name)

    monkeypatch.setattr(backbone, "load_weights", load)
    with pytest.raises(UsageError, match="PATH"):
        PolicyModel.open("hf/PATH")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert (opened, backbone.device_for("hf/PATH")) == (["mps"], "cpu")
