"""The update against TRL: the same weights, samples and settings give the same loss and gradients.

TRL is needed by these tests alone. They call the loss of its GRPO trainer on prepared tensors.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")
pytest.importorskip("trl", reason="the comparison with TRL needs trl: pip install trl")

from tests.rl.tiny_llama import PAD, save  # noqa: E402 - after the checks for extras

from whet.rl import advantages  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update  # noqa: E402
from whet.rl.policy_model.learning import PolicyPasses, UpdateBatch  # noqa: E402
from whet.types import Message  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries about one another
ASK = [Message("user", "write in capitals the words a b c")]
SAY = [Message("user", "say it twice")]
LONGEST = 8


@pytest.fixture(autouse=True)
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer of TRL reports its use to its makers; a test tells nobody anything."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_TELEMETRY", True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"))


def trained(folder: Path) -> PolicyModel:
    """A writer that is not its reference any more; no token has drifted so far that its k3 is capped."""
    writer = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=4), seed=1)
    writer.imitate([(ASK, "a b c d")], Update(lr=0.005))
    return writer


def drawn(writer: PolicyModel) -> list[Sample]:
    """Samples whose behaviour policy was a little different, so that some ratios are clipped."""
    groups = writer.sample([ASK, SAY], 4, temperature=0.8, max_tokens=LONGEST, seed=3)
    samples = [_cut(sample, 3 + i) for i, sample in enumerate(s for group in groups for s in group)]
    shifts = [[0.12 * ((i + 2 * j) % 5 - 2) for j in range(len(s.tokens))] for i, s in enumerate(samples)]
    return [
        dataclasses.replace(s, logprobs=tuple(p + d for p, d in zip(s.logprobs, shift, strict=True)))
        for s, shift in zip(samples, shifts, strict=True)
    ]


def _cut(sample: Sample, n: int) -> Sample:
    return dataclasses.replace(
        sample, tokens=sample.tokens[:n], logprobs=sample.logprobs[:n], own=sample.own[:n]
    )


def trainer(writer: PolicyModel, folder: Path, **settings: Any) -> Any:
    """TRL's trainer of the writer's own network."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(folder),
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=LONGEST,
        temperature=0.8,
        use_bias_correction_kl=False,  # TRL can weigh the divergence by the ratio; papers and this project do not
        **settings,
    )
    made = GRPOTrainer(
        model=writer.body.model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * 8}),
        processing_class=writer.body.weights.tokenizer,
    )
    made.current_gradient_accumulation_steps = 1
    return made


def tensors(samples: list[Sample], ref: list[list[float]], rewards: list[float]) -> dict[str, Any]:
    """The samples as TRL's trainer keeps them: prompts padded on the left, completions on the right."""
    width = max(len(s.prompt) for s in samples)

    def right(rows: list[Any], fill: float) -> Any:
        long = max(map(len, rows))
        return torch.tensor([[*row, *[fill] * (long - len(row))] for row in rows])

    tokens = [s.tokens for s in samples]
    mask = right([[1] * len(t) for t in tokens], 0)
    return {
        "prompt_ids": torch.tensor([[PAD] * (width - len(s.prompt)) + list(s.prompt) for s in samples]),
        "prompt_mask": torch.tensor([[0] * (width - len(s.prompt)) + [1] * len(s.prompt) for s in samples]),
        "completion_ids": right([list(t) for t in tokens], PAD),
        "completion_mask": mask,
        "advantages": torch.tensor(rewards),
        "old_per_token_logps": right([list(s.logprobs) for s in samples], 0.0),
        "ref_per_token_logps": right(ref, 0.0),
        "num_items_in_batch": mask.sum(),
    }


