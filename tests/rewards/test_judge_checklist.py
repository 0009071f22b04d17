"""Checklists: items by program and by judge in one call, weights, reasons, extraction."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.judging import FakeJudge, built, grade

from whet.errors import UsageError
from whet.rewards import RewardFailed
from whet.rewards.checklist import Checklist, Finding, read_findings, read_items
from whet.rewards.checks import CHECKS, Check

NEVER = FakeJudge([])


def rows(*verdicts: tuple[bool, str]) -> str:
    found = [{"number": n, "reason": r, "met": met} for n, (met, r) in enumerate(verdicts, 1)]
    return json.dumps({"items": found})


async def test_all_items_are_judged_in_one_call_and_failed_ones_say_why() -> None:
    judge = FakeJudge([rows((True, "It does."), (False, "No price is given."))])
    items = [
        "The answer must be polite",
        {"item": "The answer must give a price", "weight": 3, "name": "price"},
    ]
    reward = await grade(built({"checklist": {"items": items}}), judge)
    assert reward.value == 0.25
    assert reward.parts == {"The answer must be polite": 1.0, "price": 0.0}
    assert reward.critique == "The answer must give a price. No price is given."
    assert (
        "1. The answer must be polite\n2. The answer must give a price" in judge.asked[0].messages[0].content
    )


async def test_programs_decide_their_items_without_the_judge() -> None:
    items = [{"check": {"max_words": 3}}, {"item": "Say it in JSON", "check": "json", "weight": 2}]
    reward: Any = built({"checklist": {"items": items}})
    assert reward.judge_calls == 0 and reward.needs == frozenset()
    graded = await grade(reward, NEVER, "one two three four")
    assert graded.value == 0.0 and graded.critique is not None
    assert graded.critique.splitlines()[0] == "max_words 3. The answer must have at most 3 words; found 4."
    assert (await grade(reward, NEVER, "[1]")).value == 1.0


async def test_judge_and_program_items_keep_their_places() -> None:
    items = [{"check": {"contains": "x"}, "name": "a"}, "b", {"check": {"contains": "y"}, "name": "c"}, "d"]
    judge = FakeJudge([rows((False, "Not b."), (True, ""))])
    reward = await grade(built({"checklist": {"items": items}}), judge, "x")
    assert reward.parts == {"a": 1.0, "b": 0.0, "c": 0.0, "d": 1.0}
    assert "1. b\n2. d" in judge.asked[0].messages[0].content


async def test_samples_are_averaged() -> None:
    judge = FakeJudge([rows((True, "")), rows((False, "why")), rows((True, "")), rows((True, ""))])
    reward = await grade(built({"checklist": {"items": ["i"], "samples": 4}}), judge)
    assert (reward.value, reward.critique) == (0.75, "i. why")


async def test_items_are_extracted_once_from_the_rubric() -> None:
    listed = {"items": [{"item": "Must be short", "weight": 100}, {"item": "Must be kind", "weight": 50}]}
    judge = FakeJudge([json.dumps(listed), rows((True, ""), (False, "Rude."))])
    reward: Any = built({"checklist": {"rubric": "Be short and kind."}})
    assert reward.judge_calls == 1 and reward.needs == {"judge"}
    graded = await grade(reward, judge)
    assert graded.value == pytest.approx(100 / 150) and graded.critique == "Must be kind. Rude."
    assert "Be short and kind." in judge.asked[0].messages[1].content
    again = FakeJudge([json.dumps(listed), rows((True, ""), (True, ""))])
    await grade(reward, again, "Another answer.")
    assert again.asked[0] == judge.asked[0], "the same request for every rollout is paid once"


async def test_a_missing_item_is_asked_for_once_more_then_fails() -> None:
    half = json.dumps({"items": [{"number": 1, "met": True, "reason": ""}]})
    reward = built({"checklist": {"items": ["a", "b"]}})
    assert (await grade(reward, FakeJudge([half, rows((True, ""), (True, ""))]))).value == 1.0
    with pytest.raises(RewardFailed):
        await grade(reward, FakeJudge([half, half]))


@pytest.mark.parametrize(
    "reply",
    [
        rows((True, "r"), (False, "s")),
        '[{"met": "yes", "reason": "r"}, {"met": "no", "reason": "s"}]',
        '{"1": {"answer": true, "reason": "r"}, "2": {"answer": "No", "reason": "s"}}',
        '{"items": [{"item": 2, "verdict": "no", "comment": "s"}, {"n": 1, "met": "yes", "reason": "r"}]}',
        '{"items": [{"number": 1, "met": 1, "reason": "r"}, {"number": 2, "met": "0", "reason": "s"}]}',
        "1. Yes: r\n2. No - s",
        "```json\n" + rows((True, "r"), (False, "s")) + "\n```",
    ],
)
def test_findings_are_read_tolerantly(reply: str) -> None:
    assert read_findings(reply, 2) == [Finding(True, "r"), Finding(False, "s")]


@pytest.mark.parametrize(
    "reply",
    [
        '{"items": [{"item": "2 sources", "met": true}, {"item": "polite", "met": false}]}',
        '{"items": [{"item": "polite", "met": true}, {"item": "1 price is named", "met": false}]}',
        '[{"item": "2 sources", "met": "yes"}, {"item": "2 prices", "met": "no"}]',
    ],
)
def test_a_number_in_the_text_of_an_item_is_not_its_place(reply: str) -> None:
    assert [finding.met for finding in read_findings(reply, 2) or ()] == [True, False]


@pytest.mark.parametrize(
    "reply",
    [
        '{"2 sources": "yes", "1 price": "no"}',
        "2 sources: yes\n1 price: no",
        "2.5 sources: yes\n1.5 prices: no",
    ],
)
def test_items_that_are_named_by_their_texts_alone_are_asked_for_again(reply: str) -> None:
    assert read_findings(reply, 2) is None


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('[{"met": true}, {"met": false}, {"met": true}]', None),
        ('{"items": ["yes", "no", "yes"]}', None),
        ('{"items": [{"reason": "an introduction"}, {"met": true}, {"met": false}]}', None),
        (
            '{"items": [{"number": 1, "met": true}, {"number": 2, "met": false}, {"number": 3, "met": true}]}',
            [True, False],
        ),
        (
            '{"items": [{"number": 2, "met": false}, {"summary": "half"}, {"number": 1, "met": true}]}',
            [True, False],
        ),
    ],
)
def test_more_entries_than_items_are_told_apart_by_their_numbers_alone(
    reply: str, expected: list[bool] | None
) -> None:
    findings = read_findings(reply, 2)
    assert (None if findings is None else [finding.met for finding in findings]) == expected


DRAFT, FINAL = rows((True, "r"), (True, "s")), rows((True, "r"), (False, "s"))


@pytest.mark.parametrize(
    "reply",
    [
        f"```json\n{DRAFT}\n```\nWait, no price is given: {FINAL}",
        f"{DRAFT}\nWait, no price is given:\n1. yes\n2. no: s",
        f"{DRAFT}\nWait, no price is given: " + '{"items": [{"number": 2, "met": false}]}',
        "1. yes\n2. yes\n\nWait, no price is given:\n1. yes\n2. no",
        f"{DRAFT}\n{FINAL}",
    ],
)
async def test_a_draft_of_verdicts_never_counts(reply: str) -> None:
    """Whether the last list is the judge's final one or one that it quotes, nobody can say: it is asked again."""
    judge = FakeJudge([reply, FINAL])
    assert (await grade(built({"checklist": {"items": ["a", "b"]}}), judge)).value == 0.5
    assert len(judge.asked) == 2


