"""The actor-critic that edits prompts: what it sees, its update against plain arithmetic, and resumes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.rl.editable import START, WIDTH, WORDS, two_kinds  # noqa: E402

from whet.errors import UsageError  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.rl import prompt_editor  # noqa: E402
from whet.rl.edit_space import KINDS, Action, Space  # noqa: E402
from whet.rl.prompt_editor import (  # noqa: E402
    EditEpisode,
    EditorSettings,
    Observer,
    PromptEditor,
)

SETTINGS = EditorSettings(edits=3, lr=0.01, width=16, layers=1, minibatches=2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def observer(shots: int = 1, pool: int = 3) -> Observer:
    env: Any = two_kinds()
    space = Space.of(Prompt.parse(START), env, env.train[:pool], shots, [WORDS.split(",")], ["now", "then"])
    return Observer(space, env.model.embed)


def editor(seed: int = 1, settings: EditorSettings = SETTINGS) -> PromptEditor:
    return PromptEditor(3 * WIDTH, settings, seed)


def episodes(seen: Observer, policy: PromptEditor, n: int = 6) -> list[EditEpisode]:
    """Edits by chance; the action that takes the other words is rewarded for inputs of the night."""
    space, found = seen.space, []
    for i in range(n):
        text = f"{('day', 'night')[i % 2]} yes {i}"
        states, taken, rewards = [space.first()], [], []
        for t in range(3):
            (edit,) = policy.sample(seen, [states[-1]], [text], 10 * i + t)
            taken.append(edit)
            state = space.after(states[-1], edit.action)
            rewards.append(float(state.words == 1) - float(states[-1].words == 1))
            if state.stopped:
                break
            states.append(state)
        columns = [[getattr(edit, name) for edit in taken] for name in ("action", "logprob", "value")]
        found.append(EditEpisode(text, states[: len(taken)], columns[0], rewards, *columns[1:]))
    return found


def test_blocks_hold_item_input_and_their_product() -> None:
    seen = observer()
    found = seen.see([seen.space.first()] * 2, ["day yes 7", "night no 8"])
    # the input, 3 demonstrations, 2 sets of words, 2 phrases of its own and 2 that may be added
    assert found.blocks.shape == (2, 10, 3 * WIDTH)
    query = two_kinds().model.embed(["day yes 7"])[0]  # type: ignore[attr-defined]
    item, shown, product = found.blocks[0, 1].split(WIDTH)
    assert torch.equal(shown, query) and torch.equal(product, item * query)
    assert torch.equal(found.blocks[0, 0, :WIDTH], query)


def test_kinds_say_what_a_block_is_and_whether_it_is_in_the_prompt() -> None:
    seen = observer()
    space = seen.space
    state = space.first()
    for action in (Action("exchange", 0, 2), Action("words", 1), Action("keep", 1), Action("turn", 0, 1)):
        state = space.after(state, space.actions.index(action))
    found = seen.see([state], ["day yes 7"])
    on = [True, True, False, False, False, True, True, False, False, False]
    roles = [
        prompt_editor.QUERY,
        *[prompt_editor.EXAMPLE] * 3,
        *[prompt_editor.WORDS] * 2,
        *[prompt_editor.PHRASE] * 4,
    ]
    assert found.kinds[0].tolist() == [2 * role + shown for role, shown in zip(roles, on, strict=True)]
    assert found.places[0].tolist() == [0, 0, 1, 2, 0, 1, 1, 0, 2, 3], "the two phrases have changed places"
    first = seen.see([space.first()], ["day yes 7"])
    assert torch.equal(found.blocks[0, 1], first.blocks[0, 3]), "the exchanged demonstration"
    assert found.edits.tolist() == [4.0]


def test_actions_name_the_blocks_that_they_concern() -> None:
    seen = observer()
    concerned = dict(zip(seen.space.actions, seen.concerned.tolist(), strict=True))
    number = {kind: i for i, kind in enumerate(KINDS)}
    assert concerned[Action("stop")] == [number["stop"], 0, 0]
    assert concerned[Action("exchange", 0, 2)] == [number["exchange"], 1, 3]
    assert concerned[Action("words", 1)] == [number["words"], 5, 5]
    assert concerned[Action("keep", 2)] == [number["keep"], 8, 8]
    assert concerned[Action("turn", 0, 1)] == [number["turn"], 6, 7]


def test_each_text_is_embedded_once() -> None:
    env: Any = two_kinds()
    space = Space.of(Prompt.parse(START), env, env.train[:2], 1, [], [])
    seen = Observer(space, env.model.embed)
    before = env.model.embedded
    for _ in range(3):
        seen.see([space.first()] * 3, ["a", "b", "a"])
    assert env.model.embedded == before + 2


def test_all_allowed_actions_are_nearly_alike_at_first_and_others_never_drawn() -> None:
    seen, policy = observer(), editor()
    space = seen.space
    state = space.first()
    drawn = {policy.sample(seen, [state], ["day yes 7"], seed)[0].action for seed in range(200)}
    allowed = {i for i, may in enumerate(space.mask_actions(state)) if may}
    assert drawn == allowed < set(range(len(space.actions)))


def test_the_seed_of_a_sample_is_all_its_chance() -> None:
    seen, policy = observer(), editor()
    states = [seen.space.first()] * 8
    texts = [f"day yes {i}" for i in range(8)]
    assert policy.sample(seen, states, texts, 5) == policy.sample(seen, states, texts, 5)
    assert len({tuple(policy.sample(seen, states, texts, seed)) for seed in range(5)}) > 1


def test_an_update_without_reward_changes_no_preference_but_the_bonus_does() -> None:
    """All rewards zero and a critic that says zero: advantages are zero, only entropy is left to pull."""
    seen = observer()
    policy = editor(settings=dataclasses.replace(SETTINGS, entropy=0.0, value=0.0))
    flat = [
        dataclasses.replace(e, rewards=[0.0] * len(e.rewards), values=[0.0] * len(e.rewards))
        for e in episodes(seen, policy)
    ]
    before = [w.clone() for w in policy._weights.values()]
    policy.update(seen, flat, 0)
    assert all(torch.equal(a, b) for a, b in zip(before, policy._weights.values(), strict=True))


def test_the_normaliser_knows_mean_and_deviation_of_all_it_saw() -> None:
    seen, policy = observer(), editor()
    rows = []
    for part in (episodes(seen, policy, 2), episodes(seen, policy, 5)):
        states = [state for e in part for state in e.states]
        rows.append(seen.see(states, [e.text for e in part for _ in e.states]).blocks.flatten(0, 1))
        policy.update(seen, part, 0)
    everything = torch.cat(rows)
    assert torch.allclose(policy._norm["mean"], everything.mean(0), atol=1e-5)
    assert torch.allclose(policy._norm["square"], everything.square().mean(0), atol=1e-4)
    assert float(policy._norm["count"]) == len(everything)


@pytest.mark.parametrize(("shift", "clipped"), [(1.0, 1.0), (-1.0, 1.0), (0.0, 0.0)])
def test_the_old_policy_is_the_one_that_was_recorded_at_sampling(shift: float, clipped: float) -> None:
    """Recorded log-probabilities that are off by 1 make every ratio e or 1/e at the first step, outside of the clip."""
    seen, policy = observer(), editor(settings=dataclasses.replace(SETTINGS, epochs=1, minibatches=1))
    recorded = episodes(seen, policy)
    moved = [dataclasses.replace(e, logprobs=[p + shift for p in e.logprobs]) for e in recorded]
    assert policy.update(seen, moved, 0)["clipped"] == clipped


def test_advantages_and_returns_by_hand() -> None:
    """Two episodes, gamma .999, lambda 1, critic 0: returns are discounted sums, advantages are standardised."""
    policy = editor(settings=dataclasses.replace(SETTINGS, lam=1.0))
    state = observer().space.first()
    first = EditEpisode("a", [state] * 2, [0, 0], [1.0, 2.0], [0.0] * 2, [0.0] * 2)
    advantages, returns = policy._advantages([first, EditEpisode("b", [state], [0], [-1.0], [0.0], [0.0])])
    assert returns.tolist() == pytest.approx([1 + 0.999 * 2, 2.0, -1.0])
    assert float(advantages.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(advantages.std(correction=0)) == pytest.approx(1.0, abs=1e-5)


def test_the_value_loss_is_clipped() -> None:
    policy = editor()
    values, before, returns = torch.tensor([1.0, 0.1]), torch.zeros(2), torch.tensor([1.0, 1.0])
    # first: the clipped value 0.2 is farther from 1 than 1 is: (0.8)^2; second: not clipped: 0.9^2
    assert float(policy._value_loss(values, before, returns)) == pytest.approx(0.5 * (0.64 + 0.81) / 2)


@pytest.mark.long
def test_what_is_rewarded_becomes_likelier_where_it_is_rewarded() -> None:
    """Taking the other words pays at night and costs by day; the editor sees in the input which it is."""
    seen, policy = observer(), editor(settings=dataclasses.replace(SETTINGS, edits=1))
    space = seen.space
    action = space.actions.index(Action("words", 1))
    stop = 0
    for round_ in range(40):
        made = []
        rows = [f"{('day', 'night')[i % 2]} yes {16 * round_ + i}" for i in range(16)]
        logits, values = policy._judge(seen, seen.see([space.first()] * len(rows), rows))
        logprobs, values = logits.log_softmax(-1).detach(), values.detach()
        for i, text in enumerate(rows):
            taken = action if (i // 2) % 2 else stop
            worth = (1.0 if i % 2 else -1.0) if taken == action else 0.0
            known = [float(logprobs[i, taken])], [float(values[i])]
            made.append(EditEpisode(text, [space.first()], [taken], [worth], *known))
        policy.update(seen, made, round_)
    texts = [f"{kind} no {i}" for i in range(10) for kind in ("day", "night")]
    chosen = [state.words for state in policy.greedy(seen, texts)]
    assert sum(chosen[1::2]) >= 9 and sum(chosen[::2]) <= 1


def test_a_resume_goes_on_bit_for_bit() -> None:
    seen = observer()

    def trained(policy: PromptEditor, rounds: range) -> PromptEditor:
        for number in rounds:
            policy.update(seen, episodes(seen, policy), number)
        return policy

    whole = trained(editor(), range(6))
    half = trained(editor(), range(3))
    half.notes["pool"] = ["row-1"]
    resumed = editor(seed=9)
    resumed.load(half.save())
    assert resumed.notes == {"pool": ["row-1"]}
    resumed.notes = {}
    assert trained(resumed, range(3, 6)).save() == whole.save()
    with pytest.raises(UsageError, match="does not fit"):
        PromptEditor(3 * WIDTH + 3, SETTINGS, 1).load(whole.save())
