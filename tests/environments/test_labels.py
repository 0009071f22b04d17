"""Which label an answer names: alone for certain, inside a sentence with a word about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.environments.labels import LabelReading, find_label, read_label
from whet.task import load_task

NAMES = {name: name for name in ("refund", "technical", "other")}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Priority: refund / Confidence: other", None),
        ('{"team": "refund", "sure": "other"}', None),
        ("Team: refund\nSecond: other", None),
        ("Team: refund, Second: refund", "refund"),
        ("Team: refund\n\nI looked again.\nTeam: other", "other"),
        ("Option 1: refund\nOption 2: other\nAnswer: refund", "refund"),
        ("Team: refund, sure: 0.9", "refund"),
    ],
)
def test_fields_with_different_labels_name_none(text: str, label: str | None) -> None:
    assert find_label(text, NAMES) == label


@pytest.mark.parametrize(
    "text",
    [
        "refund",
        " Refund.\n",
        "**refund**",
        "«Refund»!",
        "I looked at it.\n\nrefund",
        "refund\n\nThe customer is not technical.",
        "Answer: refund",
        "The label is: **Refund**.",
        "<answer>refund</answer>",
        "So it is \\boxed{refund}",
        '{"label": "refund", "reason": "not technical"}'.replace(', "reason": "not technical"', ""),
        '```json\n{\n  "label": "refund"\n}\n```',
        "The verdict is: [[refund]]. It is not technical.",
        "re\u200bfund",
        "ｒｅｆｕｎｄ",
    ],
)
def test_a_label_that_stands_alone_is_certain(text: str) -> None:
    assert read_label(text, NAMES) == LabelReading("refund", True)


@pytest.mark.parametrize(
    "text",
    ["not refund", "It is a refund.", 'I would say "refund" rather than technical', "a refund, I think"],
)
def test_a_label_inside_a_sentence_is_found_and_marked(text: str) -> None:
    assert read_label(text, NAMES) == LabelReading("refund", False)


@pytest.mark.parametrize(
    "text", ["", "refund or technical", "refundable", "non-refund", "nothing of these", "---"]
)
def test_no_label_or_several_are_none(text: str) -> None:
    assert read_label(text, NAMES) is None


@pytest.mark.parametrize(
    ("text", "labels", "label"),
    [
        ("返金です。", ["返金", "技術"], "返金"),
        ("答案：退款", ["退款", "技术"], "退款"),
        ("答案是退款", ["退款", "技术"], "退款"),
        ("不退款。", ["退款", "不退款"], "不退款"),
        ("คำตอบคือคืนเงิน", ["คืนเงิน", "อื่น"], "คืนเงิน"),
        ("उत्तर: वापसी।", ["वापसी", "अन्य"], "वापसी"),
        ("C++.", ["C", "C++"], "C++"),
        ("The answer is C", ["C", "C++"], "C"),
        ("-", ["+", "-"], "-"),
        ("-1", ["1", "-1"], "-1"),
        ("4", ["4", "5"], "4"),
        ("not entailment", ["entailment", "not_entailment"], "not_entailment"),
        ("It is **not** spam.", ["spam", "not spam"], "not spam"),
        ("not\nspam", ["spam", "not_spam"], "not_spam"),
        ("The text is non\u2011toxic.", ["toxic", "non-toxic"], "non-toxic"),
        ("nontoxic", ["toxic", "non-toxic"], "non-toxic"),
        ("18 \u2013 25", ["18-25", "26-35"], "18-25"),
        ("sci / tech", ["Sci/Tech", "World"], "Sci/Tech"),
        ("a-b", ["a-b", "a b"], "a-b"),
        ("C\u2019est l\u2019été", ["l'été", "hiver"], "l'été"),
        ("A+", ["A", "A+", "A-"], "A+"),
        ("+1", ["1", "-1"], "1"),
        ("80", ["80%", "20%"], "80%"),
        ("C. A pretty girl", ["A", "B", "C"], "C"),
        ("(B) a dog", ["A", "B", "C"], "B"),
        (r"\boxed{C}? No, \boxed{\text{B}}.", ["A", "B", "C"], "B"),
        (r"\boxed{B: A polygenic risk}", ["A", "B", "C"], "B"),
        ("Answer: (B) A polygenic risk", ["A", "B", "C"], "B"),
        ("The option is **B. A dog**", ["A", "B", "C"], "B"),
        ("Yes. There is no problem.", ["yes", "no"], "yes"),
    ],
)
def test_labels_of_every_script_and_sign(text: str, labels: list[str], label: str) -> None:
    assert find_label(text, dict(zip(labels, labels, strict=True))) == label


@pytest.mark.parametrize("text", ["-1", "1.5", "10", ".1", "v1.2"])
def test_a_part_of_a_number_is_no_label(text: str) -> None:
    assert find_label(text, {"1": "1", "2": "2"}) is None


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("A+", ["A", "B"]),
        ("The grade is A+.", ["A", "B"]),
        ("C#", ["C", "C++"]),
        ("C", ["C++", "Java"]),
        ("It is a dog", ["A", "B"]),
        ("non-spam", ["spam", "not spam"]),
        ("1020", ["10-20", "20-30"]),
    ],
)
def test_another_name_is_no_label(text: str, labels: list[str]) -> None:
    assert find_label(text, dict(zip(labels, labels, strict=True))) is None


@pytest.mark.parametrize(
    ("text", "labels", "label"),
    [
        (
            "label: unrelated, explanation: a more relevant one is near",
            ["unrelated", "relevant"],
            "unrelated",
        ),
        ("reason: x, label: spam, confidence: high", ["spam", "ham"], "spam"),
        ("label: spam; confidence: low; other: high", ["spam", "low", "high"], None),
        ("Options: A, B, C. Answer: unclear", ["A", "B", "C", "D"], None),
        ("Options: A, B. Answer: unclear", ["A", "B", "C", "D"], None),
        ("Rating: 3/5", ["1", "2", "3", "4", "5"], "3"),
        ("I would say 4 / 5, for it is good", ["0", "1", "2", "3", "4", "5"], "4"),
        ("2/3", ["1", "2", "3", "4", "5"], None),
        ("1/2", ["1", "2"], None),
        ("4/5/2024", ["1", "2", "3", "4", "5"], None),
        ("4/5", ["2", "4", "5"], None),
        ("4.0", ["1", "2", "3", "4"], "4"),
        ("4.0", ["4", "4.0"], "4.0"),
        ("4.05", ["4", "5"], None),
    ],
)
def test_fields_of_one_line_and_numbers_of_a_scale(text: str, labels: list[str], label: str | None) -> None:
    assert find_label(text, {one: one for one in labels}) == label


def folder(path: Path, reward: str, answers: dict[str, str]) -> Path:
    path.mkdir()
    (path / "prompt.md").write_text("{{input}}")
    rows = [{"input": text, "target": "refund" if n % 2 else "other"} for n, text in enumerate(answers)]
    (path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "task.yaml").write_text(
        f"name: t\nprompt: prompt.md\ndata: data.jsonl\nlabels: [refund, other]\nreward: {reward}\n"
    )
    return path


async def evaluate(path: Path, answer: str) -> Any:
    return await whet.aevaluate(path, lm=lambda messages: answer, split="test", root=path.parent / "runs")


async def test_answers_that_hide_their_label_in_a_sentence_are_reported(tmp_path: Path) -> None:
    rows = {f"q{n}": "" for n in range(12)}
    result = await evaluate(folder(tmp_path / "usual", "exact_match", rows), "not refund")
    (warning,) = [w for w in result.warnings if "inside a sentence" in w]
    assert (
        '4 of 4 answers name their label inside a sentence, such as "not refund", which counts as refund'
        in warning
    )
    other = await evaluate(folder(tmp_path / "other", "exact_match", rows), "I would not say other.")
    (warning,) = [w for w in other.warnings if "inside a sentence" in w]
    assert f"If none of them counted, the mean would be: 0.000 in place of {other.score.mean:.3f}." in warning
    assert result.score.mean + other.score.mean == 1.0 and result.failed == other.failed == 0
    plain = await evaluate(folder(tmp_path / "plain", "exact_match", rows), "Answer: refund")
    assert not any("inside a sentence" in w for w in plain.warnings)
    strict = await evaluate(folder(tmp_path / "strict", "{exact_match: {strict: true}}", rows), "not refund")
    assert strict.failed == 4 and strict.score.mean == 0.0


@pytest.mark.parametrize(
    ("texts", "reward", "warned"),
    [
        *[("I think that it failed.", "exact_match", True), ("A pump failed.", "exact_match", False)],
        *[("I or II or III?", "exact_match", False), ('It says "I".', "exact_match", False)],
        *[("I) yes", "exact_match", False), ("I think.", "{exact_match: {strict: true}}", False)],
    ],
)
def test_a_label_that_inputs_say_in_passing_is_warned_of(
    tmp_path: Path, texts: str, reward: str, warned: bool
) -> None:
    path = folder(tmp_path / "task", reward, {})
    rows = [{"input": f"{texts} {n}", "target": "I" * (n % 3 + 1)} for n in range(30)]
    (path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yaml = (path / "task.yaml").read_text().replace("[refund, other]", "[I, II, III]")
    (path / "task.yaml").write_text(yaml)
    found = [text for text in load_task(path).warnings if "inputs of other labels" in text]
    assert len(found) == warned and all(text.startswith('The label "I" is a word that') for text in found)


def test_a_label_that_a_table_made_a_float_is_the_label(tmp_path: Path) -> None:
    path = folder(tmp_path / "task", "exact_match", {})
    rows = "".join(json.dumps({"input": f"q{n}", "target": float(n % 2)}) + "\n" for n in range(12))
    (path / "data.jsonl").write_text(rows)
    yaml = (path / "task.yaml").read_text().replace("[refund, other]", '["0", "1"]')
    (path / "task.yaml").write_text(yaml)
    assert {example.target for example in load_task(path).train} <= {"0", "1"}


@pytest.mark.parametrize(
    ("text", "label", "alone"),
    [
        ("C\u266f", "C#", True),
        ("C ++", "C++", True),
        ("It is written in C\u266f.", "C#", False),
        ("A +", "A+", True),
        ("**A -**", "A-", True),
        ("Grade: A\u207a", "A+", True),
        ("The grade is A +.", "A+", False),
        ("A - good work", "A", False),
        ("- A", "A", True),
        ("C", "C", True),
    ],
)
def test_signs_at_the_end_of_a_label_in_every_spelling(text: str, label: str, alone: bool) -> None:
    names = {name: name for name in ("C", "C++", "C#", "A+", "A", "A-")}
    assert read_label(text, names) == LabelReading(label, alone)


def test_a_label_may_be_written_with_a_sharp() -> None:
    assert [find_label(text, {"C\u266f": "C\u266f", "C": "C"}) for text in ("C#", "c")] == ["C\u266f", "C"]