@pytest.mark.parametrize("loss_type", ["bnpo", "dapo"])
def test_loss_and_gradients_are_those_of_trl(folder: Path, tmp_path: Path, loss_type: str) -> None:
    settings = Update(clip_low=0.1, clip_high=0.15, kl=0.05)
    ours, theirs = trained(folder), trained(folder)
    samples = drawn(ours)
    rewards = advantages.grpo([1.0, 0.0, 0.3, 0.2]) + advantages.grpo([0.0, 0.5, 0.4, 0.1])
    ref = ours._here.logprobs(samples, reference=True)
    batch = UpdateBatch(samples, [[a] * len(s.tokens) for a, s in zip(rewards, samples, strict=True)], ref)
    figures = PolicyPasses(ours.body, 10**6).gradients(batch, settings)
    made = trainer(theirs, tmp_path, loss_type=loss_type, beta=0.05, epsilon=0.1, epsilon_high=0.15)
    made.model.train()
    loss = made._compute_loss(made.model, tensors(samples, ref, rewards))
    loss.backward()
    assert figures.clipped > 0 and figures.loss == pytest.approx(float(loss), abs=1e-6)
    gradients = {name: p.grad for name, p in made.model.named_parameters() if p.grad is not None}
    assert gradients.keys() == ours.body.trainable.keys()
    for name, weight in ours.body.trainable.items():
        assert torch.allclose(weight.grad, gradients[name], atol=2e-6, rtol=1e-4), name


@pytest.mark.parametrize(
    ("loss_type", "settings", "high"),
    [
        ("grpo", Update(clip_low=0.1, clip_high=0.15, kl=0.05, aggregation="sequence"), 0.15),
        (
            "dr_grpo",
            Update(clip_low=0.1, clip_high=0.15, kl=0.05, aggregation="constant", length=LONGEST),
            0.15,
        ),
        # TRL has no lower bound, and its epsilon_high is the bound itself.
        ("cispo", Update(loss="cispo", clip_low=1.0, clip_high=0.05, kl=0.05), 1.05),
        ("gspo", Update(loss="gspo", clip_low=0.1, clip_high=0.15, kl=0.05, aggregation="sequence"), 0.15),
    ],
    ids=["sequence", "constant", "cispo", "gspo"],
)
def test_aggregations_and_cispo_are_those_of_trl(
    folder: Path, tmp_path: Path, loss_type: str, settings: Update, high: float
) -> None:
    ours, theirs = trained(folder), trained(folder)
    samples = drawn(ours)
    rewards = advantages.grpo([1.0, 0.0, 0.3, 0.2]) + advantages.grpo([0.0, 0.5, 0.4, 0.1])
    ref = ours._here.logprobs(samples, reference=True)
    rows = [[a] * len(s.tokens) for a, s in zip(rewards, samples, strict=True)]
    batch = UpdateBatch(samples, rows, ref).weigh(settings)
    figures = PolicyPasses(ours.body, 10**6).gradients(batch, settings)
    level = {"importance_sampling_level": "sequence"} if loss_type == "gspo" else {}
    kind = "grpo" if loss_type == "gspo" else loss_type
    made = trainer(theirs, tmp_path, loss_type=kind, beta=0.05, epsilon=0.1, epsilon_high=high, **level)
    made.model.train()
    loss = made._compute_loss(made.model, tensors(samples, ref, rewards))
    loss.backward()
    assert figures.loss == pytest.approx(float(loss), abs=1e-6)
    gradients = {name: p.grad for name, p in made.model.named_parameters() if p.grad is not None}
    for name, weight in ours.body.trainable.items():
        assert torch.allclose(weight.grad, gradients[name], atol=2e-6, rtol=1e-4), name


def test_entropies_and_divergence_are_those_of_trl(folder: Path, tmp_path: Path) -> None:
    ours, theirs = trained(folder), trained(folder)
    samples = drawn(ours)
    ref = ours._here.logprobs(samples, reference=True)
    figures = ours.update(samples, [0.0] * 8, Update(lr=0.0, kl=0.05))
    made = trainer(theirs, tmp_path, loss_type="bnpo", beta=0.05)
    made.model.train()
    made._compute_loss(made.model, tensors(samples, ref, [0.0] * 8))
    found = {name: values[-1] for name, values in made._metrics["train"].items()}
    assert figures["entropy"] == pytest.approx(found["entropy"], abs=1e-5)
    assert figures["kl"] == pytest.approx(found["kl"], abs=1e-6)


def test_trl_normalises_groups_as_ours_up_to_its_epsilon() -> None:
    rewards = [1.0, 0.0, 0.3, 0.2]
    grouped = torch.tensor(rewards)
    theirs = (grouped - grouped.mean()) / (grouped.std() + 1e-4)
    assert advantages.grpo(rewards, eps=1e-4) == pytest.approx(theirs.tolist(), abs=1e-6)
