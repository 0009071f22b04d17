"""The token policy: its losses by hand, what is frozen, what is computed once, and that a resume is exact."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load  # noqa: E402
from tests.rl.tiny import TinyBody  # noqa: E402

from whet.errors import UsageError  # noqa: E402
from whet.rl.network import Adam  # noqa: E402
from whet.rl.token_policy import TokenPolicy, TokenPolicySettings, centre_values, path_consistency  # noqa: E402

SETTINGS = TokenPolicySettings(length=3, vocabulary=150, top_k=150, hidden=64)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny networks gain nothing from threads and lose much when the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def policy(
    body: TinyBody | None = None, settings: TokenPolicySettings = SETTINGS, seed: int = 1
) -> TokenPolicy:
    return TokenPolicy(body or TinyBody(), settings, seed)


def train(learner: TokenPolicy, steps: range) -> None:
    """Reward the number of even words."""
    for step in steps:
        prompts = learner.sample(6, seed=step)
        learner.update(prompts, [sum(1.0 for w in words if w % 2 == 0) - 1.5 for words in prompts], 0.7)
        learner.notes["step"] = step


def test_losses_by_hand() -> None:
    # T = 2, log-probabilities -1 and -2, values 3 and 1, reward 4:
    # single: (-1 - (1 - 3))^2 + (-2 - (4 - 1))^2 = 1 + 25; multi: (-3 - (4 - 3))^2 + (-2 - (4 - 1))^2 = 16 + 25
    # T = 2, consistent: log-probabilities equal to every difference of values, so both losses are 0
    log_probs = torch.tensor([[-1.0, -2.0], [-2.0, -1.0]])
    values = torch.tensor([[3.0, 1.0], [5.0, 3.0]])
    single, multi = path_consistency(log_probs, values, torch.tensor([4.0, 2.0]))
    assert single.tolist() == [26.0, 0.0]
    assert multi.tolist() == [41.0, 0.0]


def test_gradient_of_the_losses_by_hand() -> None:
    # d single / d A_2 = 2 (-5) = -10; d multi / d A_2 = 2 (-4) + 2 (-5) = -18, d multi / d A_1 = 2 (-4)
    log_probs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    single, multi = path_consistency(log_probs, torch.tensor([[3.0, 1.0]]), torch.tensor([4.0]))
    assert torch.autograd.grad(single.sum(), log_probs)[0].tolist() == [[2.0, -10.0]]
    assert torch.autograd.grad(multi.sum(), log_probs)[0].tolist() == [[-8.0, -18.0]]


def test_centred_values_leave_a_mean_residual_of_zero() -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs, values = -torch.rand(2, 16, 5, generator=generator)
    rewards = torch.randn(16, generator=generator)
    moved = centre_values(log_probs, values, rewards)
    to_go = log_probs.flip(1).cumsum(1).flip(1)
    assert torch.allclose((to_go - (rewards[:, None] - moved)).mean(0), torch.zeros(5), atol=1e-6)
    assert torch.allclose((moved - values).std(0), torch.zeros(5), atol=1e-6), "one number per place"


def test_without_centring_the_loss_is_path_consistency_on_the_targets_own_values() -> None:
    """The first step from the uniform policy, against torch: A = -log V, values log V, rewards as they are."""
    prompts, rewards, size = [[1, 2, 3], [4, 5, 6]], [2.0, -1.0], 150
    plain = policy(settings=dataclasses.replace(SETTINGS, centre=False))
    weights = {name: w.clone().requires_grad_() for name, w in plain._weights.items()}
    visits = plain._visits(torch.tensor(prompts))
    taken = plain._soft_q(weights, visits.states).log_softmax(-1)[visits.place, torch.tensor(prompts)]
    value = plain._soft_q(plain._target, visits.states).logsumexp(-1)[visits.place].detach()
    assert torch.allclose(value, torch.full((2, 3), math.log(size)), atol=1e-2)
    reward = torch.tensor(rewards)
    loss = torch.zeros(())
    for i in range(2):
        for t in range(3):
            ahead = value[i, t + 1] if t < 2 else reward[i]
            loss = loss + (taken[i, t] - (ahead - value[i, t])) ** 2 / 4
            loss = loss + (taken[i, t:].sum() - (reward[i] - value[i, t])) ** 2 / 4
    names = list(weights)
    expected = dict(zip(names, torch.autograd.grad(loss, list(weights.values())), strict=True))
    given: list[list[torch.Tensor]] = []
    plain._adam.step = lambda gradients, clip: given.append(list(gradients))  # type: ignore[method-assign]
    plain.update(prompts, rewards, 1.0)
    for name, gradient in zip(plain._weights, given[0], strict=True):
        assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-6), name
    assert plain.places(plain.text([3, 1, 2])) == [3, 1, 2]


def test_begins_uniform() -> None:
    learner = policy()
    entropy = learner.update(learner.sample(4, 0), [0.0] * 4, 1.0)
    assert entropy == pytest.approx(math.log(150), abs=1e-4)


def test_only_the_mlp_is_trained_and_has_a_target() -> None:
    body = TinyBody()
    frozen = body.embeddings.clone()
    learner = policy(body)
    weights = [f"{layer}.{kind}" for layer in ("first", "second") for kind in ("weight", "bias")]
    saved = load(learner.save())
    assert sorted(saved) == sorted(
        [f"{part}/{w}" for part in ("weights", "target", "mean", "square") for w in weights]
    )
    train(learner, range(1))
    after_one = load(learner.save())
    train(learner, range(1, 2))
    after_two = load(learner.save())
    assert torch.equal(body.embeddings, frozen)
    for name in weights:
        start, first = saved[f"weights/{name}"], after_one[f"weights/{name}"]
        assert torch.equal(after_one[f"target/{name}"], start), "the target moves before the weights do"
        assert torch.allclose(after_two[f"target/{name}"], start + 0.05 * (first - start), atol=1e-9)


def test_every_state_is_encoded_once() -> None:
    body = TinyBody()
    learner = policy(body)
    for step in range(4):
        prompts = learner.sample(6, seed=step)
        asked = len(body.asked)
        learner.update(prompts, [float(i) for i in range(6)], 1.0)
        assert len(body.asked) == asked, "loss and target reuse the states of the sample"
    learner.greedy()
    assert [shape for shape in body.asked if shape[1] == 0] == [(1, 0)], "the start state is encoded once"
    assert len(body.asked) == 1 + 5 * 2, "one call for each later place of a sample or greedy prompt"


def test_a_prefix_that_occurs_twice_is_encoded_once() -> None:
    body = TinyBody()
    learner = policy(body)
    learner.update([[1, 2, 3], [1, 2, 4], [1, 5, 6]], [0.0, 1.0, 2.0], 1.0)
    assert body.asked == [(1, 0), (1, 1), (2, 2)]


def test_sampling_depends_on_weights_and_seed_alone() -> None:
    torch.manual_seed(0)
    chance = torch.get_rng_state()
    learner = policy()
    first = learner.sample(5, seed=3)
    assert learner.sample(5, seed=4) != first
    assert learner.sample(5, seed=3) == first == policy().sample(5, seed=3)
    assert torch.equal(torch.get_rng_state(), chance), "the program's own generator is left alone"


def test_sampling_is_cut_to_the_likeliest_words() -> None:
    learner = policy(settings=TokenPolicySettings(length=3, vocabulary=150, top_k=1, hidden=64))
    train(learner, range(3))
    assert learner.sample(4, seed=0) == [learner.greedy()] * 4


def test_wished_words_come_first_and_unknown_ones_are_left_out() -> None:
    body = TinyBody()
    wished = [body.all[180], "nobody", body.all[3], body.all[180]]
    learner = TokenPolicy(body, TokenPolicySettings(length=2, vocabulary=5, hidden=8), 0, wished)
    assert learner.words == [body.all[180], body.all[3], *(body.all[i] for i in (0, 1, 2))]
    assert learner.text([0, 4]) == f"{body.all[180]} {body.all[2]}"
    with pytest.raises(UsageError, match="200 words"):
        policy(settings=TokenPolicySettings(vocabulary=201))


def test_ten_steps_are_five_steps_saved_loaded_and_five_more() -> None:
    whole = policy()
    train(whole, range(10))
    half = policy()
    train(half, range(5))
    rest = policy(seed=99)
    rest.load(half.save())
    assert rest.save() == half.save()
    train(rest, range(5, 10))
    assert rest.notes == {"step": 9}
    assert rest.save() == whole.save()
    assert rest.greedy() == whole.greedy()


def test_loading_goes_back() -> None:
    learner = policy()
    blob = learner.save()
    train(learner, range(3))
    learner.load(blob)
    assert learner.save() == blob
    train(learner, range(3))
    fresh = policy()
    train(fresh, range(3))
    assert learner.save() == fresh.save()


def test_prompts_that_were_sampled_before_a_resume_give_the_same_update() -> None:
    sampled, told = policy(), policy()
    prompts = sampled.sample(6, seed=0)
    for learner in (sampled, told):
        learner.update(prompts, [1.0, -1.0, 0.5, 0.0, 2.0, -2.0], 1.0)
    assert sampled.save() == told.save()


def test_adam_steps_like_the_reference() -> None:
    generator = torch.Generator().manual_seed(2)
    start = torch.randn(4, 3, generator=generator)
    ours, theirs = start.clone(), torch.nn.Parameter(start.clone())
    adam, reference = Adam({"w": ours}, 0.01), torch.optim.Adam([theirs], lr=0.01)
    for scale in (0.1, 1.0, 100.0, 1e-3, 5.0):
        gradient = scale * torch.randn(4, 3, generator=generator)
        adam.step([gradient], clip=5.0)
        theirs.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_([theirs], 5.0)
        reference.step()
        assert torch.allclose(ours, theirs, atol=1e-7)


def test_learns_what_is_rewarded() -> None:
    learner = policy(settings=TokenPolicySettings(length=3, vocabulary=20, top_k=20, hidden=64, lr=3e-3))
    for step in range(80):
        prompts = learner.sample(8, seed=step)
        learner.update(prompts, [5.0 * (words[0] == 4) + 5.0 * (words[2] == 9) for words in prompts], 0.5)
    greedy = learner.greedy()
    assert (greedy[0], greedy[2]) == (4, 9)
