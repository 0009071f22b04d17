"""The mechanics as settings of a training: what each of them hands to the update, and what the update does with it."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.errors import UsageError  # noqa: E402
from whet.methods import METHODS, configure, get_method  # noqa: E402
from whet.rl import advantages, losses  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update  # noqa: E402
from whet.rl.policy_model.learning import PolicyPasses, UpdateBatch, pad_rows, score_tokens  # noqa: E402
from whet.rl.training import (  # noqa: E402
    MultiTurnTraining,
    Trainer,
    Training,
    batch_token_advantages,
    token_advantages,
)
from whet.run import MemoryRun  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
SAY = [Message("user", "say it twice")]
REWARDS = [[1.0, 0.0, 0.5], [0.2, 0.2, 0.2]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"), sharpness=1.0)


def moved(folder: Path) -> PolicyModel:
    """A policy that is not its reference any more."""
    policy = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    policy.imitate([(ASK, "a b c d"), (SAY, "good good")], Update(lr=0.05, epochs=3))
    return policy


@pytest.fixture(scope="module")
def policy(folder: Path) -> PolicyModel:
    return moved(folder)


@pytest.fixture(scope="module")
def groups(policy: PolicyModel) -> list[list[Sample]]:
    return policy.sample([ASK, SAY], 3, max_tokens=5, seed=2)


def divergence(policy: PolicyModel, sample: Sample) -> list[float]:
    (reference,) = policy.reference_logprobs([sample])
    return [old - ref for old, ref in zip(sample.logprobs, reference, strict=True)]


def flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


def test_reinforce_pp_takes_the_divergence_off_each_token_before_it_whitens(
    policy: PolicyModel, groups: list[list[Sample]]
) -> None:
    config = Training(advantage="reinforce++", kl=0.3)
    rows = []
    for sample, reward in zip(groups[0] + groups[1], flat(REWARDS), strict=True):
        row = [-0.3 * gap for gap in divergence(policy, sample)]
        row[-1] += reward
        rows.append(row)
    found, figures = batch_token_advantages(config, policy, groups, REWARDS)
    assert flat(found) == pytest.approx(flat(advantages.reinforce_pp(rows)), abs=1e-5)
    assert figures["kl"] > 0 and config.update().kl == 0.0, "in the reward and not in the loss as well"


def test_remax_compares_with_the_greedy_text_and_the_baseline_variant_with_the_group(
    policy: PolicyModel, groups: list[list[Sample]]
) -> None:
    found, _ = batch_token_advantages(Training(advantage="remax"), policy, groups, REWARDS, [0.5, 0.2])
    lengths = [len(s.tokens) for group in groups for s in group]
    expected = [[a] * n for a, n in zip([0.5, -0.5, 0.0, 0.0, 0.0, 0.0], lengths, strict=True)]
    assert flat(found) == pytest.approx(flat(expected))
    found, _ = batch_token_advantages(Training(advantage="reinforce++-baseline"), policy, groups, REWARDS)
    sizes = [[len(s.tokens) for s in group] for group in groups]
    assert flat(found) == pytest.approx(flat(advantages.reinforce_pp_baseline(REWARDS, sizes)))


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_the_divergence_in_the_reward_keeps_its_weight_whatever_the_group_is_divided_by(
    policy: PolicyModel, groups: list[list[Sample]], kind: Any
) -> None:
    config = Training(advantage=kind, kl=0.01, kl_in="reward")
    found, _ = batch_token_advantages(config, policy, groups, REWARDS)
    rows = iter(found)
    estimate = getattr(advantages, kind)
    centre = advantages.rloo if kind == "rloo" else advantages.dr_grpo
    for group, rewards in zip(groups, REWARDS, strict=True):
        totals = [sum(divergence(policy, sample)) for sample in group]
        expected = [a - 0.01 * k for a, k in zip(estimate(rewards), centre(totals), strict=True)]
        if kind != "grpo":  # without a division it is the same as taking the divergence off the reward first
            shaped = [r - 0.01 * k for r, k in zip(rewards, totals, strict=True)]
            assert estimate(shaped) == pytest.approx(expected)
        assert [next(rows)[0] for _ in group] == pytest.approx(expected, abs=1e-6)
    assert max(map(abs, flat(found[3:]))) < 0.2, "equal rewards: a small divergence stays small"


def test_critical_tokens_weigh_the_divergence_in_the_reward_by_the_certainty_of_the_reference(
    policy: PolicyModel, groups: list[list[Sample]]
) -> None:
    samples = groups[0]
    plain, weighed = policy.critical_gaps(samples), policy.critical_gaps(samples, 2.0)
    with torch.no_grad():
        entropy = score_tokens(policy.body, samples, reference=True).entropy
    for i, sample in enumerate(samples):
        weights = losses.critical_weights(entropy[i, : len(sample.tokens)], policy.body.vocabulary, 2.0)
        assert weighed[i] == pytest.approx([g * w for g, w in zip(plain[i], weights.tolist(), strict=True)])


def test_the_divergence_of_one_part_alone_counts_between_its_tags() -> None:
    """The weights of the tokens of "<b>" and of what follows "</b>" are 0, those of the part 1."""
    policy = PolicyModel.open("embedded/tiny", LoraSettings(rank=2), 0)
    tokenizer = policy.body.weights.tokenizer
    parts = [tokenizer.encode(text, add_special_tokens=False) for text in ("so <b>", "x = 1", "</b> then")]
    tokens = tuple(token for part in parts for token in part)
    n = len(tokens)
    text = tokenizer.decode(tokens)
    assert "<b>" in text and "</b>" in text
    sample = Sample(text, (1,), tokens, (0.5,) * n, (True,) * n, True)
    (plain,), (part,) = policy.critical_gaps([sample]), policy.critical_gaps([sample], tag="b")
    assert all(g for g in plain)
    inside = [g == w for g, w in zip(plain, part, strict=True)]
    assert inside == [False] * len(parts[0]) + [True] * len(parts[1]) + [False] * len(parts[2])
    assert policy.critical_gaps([sample], tag="code") == [[0.0] * n], "no such part: nothing counts"


# The update


def one_gradient(
    policy: PolicyModel, batch: UpdateBatch, settings: Update, tokens: int = 10**6
) -> torch.Tensor:
    """The gradient of all trainable weights as one vector, read in parts of at most so many tokens."""
    PolicyPasses(policy.body, tokens).gradients(batch, settings)
    found = []
    for weight in policy.body.trainable.values():
        found.append(
            torch.zeros_like(weight).flatten() if weight.grad is None else weight.grad.flatten().clone()
        )
        weight.grad = None
    return torch.cat(found)


def batch_of(policy: PolicyModel, groups: list[list[Sample]], settings: Update) -> UpdateBatch:
    """The samples with log-probabilities of an older policy, centred rewards as advantages, and what the settings need."""
    samples = [
        dataclasses.replace(s, logprobs=tuple(p + 0.3 * ((i + j) % 3 - 1) for j, p in enumerate(s.logprobs)))
        for i, s in enumerate(s for group in groups for s in group)
    ]
    values = [a for rewards in REWARDS for a in advantages.dr_grpo(rewards)]
    rows = [[a] * len(s.tokens) for a, s in zip(values, samples, strict=True)]
    reference = policy.reference_logprobs(samples) if settings.kl else None
    weights = policy._kl_weights(samples, settings.kl_power) if settings.kl else None
    batch = UpdateBatch(samples, rows, reference, kl_weights=weights).weigh(settings)
    if settings.loss in ("dro", "rebel"):
        batch = dataclasses.replace(batch, centres=policy._mean_log_ratios(batch, settings))
    return batch


SETTINGS = [
    Update(loss="cispo", clip_low=1.0, clip_high=0.1),
    Update(loss="ppo", clip_high=0.1, aggregation="sequence", kl=0.2, kl_estimator="k2"),
    Update(loss="importance", aggregation="constant", length=7, kl=0.2, kl_power=2.0),
    Update(loss="gspo", clip_low=0.5, clip_high=1.0, aggregation="sequence"),
    Update(loss="rebel", eta=0.5),
    Update(loss="dro", kl=0.4),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.loss}-{s.aggregation}")
def test_the_update_has_the_gradient_of_the_written_formula(
    policy: PolicyModel, groups: list[list[Sample]], settings: Update
) -> None:
    batch = batch_of(policy, groups, settings)
    found = one_gradient(policy, batch, settings)
    scores = score_tokens(policy.body, batch.samples)
    own, device = scores.own, "cpu"
    old = pad_rows([s.logprobs for s in batch.samples], device)
    given = pad_rows(batch.advantages, device)
    lengths = own.sum(1)
    if settings.loss in ("rebel", "dro"):
        start = old if settings.loss == "rebel" else pad_rows(batch.reference or [], device)
        ratios = ((scores.logprobs - start) * own).sum(1).reshape(2, 3)
        rewards = torch.tensor(REWARDS)
        if settings.loss == "rebel":  # over all pairs of each group, brought to a mean over texts
            one, two = torch.triu_indices(3, 3, 1)
            pairs = losses.rebel(ratios[:, one], ratios[:, two], rewards[:, one] - rewards[:, two], 0.5)
            loss = pairs.sum() / (2 * 3) / 6
        else:
            values = (rewards - 0.4 * ratios.detach()).mean(1, keepdim=True)
            loss = losses.dro(ratios, torch.zeros_like(ratios), rewards - values, 0.4).mean()
    else:
        per_token = {
            "cispo": lambda: losses.cispo(scores.logprobs, old, given, 1.0, 0.1),
            "ppo": lambda: losses.ppo(scores.logprobs, old, given, 0.2, 0.1),
            "gspo": lambda: losses.gspo(scores.logprobs, old, given, own, 0.5, 1.0),
            "importance": lambda: losses.importance(scores.logprobs, old, given),
        }[settings.loss]()
        if settings.kl:
            reference = pad_rows(batch.reference or [], device)
            weights = pad_rows(batch.kl_weights, device) if batch.kl_weights else torch.ones_like(own)
            per_token = per_token + settings.kl * weights * losses.kl(
                scores.logprobs, reference, settings.kl_estimator
            )
        by_text = (per_token * own).sum(1)
        loss = {
            "token": lambda: by_text.sum() / own.sum(),
            "sequence": lambda: (by_text / lengths).mean(),
            "constant": lambda: (by_text / 7).mean(),
        }[settings.aggregation]()
    expected = torch.autograd.grad(loss, list(policy.body.trainable.values()))
    assert found.abs().max() > 1e-4
    assert torch.allclose(found, torch.cat([g.flatten() for g in expected]), atol=1e-6)
    # In parts that fit a small memory, and as shares of two processes, the gradient is the same.
    assert torch.allclose(one_gradient(policy, batch, settings, tokens=1), found, atol=1e-6)
    shares = [batch.take([0, 3, 4], batch.tokens), batch.take([1, 2, 5], batch.tokens)]
    assert torch.allclose(sum(one_gradient(policy, share, settings) for share in shares), found, atol=1e-6)


def test_a_constant_divisor_gives_a_token_the_same_weight_in_short_and_long_texts(
    policy: PolicyModel,
) -> None:
    """The length bias of GRPO (Dr. GRPO, section 3.1): with the mean over each text a long wrong text is hardly blamed."""
    short, long = (Sample("", (5,), (7,) * n, (0.0,) * n, (True,) * n, True) for n in (1, 4))
    batch = UpdateBatch([short, long], [[1.0], [1.0] * 4])
    assert batch.weigh(Update(aggregation="constant", length=8)).weights == [1 / 16, 1 / 16]
    assert batch.weigh(Update(aggregation="sequence")).weights == [1 / 2, 1 / 8]
    assert batch.weigh(Update()).weights is None, "the mean over all tokens"


def test_dro_and_rebel_move_a_group_towards_its_better_texts(folder: Path) -> None:
    for settings in (Update(lr=0.01, loss="rebel"), Update(lr=0.01, loss="dro", kl=0.2)):
        learner = moved(folder)
        group = [
            dataclasses.replace(s, ended=True) for s in learner.sample([ASK], 6, max_tokens=4, seed=3)[0]
        ]
        values = advantages.dr_grpo([float(i) for i in range(6)])
        before = [sum(row) for row in learner._all.logprobs(group)]
        for _ in range(5):
            learner.update(group, values, settings)
        gains = [sum(row) - b for row, b in zip(learner._all.logprobs(group), before, strict=True)]
        assert sum(gains[3:]) > sum(gains[:3]) + 0.5


# Which texts


def test_masked_cut_texts_are_no_part_of_an_update_nor_of_the_comparison(folder: Path) -> None:
    whole, part = moved(folder), moved(folder)
    (group,) = whole.sample([ASK], 5, max_tokens=4, seed=3)
    ended = [True, False, True, True, False]
    group = [dataclasses.replace(s, ended=e) for s, e in zip(group, ended, strict=True)]
    rewards = [1.0, 5.0, 0.0, 0.5, -3.0]
    figures = Trainer(whole, Training(lr=0.01, truncated="mask")).learn([group], [rewards])
    kept = [i for i, e in enumerate(ended) if e]
    Trainer(part, Training(lr=0.01)).learn([[group[i] for i in kept]], [[rewards[i] for i in kept]])
    assert whole.save() == part.save()
    assert figures["truncated"] == 0.4 and figures["reward"] == pytest.approx(0.7), "of all texts"
    learning = moved(folder)
    Trainer(learning, Training(lr=0.01)).learn([group], [rewards])
    assert learning.save() != part.save()


def test_where_all_texts_were_cut_nothing_is_learned_and_the_figures_say_so(folder: Path) -> None:
    learner = moved(folder)
    before = learner.save()
    (group,) = learner.sample([ASK], 3, max_tokens=2, seed=3)
    group = [dataclasses.replace(s, ended=False) for s in group]
    figures = Trainer(learner, Training(truncated="mask")).learn([group], [[1.0, 0.0, 0.0]])
    assert learner.save() == before and figures["truncated"] == 1.0 and "loss" not in figures


async def test_remax_draws_the_greedy_text_as_the_last_of_a_group_and_does_not_learn_it(folder: Path) -> None:
    learner = moved(folder)
    trainer = Trainer(learner, Training(advantage="remax", group=4, max_tokens=5, lr=0.01))
    groups = await trainer.draw_groups(MemoryRun(seed=3), [ASK, SAY])
    assert [len(group) for group in groups] == [4, 4]
    ((greedy,), _) = learner.sample([ASK, SAY], 1, temperature=0.0, max_tokens=5)
    assert groups[0][-1].tokens == greedy.tokens
    other = moved(folder)
    trainer.learn(groups, [[1.0, 0.0, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0]])
    samples = [s for group in groups for s in group[:-1]]
    other.update(samples, [0.75, -0.25, -0.25, 0.0, 0.0, 1.0], trainer.config.update())
    assert learner.save() == other.save()


def test_one_text_of_each_question_is_enough_for_reinforce_pp_and_with_a_greedy_one_for_remax(
    policy: PolicyModel, folder: Path
) -> None:
    learner = moved(folder)
    before = learner.save()
    groups = [[s] for s in (one[0] for one in policy.sample([ASK, SAY], 1, max_tokens=5, seed=5))]
    config = Training(advantage="reinforce++", group=1)
    assert "loss" in Trainer(learner, config).learn(groups, [[1.0], [0.0]]) and learner.save() != before
    assert Training(advantage="remax", group=1).smallest_group == 2


def test_rto_rewards_better_texts_more_than_worse_ones_but_not_for_what_they_share(folder: Path) -> None:
    learner = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=0), seed=1)
    (first,) = learner.sample([ASK], 1, max_tokens=3, seed=3)[:1]
    better, worse = (
        dataclasses.replace(first[0], tokens=tokens, logprobs=(0.0,) * 3, own=(True,) * 3)
        for tokens in ((30, 31, 32), (30, 33, 32))
    )
    assert learner.token_log_ratios([better]) == [[0.0] * 3], "nothing is known before the first pairs"
    weights = learner.save()
    found = [learner.fit_token_reward([(better, worse)], lr=0.003) for _ in range(12)]
    assert found[0] == pytest.approx(0.693147, abs=1e-4) and found[-1] is not None and found[-1] < 0.6
    good, bad = learner.token_log_ratios([better, worse])
    assert sum(good) - sum(bad) > 1.0 and good[0] == pytest.approx(bad[0], abs=1e-4), (
        "what both share is no credit"
    )
    other = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=0), seed=1)
    other.load(weights)
    assert [w.tolist() for w in other.body.trainable.values()] == [
        w.tolist() for w in learner.body.trainable.values()
    ], "the policy's own weights stay"
    config = Training(advantage="reinforce++", rto=0.1)
    rows, _ = batch_token_advantages(config, learner, [[better, worse]], [[0.0, 0.0]])
    dense = [[0.1 * r for r in row] for row in (good, bad)]
    assert flat(rows) == pytest.approx(flat(advantages.reinforce_pp(dense)), abs=1e-5)


def test_token_rewards_begin_from_the_reference_that_a_warm_up_leaves(folder: Path) -> None:
    """Before any pair was learned from, pi_dpo is the reference: its log-ratios are 0, not those of the warm-up undone."""
    policy = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    policy.with_token_reward()
    policy.imitate([(ASK, "a b c")], Update(lr=0.05, epochs=20))
    policy.set_reference_policy()
    better, worse = policy.sample([ASK], 2, max_tokens=4, seed=3)[0]
    policy.fit_token_reward([(better, worse)], 1e-9)
    assert max(abs(r) for row in policy.token_log_ratios([better, worse]) for r in row) < 1e-3
    copy = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=2)
    copy.with_token_reward()
    copy.load(policy.save())
    assert copy.save() == policy.save()


def test_a_resumed_training_with_rto_is_the_uninterrupted_one_bit_for_bit(folder: Path) -> None:
    config = Training(advantage="gae", rto=0.1, lr=0.01, kl=0.05)

    def train(learner: PolicyModel, numbers: range) -> None:
        trainer = Trainer(learner, config)
        for number in numbers:
            group = learner.sample([ASK], 4, max_tokens=4, seed=number)
            figures = trainer.learn(group, [[float(i == number) for i in range(4)]])
            assert figures["dpo_loss"] > 0

    straight, stopped, resumed = (
        PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1) for _ in range(3)
    )
    train(straight, range(4))
    train(stopped, range(2))
    Trainer(resumed, config)
    resumed.load(stopped.save())
    train(resumed, range(2, 4))
    assert resumed.save() == straight.save()


REFUSED: list[tuple[type[Training], dict[str, Any], str]] = [
    (Training, {"loss": "rebel", "advantage": "gae"}, "advantage must be grpo, dr_grpo, rloo"),
    (Training, {"loss": "rebel", "minibatch": 4}, "minibatch must be 0"),
    (Training, {"loss": "dro"}, "kl must be above 0"),
    (Training, {"rto": 0.1}, "advantage must be one of gae, reinforce"),
    (Training, {"loss": "dro", "kl": 0.1, "kl_in": "reward"}, "kl_in auto or loss"),
    (MultiTurnTraining, {"loss": "rebel", "credit": "turn"}, "credit must be episode"),
    (MultiTurnTraining, {"advantage": "remax"}, "needs a greedy text"),
]


@pytest.mark.parametrize(("made", "settings", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_settings_that_exclude_each_other_are_refused(
    made: type[Training], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        made(**settings)


def test_a_method_that_takes_remax_draws_its_groups_with_the_greedy_text() -> None:
    """The baseline is the last text of a group: a method that draws groups in another way would take any text for it."""
    takes, refuses = set(), set()
    for name in METHODS:
        method = get_method(name)
        if not issubclass(method.config, Training):
            continue
        try:
            configure(method, {"advantage": "remax"})
        except UsageError:
            refuses.add(name)
        else:
            takes.add(name)
            assert "draw_groups(" in inspect.getsource(inspect.getmodule(method.coroutine) or method), name
    assert {"prewrite", "prl", "dsp", "retroformer"} <= takes and {
        "espl",
        "prompt_r1",
        "multiprompter",
    } <= refuses


def test_the_place_of_the_divergence_is_that_of_the_papers_unless_it_is_set(policy: PolicyModel) -> None:
    assert [Training(advantage=a).kl_in_reward for a in ("grpo", "rloo", "remax", "gae", "reinforce++")] == [
        False, False, False, True, True,
    ]  # fmt: skip
    moved_to_loss = Training(advantage="gae", kl=0.2, kl_in="loss")
    assert moved_to_loss.update().kl == 0.2
    (samples,) = policy.sample([ASK], 3, max_tokens=4, seed=9)
    assert "kl" not in token_advantages(moved_to_loss, policy, samples, [1.0, 0.0, 0.0])[1]