@pytest.mark.parametrize(
    "reply",
    [
        f"The answer ends with `{DRAFT}`.\n{FINAL}",
        f"{FINAL}\nThe answer ends with '{DRAFT}'",
        "1. yes: r\n2. no: s\n\n> 2. yes",
        f"1. yes\n2. sources are missing\n\n{FINAL}",
        f"Draft:\n1. yes\n2. no\n\n{FINAL}",
    ],
)
def test_quoted_verdicts_and_equal_drafts_change_nothing(reply: str) -> None:
    assert read_findings(reply, 2) == [Finding(True, "r"), Finding(False, "s")]


@pytest.mark.parametrize(
    "line", ["No problem, it is met: yes", "Yes and no", "yes/no", "yes: it is polite, no?"]
)
async def test_a_line_that_says_yes_and_no_is_asked_for_once_more(line: str) -> None:
    judge = FakeJudge([f"1. {line}\n2. yes", "1. yes: there is no insult\n2. yes"])
    assert (await grade(built({"checklist": {"items": ["a", "b"]}}), judge)).value == 1.0
    assert len(judge.asked) == 2


@given(st.text(max_size=300))
def test_no_reply_breaks_the_readers(reply: str) -> None:
    read_findings(reply, 2)
    read_items(reply)


def test_extracted_items_are_bounded_and_named_apart() -> None:
    many = json.dumps({"items": [{"item": "The same demand.", "weight": -1}] * 100})
    found = read_items(many)
    assert found is not None and len(found) == 40
    assert len({i.name for i in found}) == 40 and all(i.weight == 1.0 for i in found)
    assert read_items("1. Must be short\n- Must be kind") is not None
    assert read_items("Nothing.") is None
    assert read_items('{"items": [{"item": "Must be short"}, {"item": "Mu', whole=False) is None


