"""Rewards from a task file, and the user's own program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whet.errors import UsageError
from whet.rewards import Gap, Perplexity, ProgramReward, RewardFailed, Weighted, build_reward
from whet.rewards.program import try_rewards
from whet.rewards.text import F1, Contains, ExactMatch, Regex
from whet.run import MemoryRun
from whet.types import Completion, Example, Reward


def program(folder: Path, body: str, options: dict[str, Any] | None = None) -> ProgramReward:
    (folder / "reward.py").write_text(f"def reward(example, output):\n{body}\n")
    built = build_reward({"program": options or {}}, folder, "task.yaml:4")
    assert isinstance(built, ProgramReward)
    return built


async def grade(reward: ProgramReward, row: dict[str, Any] | None = None, output: str = "x") -> Reward:
    return await reward.grade(MemoryRun(), Example("e", {}, None, row or {}), Completion(output))


@pytest.mark.parametrize(
    ("spec", "built"),
    [
        ("exact_match", ExactMatch()),
        ({"exact_match": {"strict": True}}, ExactMatch(strict=True)),
        ({"exact_match": None}, ExactMatch()),
        ({"name": "regex", "pattern": "a"}, Regex("a")),
        ({"regex": {"pattern": "a"}}, Regex("a")),
        ({"contains": {"text": "a"}}, Contains("a")),
        ({"gap": {"wrong": 1, "right": 2.5}}, Gap(1, 2.5)),
        (["f1", "perplexity"], Weighted([(1.0, F1()), (1.0, Perplexity())])),
        ([{"f1": 0.5}, {"perplexity": 2}], Weighted([(0.5, F1()), (2.0, Perplexity())])),
        ([{"regex": {"pattern": "a", "weight": 3}}], Weighted([(3.0, Regex("a"))])),
        ([{"name": "regex", "pattern": "a", "weight": 3}], Weighted([(3.0, Regex("a"))])),
        ([{"regex": {"pattern": "a"}, "weight": 3}], Weighted([(3.0, Regex("a"))])),
        ({"f1": 0.5}, Weighted([(0.5, F1())])),
    ],
)
def test_every_way_to_write_a_reward(spec: Any, built: Any, tmp_path: Path) -> None:
    assert build_reward(spec, tmp_path, "task.yaml:4") == built


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"exact_match": {"strict": "yes"}}, "strict of exact_match must be true or false; this is 'yes'"),
        ({"gap": {"wrong": True}}, "wrong of gap must be a finite number; this is True"),
        ({"gap": {"wrong": float("inf")}}, "must be a finite number; this is inf"),
        ({"gap": {"wrong": -1}}, "weights of gap must be above 0"),
        ({"likelihood": {"floor": 1}}, "floor of likelihood must be below 0"),
        ({"confidence": {"sure": 0}}, "sure is above 0 and at most 1; these are least=0.3, sure=0"),
        ({"contains": {"text": ""}}, "every answer contains that"),
        ({"a": {}, "b": {}}, "a reward is a name"),
        ([["f1"]], "a reward is a name"),
        ([{"f1": float("nan")}], "finite number other than 0; this is nan"),
        ([{"f1": {"weight": 1e308}}, {"contains": {"weight": 1e308}}], "from 1e-9 to 1e9"),
        ([{"f1": {"weight": "x"}}], "finite number other than 0; this is 'x'"),
        ([{"regex": 0.5}], "regex needs the option `pattern`"),
        ({"program": {"file": 5}}, "file name; this is 5"),
        ({"program": {"lo": 5}}, 'no option "lo". Did you mean "low"'),
        ({"program": {"low": "a"}}, "low < high; this is low='a'"),
        (None, "this is None"),
    ],
)
def test_what_cannot_be_built_is_refused_with_its_place(spec: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("def reward(example, output):\n    return 1\n")
    with pytest.raises(UsageError) as caught:
        build_reward(spec, tmp_path, "task.yaml:4")
    assert str(caught.value).startswith("task.yaml:4: ") and says in str(caught.value)


async def test_a_program_returns_a_number_or_a_dict(tmp_path: Path) -> None:
    assert await grade(program(tmp_path, "    return len(output) / 4"), output="ab") == Reward(0.5)
    assert await grade(program(tmp_path, "    return True")) == Reward(1.0)
    body = (
        "    return {'reward': 0.5, 'critique': ['too long', 'rude'], 'length': 3, 'note': 'x', 'ok': True}"
    )
    assert await grade(program(tmp_path, body)) == Reward(0.5, {"length": 3.0, "ok": 1.0}, "too long\nrude")


async def test_a_program_sees_the_whole_row_and_cannot_change_it(tmp_path: Path) -> None:
    row = {"id": "e", "input": {"q": "a"}, "meta": [1]}
    body = "    example['meta'].append(2)\n    return float(example['input']['q'] == 'a')"
    reward = program(tmp_path, body)
    assert (await grade(reward, row)).value == 1.0 and row["meta"] == [1]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("    return 1 / 0", "reward.py:2: ZeroDivisionError"),
        ("    return [][0]", "reward.py:2: IndexError"),
        ("    raise SystemExit(1)", "reward.py:2: SystemExit"),
        ("    return None", "returned None; expected a number"),
        ("    return '0.5'", "returned '0.5'; expected a number"),
        ("    return float('nan')", "returned nan"),
        ("    return 10 ** 400", "expected a number"),
        ("    return {'points': 1}", "expected a number or a dict with `reward`"),
        ("    return 1.5", "returned 1.5, outside [0, 1]; state the range"),
        (
            "    return 1.0001",
            "returned 1.0001, outside [0, 1]. If it was rounded or added up, return min(1.0, max(0.0, value))",
        ),
        (
            "    return {'reward': 0.4, 'total': -0.3, 'score': 1}['total'] / 100",
            "returned -0.003, outside [0, 1]. If it was",
        ),
        ("    return {'reward': 1, 'critique': 5}", "returned 5 as the critique; expected a text"),
        ("    return {'reward': 1, 'critique': ['rude', 5]}", "as the critique; expected a text"),
        ("    return {'reward': 1, 'critique': {'plan': 5}}", "as the critique; expected a text"),
    ],
)
async def test_a_failing_program_is_a_failed_rollout(body: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(RewardFailed) as caught:
        await grade(program(tmp_path, body))
    assert says in str(caught.value)


async def test_what_a_program_returns_beside_numbers_and_critiques_is_said(tmp_path: Path) -> None:
    body = "    return {'reward': float(output == example['target']), 'note': 'rude', 'share': float('nan'), 'none': None}"
    rows = [Example(str(i), {}, f"t{i}", {"target": f"t{i}"}) for i in range(3)]
    reward = program(tmp_path, body)
    assert isinstance(reward, ProgramReward)
    (warning,) = await try_rewards([reward], rows)
    assert "returns note='rude', share=nan, which is dropped" in warning and "under `critique`" in warning
    assert "none" not in warning
    usual = program(
        tmp_path, "    return {'reward': float(output == example['target']), 'critique': {'plan': ['a']}}"
    )
    assert isinstance(usual, ProgramReward) and await try_rewards([usual], rows) == []


async def test_a_program_may_have_its_own_range_and_file(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("def reward(example, output):\n    return -3\n")
    for spec in (
        {"program": {"file": "score.py", "low": -5, "high": 0}},
        {"score.py": {"low": -5, "high": 0}},
    ):
        reward = build_reward(spec, tmp_path, "task.yaml:4")
        assert isinstance(reward, ProgramReward)
        assert (reward.low, reward.high, (await grade(reward)).value) == (-5.0, 0.0, -3.0)


async def test_a_rewritten_program_is_read_again(tmp_path: Path) -> None:
    assert (await grade(program(tmp_path, "    return 0.0"))).value == 0.0
    assert (await grade(program(tmp_path, "    return 1.0"))).value == 1.0


async def test_a_program_prints_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await grade(program(tmp_path, "    print('hello')\n    return 1.0"))
    assert capsys.readouterr() == ("", "hello\n")


def test_a_program_that_calls_itself_forever_is_refused_or_fails_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("def f():\n    f()\nf()\n")
    with pytest.raises(UsageError, match=r"reward\.py:2: the file does not load: RecursionError"):
        build_reward("reward.py", tmp_path, "task.yaml:4")
