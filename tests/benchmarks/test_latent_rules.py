"""The latent-rules world: a hundred rules that do not contradict one another, and figures that hold."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.latent_rules import build, reward
from benchmarks.simulated import load as simulated
from benchmarks.simulated.language import Stance, sentences
from benchmarks.simulated.page import obedient_page
from benchmarks.simulated.rules import RULES, SIZES, first, page_breaking, read, stances
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.meta_prompt import Config, meta_prompt
from whet.models.scripted import Scripted, load
from whet.rewards.program import load_program
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.task import load_task
from whet.testing.runs import MeteredRun
from whet.types import Message, Request, mean_score

ASKED = build.page_requests(0)[:20]
IDS = {rule.id for rule in RULES}


def broken(page: Any) -> set[str]:
    """Ids of the rules that a page breaks."""
    return {rule.id for rule in RULES if not rule.holds(page)}


# The rules.


def test_a_hundred_rules_in_nested_varied_sets() -> None:
    assert len(RULES) == len(IDS) == 100
    for small, large in itertools.pairwise(SIZES):
        assert first(large)[:small] == first(small)
    places = {rule.check.__module__ for rule in first(10)}
    assert len(places) == 10
    with pytest.raises(UsageError, match="1 to 100"):
        first(101)


@pytest.mark.parametrize("asked", ASKED)
def test_all_rules_can_be_obeyed_at_once(asked: str) -> None:
    assert broken(obedient_page(asked)) == set()


@pytest.mark.parametrize("asked", ASKED[:5])
def test_every_rule_can_be_broken_alone(asked: str) -> None:
    for rule in RULES:
        assert broken(page_breaking(asked, [rule.id])) == {rule.id}


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60), st.sets(st.sampled_from(sorted(IDS))))
def test_any_set_of_rules_can_be_broken(asked: str, wanted: set[str]) -> None:
    assert broken(page_breaking(asked, wanted)) == wanted


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["title", "meta"]), inner),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(JSON_VALUES, st.sampled_from([*obedient_page("")]))
def test_checks_decide_about_any_value(value: Any, key: str) -> None:
    broken(value)
    broken({**obedient_page(""), key: value})


def test_every_wording_states_its_rule_and_no_other() -> None:
    for rule in RULES:
        assert len(set(rule.wordings)) >= 4 and len(set(rule.critiques)) >= 3
        for wording in rule.wordings:
            assert sentences(wording) == [wording]
            assert stances(wording) == ((rule.id, Stance.STATED),), wording


def test_every_critique_is_about_its_rule_and_no_other() -> None:
    for rule in RULES:
        assert not set(rule.critiques) & set(rule.wordings)
        for critique in rule.critiques:
            assert read(critique) == rule.id and len(stances(critique)) == 1, critique
        moods = [stances(critique)[0][1] for critique in rule.critiques]
        assert moods == [Stance.HINT, Stance.HINT, Stance.STATED]


def test_the_prompt_says_nothing_about_any_rule() -> None:
    assert not [s for s in sentences(build.OUTSIDE + build.START) if stances(s)]


def test_every_page_fits_into_a_thousand_tokens() -> None:
    model = load("echo")
    for asked in ASKED:
        for wanted in (set(), IDS):
            text = json.dumps(page_breaking(asked, wanted), ensure_ascii=False, separators=(",", ":"))
            assert model.count_tokens(text) < 1000


# The reward.


def test_reward_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "RULES", 10)
    wanted = {rule.id for rule in first(10)[2:5]}
    page = json.dumps(page_breaking("A page for a zoo.", wanted | {RULES[50].id}))
    result = reward.reward({"id": "a"}, page)
    assert result["reward"] == result["rules_followed"] == pytest.approx(0.7)
    assert result["accuracy"] == 0
    assert {read(sentence) for sentence in sentences(result["critique"])} >= wanted
    assert result == reward.reward({"id": "a"}, page)
    fine = reward.reward({}, f"```json\n{json.dumps(obedient_page('x'))}\n```")
    assert fine == {"reward": 1.0, "accuracy": 1.0, "rules_followed": 1.0}
    monkeypatch.setattr(reward, "CRITIQUES", 1)
    assert len({read(s) for s in sentences(reward.reward({}, page)["critique"])} & wanted) == 1


@pytest.mark.parametrize("output", ["", "Sorry!", "[1]", '{"title": ', '"text"', "[" * 100_000])
def test_no_page_no_reward(output: str) -> None:
    result = reward.reward({}, output)
    assert result["reward"] == 0 and "JSON object" in result["critique"]


# The folder.


def test_the_folder_is_a_task_and_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one = build.build(tmp_path / "one", rules=25, seed=3)
    two = build.build(tmp_path / "two", rules=25, seed=3)
    other = build.build(tmp_path / "other", rules=25, seed=4)
    names = sorted(path.name for path in one.iterdir())
    assert names == ["prompt.md", "reward.py", "task.yaml", "test.jsonl", "train.jsonl", "validation.jsonl"]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)
    assert (one / "train.jsonl").read_bytes() != (other / "train.jsonl").read_bytes()
    task = load_task(one)
    assert (len(task.train), len(task.validation), len(task.test)) == (200, 60, 50)
    texts = [example.text for split in (task.train, task.validation, task.test) for example in split]
    assert len(set(texts)) == 310
    assert task.prompt.region_text() == build.START
    assert task.models["task"].address == "simulated/rules-generator?rules=25&seed=3"
    program = load_program(one / "reward.py")
    page = page_breaking("A page.", [rule.id for rule in first(25)[:5]])
    assert program({}, json.dumps(page))["reward"] == pytest.approx(0.8)


def test_the_command_line_writes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "task"
    build.main(["--rules", "10", "--critiques", "4", "--keys", "--out", str(out)])
    assert capsys.readouterr().out.strip() == str(out)
    assert "CRITIQUES = 4" in (out / "reward.py").read_text()
    assert '"skip_link":"text"' in (out / "prompt.md").read_text()


# The figures.


async def follow(model: Scripted, instructions: str, asked: list[str], rules: int) -> list[dict[str, Any]]:
    """Results of the reward for one page per request."""
    reward.RULES = rules
    results = []
    for text in asked:
        messages = (Message("system", build.OUTSIDE + instructions), Message("user", text))
        completion = (await model.generate(Request(messages, max_tokens=2048)))[0]
        results.append(reward.reward({}, completion.text))
    return results


def mean(results: list[dict[str, Any]], name: str) -> float:
    """Mean of one number of the results."""
    return float(np.mean([result[name] for result in results]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("rules", "base_share", "base_accuracy", "ceiling"),
    [(10, 0.70, 0.15, 0.975), (25, 0.52, 0.01, 0.955), (50, 0.35, 0.0, 0.93), (100, 0.15, 0.0, 0.865)],
)
async def test_baseline_and_ceiling(
    rules: int, base_share: float, base_accuracy: float, ceiling: float
) -> None:
    plain: list[dict[str, Any]] = []
    full: list[dict[str, Any]] = []
    for seed in range(3):
        model = simulated("rules-generator", {"rules": str(rules), "seed": str(seed)})
        asked = build.page_requests(seed)[:120]
        plain += await follow(model, build.START, asked, rules)
        full += await follow(model, build.stating_all(rules, seed), asked, rules)
    assert mean(plain, "reward") == pytest.approx(base_share, abs=0.04)
    assert mean(plain, "accuracy") == pytest.approx(base_accuracy, abs=0.05)
    assert mean(full, "accuracy") == pytest.approx(ceiling, abs=0.035)
    assert mean(full, "reward") > 0.99


async def rewritten(folder: Path, rules: int, task_calls: int) -> float:
    """Share of rules followed on sealed pages under the prompt that the one-call rewrite returns."""
    task = load_task(build.build(folder, rules, 0))
    generator = simulated("rules-generator", {"rules": str(rules)})
    env = Environment(generator, task.reward, task.train, task.validation)
    limits = Budget(task_calls=task_calls, optimizer_calls=30)
    run = MeteredRun({"task": generator, "optimizer": simulated("rules-optimizer")}, limits=limits)
    best = await meta_prompt(run, env, LanguagePolicy(), task.prompt, Config())
    assert run.spent["task"] <= task_calls and run.spent["optimizer"] <= 30
    return mean_score(await env.evaluate(run, best.prompt, task.test)).mean


async def test_one_call_rewriting_learns_few_rules(tmp_path: Path) -> None:
    assert await rewritten(tmp_path / "few", 10, 200) > 0.9


@pytest.mark.long
async def test_one_call_rewriting_saturates(tmp_path: Path) -> None:
    some, more = [await rewritten(tmp_path / f"{calls}", 100, calls) for calls in (200, 600)]
    assert 0.3 < some < 0.8 and 0.3 < more < 0.8