def listed(*texts: str) -> str:
    return json.dumps({"items": [{"item": text, "weight": 1} for text in texts]})


DRAFTED, FINALLY = listed("Be short", "Be quick", "Be neat"), listed("Be short", "Be kind")


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        (f"A draft:\n```json\n{DRAFTED}\n```\nThe list:\n{FINALLY}", ["Be short", "Be kind"]),
        (f"A draft:\n{DRAFTED}\nThe list:\n```json\n{FINALLY}\n```", ["Be short", "Be kind"]),
        (f"```json\n{DRAFTED}\n```\n```json\n{FINALLY}\n```", ["Be short", "Be kind"]),
        (f"{DRAFTED}\n\n{FINALLY}", ["Be short", "Be kind"]),
        (f"```json\n{FINALLY}\n```\nI left out `{DRAFTED}`, which says more.", ["Be short", "Be kind"]),
        (
            f"```json\n{FINALLY}\n```\nWhy so few:\n- One is implied.\n- One is vague.",
            ["Be short", "Be kind"],
        ),
        (f"```json\n{FINALLY}\n```\nOr else: {DRAFTED[:50]}", ["Be short", "Be kind"]),
        ("```\n- Be short\n- Be quick\n```\nBetter:\n1. Be short\n2. Be kind", ["Be short", "Be kind"]),
        ("```\n- Be short\n- Be kind\n```\nA note:\n- Both are of one line.", ["Be short", "Be kind"]),
        ("Form:\n- Be short\n\nTone:\n- Be kind", ["Be short", "Be kind"]),
    ],
)
async def test_the_last_complete_list_of_a_reply_is_the_checklist(reply: str, texts: list[str]) -> None:
    """The second call judges an answer by the items that were read from the first one."""
    judge = FakeJudge([reply, "1. yes\n2. yes"])
    found = await grade(built({"checklist": {"rubric": "Be good."}}), judge)
    assert list(found.parts) == texts and len(judge.asked) == 2


@pytest.mark.parametrize(
    ("kind", "argument", "good", "bad"),
    [
        ("contains", "Price", "the price is 3", "cheap"),
        ("lacks", "sorry", "no", "I am SORRY"),
        ("regex", r"\d{4}", "in 2024", "in 24"),
        ("no_regex", r"!", "Hello.", "Hello!"),
        ("regex", "caf\u00e9", "Cafe\u0301: cafe\u0301", "cafe"),
        ("no_regex", "caf\u00e9", "cafe", "cafe\u0301"),
        ("starts_with", "Dear", " Dear Ann", "Hi"),
        ("ends_with", "Bye.", "Bye.\n", "Bye. P.S."),
        ("max_words", 2, "one two", "one two three"),
        ("max_words", 4, "今天，很好。", "今天天气很好"),
        ("min_words", 5, "今天天气很好", "今天"),
        ("max_words", 6, "ดีมาก", "วันนี้อากาศดีมาก"),
        ("max_words", 2, "- a\n- b", "- a\n- b — c"),
        ("max_words", 3, "1. one\n2. two\n - [x] three", "1. one\n2. two\n3) three 4."),
        ("max_chars", 2, "e\u0301e\u0301", "eee"),
        ("max_chars", 1, "👩\u200d👩\u200d👧", "ab"),
        ("min_words", 2, "one two", "one"),
        ("max_chars", 3, "abc", "abcd"),
        ("min_chars", 3, "abc", "ab"),
        ("max_lines", 1, "a\n\n", "a\nb"),
        ("min_lines", 2, "a\nb", "a\n\n"),
        ("json", True, '```json\n{"a": 1}\n```', "{a: 1}"),
        ("json_keys", ["a"], '{"a": null}', '["a"]'),
        ("json_keys", ["caf\u00e9"], '{"cafe\u0301": 1}', '{"cafe": 1}'),
        ("json_keys", ["a"], '{"a": 1}', '{"a": Infinity}'),
        ("json", True, "null", "NaN"),
        ("lacks", "can't", "I can", "I can\u2019t help"),
        ("lacks", "as an AI", "as a person", "As an\nAI"),
        ("contains", "\u00e9t\u00e9", "E\u0301te\u0301", "ete"),
        ("starts_with", "I'm", "I\u2019m here", "i'm here"),
        ("contains", "\n- ", "List:\n- one", "List: - one"),
    ],
)
def test_checks(kind: str, argument: Any, good: str, bad: str) -> None:
    check = Check(kind, argument)
    assert check.fault(good) == "" and check.fault(bad).endswith(".")


