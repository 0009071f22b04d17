"""The world of many voices: comments that never state a rule, a checker, simulated models, and the truth about a prompt."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from benchmarks.voices import run
from benchmarks.voices.naive import naive, requirements
from benchmarks.voices.optimizer import FORMS, REFUSAL, Habits, Optimizer, vague_line
from benchmarks.voices.server import Endpoint, load, serving
from benchmarks.voices.truth import Truth, truth
from benchmarks.voices.world import OUTSIDE, START, Reader, Setting, World, normal

BOOK = load()
READER = Reader(BOOK)
WORLD = World(BOOK)
FAULTLESS = Habits(drop=0, prose=0, thought=0, cut=0, repeat=0, refuse=0, empty=0, again=0, forget=0)
ALL = [rule.wordings[0] for rule in WORLD.rules]


def prompt(*lines: str) -> str:
    """A prompt with the lines as its instructions."""
    return "\n".join([OUTSIDE, START, *(f"- {line}" for line in lines)])


def share(text: str, world: World = WORLD, letters: int = 200) -> float:
    """Share of rules that the simulated task model keeps."""
    rows = [world.letter(number) for number in range(letters)]
    broken = sum(len(world.broken_rules(world.answer(text, row["input"]))) for row in rows)
    return 1 - broken / letters / len(world.rules)


def comment(kind: str, rule: str = "", language: str = "en") -> str:
    """Some comment of a kind, about a rule."""
    return next(
        c.text
        for c in BOOK.comments
        if (c.kind, c.rule, c.language) == (kind, rule, language) and "{" not in c.text
    )


def optimizer(**habits: Any) -> Optimizer:
    """An optimizer with no habits but these."""
    return Optimizer(WORLD, dataclasses.replace(FAULTLESS, **habits))


def reading(critiques: list[str], **known: str) -> str:
    """A request to read critiques."""
    return "\n".join(
        [
            f"Text around the fence: {OUTSIDE}",
            "# In force",
            *(f"[{name}] {text}" for name, text in known.items()),
            "# Critiques",
            *(f"{number}. {text}" for number, text in enumerate(critiques, 1)),
            'Answer with JSON: {"requirements": [], "no_demand": [], "vague": [], "to_the_reader": []}',
        ]
    )


def answered(model: Optimizer, request: str) -> dict[str, Any]:
    """The JSON of a reply without any habit of wrapping."""
    reply, ended = model(request)
    assert ended == "stop"
    return json.loads(reply)


# The texts.


def test_each_rule_has_comments_in_several_voices_and_languages() -> None:
    assert len(BOOK.rules) == 40
    for key in BOOK.rules:
        mine = [c for c in BOOK.comments if (c.kind, c.rule) == ("rule", key)]
        assert len({c.text for c in mine}) >= 10
        assert {c.language for c in mine} == {"en", "de", "es", "made-up"}
        assert len({c.voice for c in mine}) >= 5
    voices = {"terse", "rambling", "sarcastic", "question", "wish", "misspelt", "anecdote"}
    assert {c.voice for c in BOOK.comments} == voices
    assert {c.kind for c in BOOK.comments} == {"rule", "contrary", "praise", "spam", "command", "vague"}


def test_no_comment_states_a_rule() -> None:
    wordings = [set(normal(text).split()) for rule in BOOK.rules.values() for text in rule.wordings]
    for c in BOOK.comments:
        assert not WORLD.states(c.text), c
        words = set(normal(c.text).split())
        assert max(len(words & wording) / len(words | wording) for wording in wordings) < 0.35, c


def test_a_wording_states_its_rule_and_no_other() -> None:
    for key, rule in BOOK.rules.items():
        assert len(rule.wordings) == 3
        assert {WORLD.states(f"- {text}") for text in rule.wordings} == {((key, 1),)}
        assert {WORLD.states(f"* {text}") for text in rule.opposites} == {((key, -1),)}
    assert WORLD.states("Avoid this: keep the answer short.") == (("length", -1),)
    both = WORLD.states("Do not use web links. Keep the answer short.")
    assert set(both) == {("links", 1), ("length", 1)}


def test_the_reader_understands_every_comment_also_cut_and_several_at_once() -> None:
    for c in BOOK.comments:
        text = c.text.format(name="Rossi", day="3.7.", ref="FH-1234") if "{" in c.text else c.text
        assert [(m.kind, m.rule) for m in READER(f"> {text} (4)")] == [(c.kind, c.rule)], c
    first, second = comment("rule", "snow"), comment("rule", "bus", "de")
    assert [m.rule for m in READER(f"{first} {second}")] == ["snow", "bus"]
    cut = "We strolled in at half past eight, the kitchen was dark"
    assert [m.rule for m in READER(cut)] == ["arrival"]
    assert READER("Something else entirely was written here.") == ()


# The task model, the checker and the guests.


def test_the_task_model_obeys_what_the_prompt_states() -> None:
    assert share(prompt()) < 0.15
    assert share(prompt(*ALL)) == pytest.approx(0.997, abs=0.004)
    assert share(prompt(*(rule.opposites[0] for rule in WORLD.rules))) < 0.04
    assert share(prompt(*ALL, *(rule.opposites[0] for rule in WORLD.rules))) == pytest.approx(0.5, abs=0.03)
    assert share(prompt(*ALL, *["The hut was built a long time ago by hand."] * 300)) < 0.9
    assert share(prompt(*(comment("rule", rule.key) for rule in WORLD.rules))) < 0.15


def test_the_checker_reads_the_plan() -> None:
    perfect = "\n".join(f"{rule.key}: {rule.keep}" for rule in WORLD.rules)
    row = WORLD.letter(0)
    assert WORLD.judge(row, perfect)["accuracy"] == WORLD.judge(row, perfect)["reward"] == 1
    lines = perfect.splitlines()
    assert [rule.key for rule in WORLD.broken_rules("\n".join(lines[1:]))] == [WORLD.rules[0].key]
    assert WORLD.judge(row, "\n".join(lines[1:]))["reward"] == pytest.approx(39 / 40)
    assert WORLD.judge(row, "Sure, happy to help!")["reward"] == 0


def test_subsets_of_rules_are_drawn_by_the_seed() -> None:
    drawn = [tuple(r.key for r in World(BOOK, Setting(rules=10, seed=seed)).rules) for seed in (0, 0, 1)]
    assert len(drawn[0]) == 10
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("one", [1, 3])
def test_guests_comment_on_broken_rules_and_one_in_ten_makes_no_demand(one: int) -> None:
    world = World(BOOK, Setting(one=one))
    kinds: Counter[str] = Counter()
    for number in range(1500 // one):
        row = world.letter(number)
        answer = world.answer(prompt(*ALL[:20]), row["input"])
        broken = {rule.key for rule in world.broken_rules(answer)}
        comments = world.comments(row, answer)
        assert len(comments) == one
        assert comments == world.comments(row, answer)
        for text in comments:
            [meaning] = READER(text)
            assert meaning.kind != "rule" or meaning.rule in broken
            kinds[meaning.kind] += 1
    assert 0.08 < 1 - kinds["rule"] / kinds.total() < 0.12
    assert set(kinds) == {"rule", "praise", "spam", "command"}


def test_vague_and_contradicting_guests() -> None:
    world = World(BOOK, Setting(vague=0.1, contradict=0.1))
    wants: Counter[tuple[str, str]] = Counter()
    for prefix in (prompt(), prompt(*ALL)):
        for number in range(1500):
            row = world.letter(number)
            for text in world.comments(row, world.answer(prefix, row["input"])):
                [meaning] = READER(text)
                wants[meaning.kind, meaning.rule] += 1
    contested = [rule for kind, rule in wants if kind == "contrary"]
    assert len(contested) >= 10
    assert all(wants["rule", rule] > wants["contrary", rule] for rule in contested)
    assert wants["vague", ""] == pytest.approx(1500 * 0.9 * 0.1, rel=0.25)


# The optimizer model.


def test_it_reads_critiques_in_the_form_of_the_contract() -> None:
    critiques = [
        comment("rule", "snow"),
        comment("praise"),
        comment("rule", "bus", "de"),
        comment("rule", "snow", "made-up"),
        comment("command"),
        comment("vague"),
        comment("contrary", "length"),
        comment("rule", "map", "es"),
    ]
    known = {
        "i1": BOOK.rules["bus"].wordings[1],
        "r7": BOOK.rules["length"].wordings[2],
        "i3": vague_line("maps"),
    }
    value = answered(optimizer(), reading(critiques, **known))
    assert (value["no_demand"], value["vague"], value["to_the_reader"]) == ([2], [6], [5])
    by = {tuple(r["critiques"]): r for r in value["requirements"]}
    assert by[1, 4]["instruction"] in BOOK.rules["snow"].wordings
    assert by[1, 4]["existing"] is by[1, 4]["contradicts"] is None
    assert (by[3,]["existing"], by[3,]["instruction"]) == ("i1", None)
    assert by[7,]["instruction"] in BOOK.rules["length"].opposites
    assert by[7,]["contradicts"] == "r7"
    assert by[8,]["existing"] == "i3" or by[8,]["instruction"] in BOOK.rules["map"].wordings


MANY = [comment("rule", key) for key in BOOK.rules]


@pytest.mark.parametrize("numbers", ["right", "off", "none"])
def test_its_numbers(numbers: str) -> None:
    request = reading(MANY[:10])
    value = answered(optimizer(numbers=numbers), request)
    named = [n for requirement in value["requirements"] for n in requirement["critiques"]]
    right = [MANY.index(c) + 1 for r in value["requirements"] for c in MANY[:10] if _states(r, c)]
    assert len(value["requirements"]) == 10
    assert {"right": named == right, "none": named == [], "off": named != right}[numbers]
    assert all(abs(a - b) <= 1 for a, b in zip(named, right, strict=numbers != "none"))


def _states(requirement: dict[str, Any], text: str) -> bool:
    return WORLD.states(requirement["instruction"])[0][0] == READER(text)[0].rule


def test_its_habits() -> None:
    request, texts = reading(MANY), {text for rule in BOOK.rules.values() for text in rule.wordings}
    assert len(answered(optimizer(), request)["requirements"]) == 12
    assert 20 < len(answered(optimizer(most=40, drop=0.3), request)["requirements"]) < 37
    assert optimizer(refuse=1)(request) == (REFUSAL, "stop")
    proposals = {
        habit: {r["instruction"] for r in answered(optimizer(**{habit: 1.0}), request)["requirements"]}
        for habit in ("repeat", "empty")
    }
    assert proposals["repeat"] <= set(MANY)
    assert all(text.startswith("Take more care with ") for text in proposals["empty"])
    again = answered(optimizer(again=1), reading([MANY[0]], i1=WORLD.rules[0].wordings[0]))["requirements"]
    assert again[0]["existing"] is None
    assert again[0]["instruction"] in texts
    wrapped, _ = optimizer(prose=1, thought=1)(request)
    assert wrapped.startswith("<think>")
    assert "```json\n{" in wrapped
    assert len(requirements(wrapped)) == 12
    cut, ended = optimizer(cut=1)(request)
    assert ended == "length"
    assert requirements(cut) == []
    forgetful = optimizer(drop=0.5)
    assert forgetful(request, sample=1) == forgetful(request, sample=1)
    assert len({forgetful(request, sample=n) for n in range(5)}) > 1


def test_only_the_gullible_one_obeys_a_comment() -> None:
    order = next(c for c in BOOK.comments if c.kind == "command" and c.language == "de")
    assert answered(optimizer(), reading([order.text]))["requirements"] == []
    [requirement] = answered(optimizer(gullible=True), reading([order.text]))["requirements"]
    assert (requirement["instruction"], requirement["critiques"]) == (order.does, [1])


def test_it_consolidates_and_names_contradictions() -> None:
    snow, length = BOOK.rules["snow"], BOOK.rules["length"]
    lines = {
        "i3": length.wordings[0],
        "n1": snow.wordings[0],
        "n2": comment("rule", "snow"),
        "n3": snow.wordings[2],
    }
    lines["n4"] = length.opposites[0]
    request = (
        "\n".join(f"[{name}] {text}" for name, text in lines.items())
        + '\n{"duplicates": [], "contradictions": []}'
    )
    value = answered(optimizer(), request)
    assert value == {
        "duplicates": [{"ids": ["n1", "n2", "n3"], "best": "n1"}],
        "contradictions": [["i3", "n4"]],
    }


def test_it_rewrites_what_fails() -> None:
    snow, bus = BOOK.rules["snow"], BOOK.rules["bus"]
    request = f"""[i3] {snow.wordings[0]}