def test_every_check_is_tested() -> None:
    mark = next(m for m in test_checks.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} == set(CHECKS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "write `items"),
        ({"items": ["a"], "rubric": "r"}, "exclude each other"),
        ({"items": []}, "list of texts"),
        ({"items": ["a"] * 41}, "at most 40"),
        ({"items": [3]}, "item 1 must be a text"),
        ({"items": [{"weight": 1}]}, "needs a text"),
        ({"items": [{"item": "a", "wieght": 1}]}, 'Did you mean "weight"'),
        ({"items": [{"item": "a", "weight": 0}]}, "above 0"),
        ({"items": [{"item": "a", "weight": 1e308}, {"item": "b", "weight": 1e308}]}, "from 1e-09 to 1e+09"),
        ({"items": [{"item": "a", "weight": 10**400}]}, "from 1e-09 to 1e+09"),
        ({"items": [{"item": "a", "check": "jsn"}]}, 'Did you mean "json"'),
        ({"items": [{"item": "a", "check": {"max_words": "3"}}]}, "whole number"),
        ({"items": [{"item": "a", "check": {"regex": "("}}]}, "not a regular expression"),
        ({"items": [{"item": "a", "check": {"json": True, "max_words": 1}}]}, "a check is one of"),
        (
            {
                "items": [
                    {"item": "a", "name": "n"},
                    {"item": "b", "name": "n (2)"},
                    {"item": "c", "name": "n"},
                ]
            },
            "same name",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        built({"checklist": options})


def test_a_checklist_of_programs_and_judges_in_a_weighted_list() -> None:
    reward: Any = built(
        [{"checklist": {"items": [{"check": "json"}]}}, {"judge": {"rubric": "r", "weight": 2}}]
    )
    assert isinstance(reward.parts[0][1], Checklist)
    assert reward.judge_calls == 2 and reward.high == 3.0


async def test_every_row_may_have_a_checklist_of_its_own() -> None:
    """RLCF: the items come from the row, and are the same for all its rollouts; those of the task stand in each of them."""
    items = [
        {"item": "Must keep to the point", "weight": 100, "name": "on topic"},
        {"check": {"max_words": 9}},
    ]

    def answer(request: Any) -> str:
        if "for answers to one request" in request.messages[0].content:
            assert "The input." in request.messages[1].content and "Kindly." in request.messages[1].content
            return json.dumps({"items": [{"item": "Must name a price", "weight": 50}]})
        assert "1. Must keep to the point\n2. Must name a price" in request.messages[0].content
        return rows((True, ""), (False, "None is named."))

    reward: Any = built({"checklist": {"per_row": True, "items": items, "rubric": "Kindly."}})
    assert reward.judge_calls == 2
    judge = FakeJudge(answer)
    first, second = [await grade(reward, judge, text) for text in ("One.", "Two.")]
    assert first.value == second.value == pytest.approx(101 / 151)
    assert set(first.parts) == {"on topic", "max_words 9"}
    assert first.critique == "Must name a price. None is named."
    assert judge.asked[0] == judge.asked[2]  # so that a run pays for it once


def test_a_checklist_of_rows_needs_nothing_else() -> None:
    reward: Any = built({"checklist": {"per_row": True}})
    assert reward.needs == {"judge"} and reward.judge_calls == 2
    with pytest.raises(UsageError, match="per_row must be true or false"):
        built({"checklist": {"per_row": "yes"}})


def test_two_verdicts_on_one_item_are_none() -> None:
    twice = '{"items":[{"number":1,"met":true},{"number":2,"met":true},{"number":1,"met":false}]}'
    assert read_findings(twice, 2) is None


async def test_parts_with_the_name_of_another_reward_are_kept_apart() -> None:
    items = [{"check": {"max_words": 1}, "name": "f1"}]
    reward = built([{"f1": 1}, {"checklist": {"items": items}}])
    graded = await grade(reward, FakeJudge([]), "a b", "a b")
    assert graded.parts["f1"] == 1.0 and graded.parts["checklist: f1"] == 0.0