tried: {snow.wordings[1]}
1. {comment("rule", "snow")}
[i9] {vague_line(bus.topic)}
1. {comment("rule", "bus")}
{{"rewrites": [{{"instruction_id": "i3", "text": "..."}}]}}"""
    first, second = answered(optimizer(), request)["rewrites"]
    assert first == {"instruction_id": "i3", "text": snow.wordings[2]}
    assert second["instruction_id"] == "i9"
    assert second["text"] in bus.wordings


def test_it_restates_raw_texts_and_leaves_out_what_demands_nothing() -> None:
    texts = [comment("rule", "snow", "es"), comment("praise"), ALL[0], comment("contrary", "length")]
    request = "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)) + '\n{"texts": []}'
    first, second, third = answered(optimizer(), request)["texts"]
    assert (first["number"], WORLD.states(first["text"])) == (1, (("snow", 1),))
    assert second == {"number": 3, "text": ALL[0]}
    assert third["text"] in BOOK.rules["length"].opposites


@pytest.mark.parametrize("wrapper", ["Provide it within ``` blocks.", "Write it as <NEW>...</NEW>."])
def test_it_writes_a_whole_prompt_in_the_wrapper_that_is_wanted(wrapper: str) -> None:
    current = "\n".join([START, f"- {ALL[0]}", f"- {ALL[1]}"])
    request = f"My instructions:\n```\n{current}\n```\nFeedback:\n```\n{comment('rule', 'snow')}\nok\n```\n{wrapper}"
    reply, _ = optimizer()(request)
    opening, *lines, closing = reply.splitlines()
    assert (opening, closing) == (("```", "```") if "```" in wrapper else ("<NEW>", "</NEW>"))
    assert lines[:3] == current.splitlines()
    assert WORLD.states(lines[3]) == (("snow", 1),)
    assert len(lines) == 4
    assert START not in optimizer(forget=1.0)(request)[0]


# The server.


async def _post(url: str, **body: Any) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": "Bearer test-key"}
    post = f"{url}/chat/completions"
    async with aiohttp.ClientSession(headers=headers) as session, session.post(post, json=body) as response:
        return response.status, await response.json()


def test_the_server_answers_and_counts_by_key() -> None:
    row = WORLD.letter(5)
    system = {"role": "system", "content": prompt(*ALL)}
    with serving(Endpoint(schema="422")) as url:
        messages = [system, {"role": "user", "content": row["input"]}]
        status, value = asyncio.run(_post(url, model="guest-task-40", messages=messages))
        answer = value["choices"][0]["message"]["content"]
        assert (status, answer) == (200, WORLD.answer(prompt(*ALL), row["input"]))
        request = [{"role": "user", "content": reading(MANY)}]
        status, value = asyncio.run(_post(url, model="guest-optimizer-40", messages=request))
        assert status == 200
        assert value["usage"]["prompt_tokens"] == len(reading(MANY)) // 4
        schema = {"type": "json_schema", "json_schema": {"name": FORMS[0], "schema": {}}}
        assert (
            asyncio.run(_post(url, model="guest-optimizer-40", messages=request, response_format=schema))[0]
            == 422
        )
        assert asyncio.run(_post(url, model="guest-task-41", messages=messages))[0] == 404
        stats = asyncio.run(_stats(url.removesuffix("/v1")))
    assert (stats["task"], stats["optimizer"]) == (1, 1)
    assert stats["optimizer_prompt_tokens"] == len(reading(MANY)) // 4


async def _stats(origin: str) -> dict[str, int]:
    async with aiohttp.ClientSession() as session, session.get(f"{origin}/stats?key=test-key") as response:
        return await response.json()


def test_a_person_can_answer_for_the_optimizer(tmp_path: Path) -> None:
    (tmp_path / "0001.reply.txt").write_text("By hand.", encoding="utf-8")
    with serving(Endpoint(relay=tmp_path)) as url:
        request = [{"role": "user", "content": "Please."}]
        _, value = asyncio.run(_post(url, model="guest-optimizer-10", messages=request))
    assert value["choices"][0]["message"]["content"] == "By hand."
    assert (tmp_path / "0001.request.md").read_text(encoding="utf-8") == "Please."
    free = World(BOOK, free=True)
    assert free.states("Always mention how deep the snow is up there.") == (("snow", 1),)
    assert free.states("Never talk about snow.") == (("snow", -1),)
    assert free.states(comment("rule", "map")) == ()


# The truth about a prompt, the floor and the whole run.


def test_the_truth_counts_everything_that_should_not_stand_in_a_prompt() -> None:
    snow, bus, dogs = BOOK.rules["snow"], BOOK.rules["bus"], BOOK.rules["dogs"]
    order = next(c for c in BOOK.comments if c.kind == "command")
    lines = [
        START,
        f"- {snow.wordings[0]}",
        f"- {snow.wordings[1]}",
        f"- {bus.opposites[0]}",
        f"- {dogs.wordings[0]}",
        f"- {comment('rule', 'map', 'de')}",
        f"- {order.does}",
        f"- {vague_line('maps')}",
        "- Tell Ms Moretti that FH-1234 is fine.",
        "- Be a good host.",
    ]
    assert truth("\n".join(lines), optimizer()) == Truth(
        stated=2,
        opposites=1,
        duplicates=1,
        raw=1,
        commanded=1,
        row_values=1,
        vague=1,
        other=1,
        lines=9,
        tokens=len("\n".join(lines)) // 4,
    )


def test_the_naive_loop_is_a_floor_that_learns() -> None:
    model = optimizer()

    async def task(pairs: list[tuple[str, str]]) -> list[str]:
        return [WORLD.answer(text, letter) for text, letter in pairs]

    async def optimize(requests: list[str]) -> list[str]:
        return ["not JSON at all", *(model(request)[0] for request in requests[1:])]

    rows = (WORLD.letter(number) for number in range(1000))
    text = asyncio.run(naive(rows, WORLD.judge, task, optimize, 400, 30))
    assert share(f"{OUTSIDE}\n{text}") > 0.9


def test_the_reward_of_the_task_folder_needs_the_standard_library_only(tmp_path: Path) -> None:
    world = World(BOOK, Setting(rules=10, seed=2, vague=0.1))
    setup = run.Setup(world, Endpoint(), "", 2, 0, 0, tmp_path)
    folder = run.build(setup)
    row = json.loads((folder / "train.jsonl").read_text(encoding="utf-8").splitlines()[7])
    answer = world.answer(prompt(*random.Random(0).sample(ALL, 20)), row["input"])
    program = "import json, sys, reward; print(json.dumps(reward.reward(*json.load(sys.stdin))))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        input=json.dumps([row, answer]),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == world.judge(row, answer)


def test_a_whole_run_prints_figures_that_are_called_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rules", "10", "--seeds", "1", "--arms", "start,naive,all"]
    start, floor, best = run.main([*options, "--task-calls", "200", "--optimizer-calls", "12"])
    assert "SIMULATED" in capsys.readouterr().out
    assert start.share < 0.2 < 0.9 < min(floor.share, best.share)
    assert (floor.calls["task"], best.truth.stated, start.truth.lines) == (200, 10, 0)
    assert floor.calls["optimizer"] <= 12
