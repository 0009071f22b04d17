"""Thoughts of models are no part of their answers: every form, every role, with labels and without, from every kind of model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from whet.replies import split_thought
from whet.testing.faults import THOUGHT_FIELDS, THOUGHT_PARTS, THOUGHTS, ServerBehaviour, thoughtful
from whet.testing.server import serving
from whet.types import Request

ROWS = [
    {"id": str(i), "input": f"Message {i}", "target": ("refund", "technical", "other")[i % 3]}
    for i in range(12)
]
DATA = {"train": ROWS[:1], "validation": ROWS[1:2], "test": ROWS[2:]}
RIGHT = {row["input"]: row["target"] for row in ROWS}
FORMS = [*(f"thought_{n}" for n in THOUGHTS), *(f"part_{n}" for n in THOUGHT_PARTS), *THOUGHT_FIELDS]


def answer(request: Request) -> str:
    return RIGHT[request.messages[-1].content.splitlines()[-1]]


@pytest.mark.parametrize("labels", [None, ["refund", "technical", "other"]])
@pytest.mark.parametrize("form", FORMS)
async def test_no_reward_reads_a_thought(form: str, labels: list[str] | None, tmp_path: Path) -> None:
    outputs: list[str] = []

    def metric(example: dict[str, Any], output: str) -> float:
        outputs.append(output)
        return float(output == example["target"])

    async with serving(answer, settings=ServerBehaviour(habits=(form,))) as server:
        result = await whet.aevaluate(
            "Which team?", data=DATA, reward=metric, labels=labels, lm="openai/m", base_url=server.base_url,
            run=tmp_path / "run",
        )  # fmt: skip
    assert result.score.mean == 1.0
    assert not [output for output in outputs if "do not know" in output]


@pytest.mark.parametrize("form", THOUGHTS)
async def test_the_thought_of_a_function_is_left_out_and_kept_beside_the_answer(
    form: str, tmp_path: Path
) -> None:
    def model(messages: list[Any]) -> str:
        said = RIGHT[messages[-1].content]
        return str(thoughtful(said, [f"thought_{form}"])["content"])

    for _ in range(2):  # the second time from what is recorded
        result = await whet.aevaluate(
            "Which team?", data=DATA, reward="exact_match", lm=model, run=tmp_path / "run"
        )
        assert result.score.mean == 1.0


async def test_a_thought_that_is_cut_is_no_answer(tmp_path: Path) -> None:
    async with serving(answer, settings=ServerBehaviour(habits=("thought_cut",))) as server:
        with pytest.raises(whet.ProviderError, match=r"no answer contains text; the last: .*token limit"):
            await whet.aevaluate(
                "Which team?", data=DATA, reward="contains", lm="openai/m",
                base_url=server.base_url, run=tmp_path / "run",
            )  # fmt: skip


@pytest.mark.parametrize(
    "reply",
    [
        "```xml\n<think>a</think>\n```",
        "Write `<think>` before and `</think>` after it.",
        'text = re.sub(r"<think>.*</think>", "", text)\ntext = text.removeprefix("</think>")',
        "An answer\nwith <thought>a tag</thought>\nin the middle.",
        '{"text": "a </think> b"}',
        "<b>bold</b> and <reason>why</reason>",
        "analysis of the market",
        "[thinking about it] yes",
    ],
)
def test_an_answer_about_tags_is_not_eaten(reply: str) -> None:
    assert split_thought(reply).answer == reply and not split_thought(reply).thought


@pytest.mark.parametrize("form", THOUGHTS)
def test_after_a_thought_an_answer_about_tags_is_whole(form: str) -> None:
    said = "Use this:\n```xml\n<think>a</think>\n```\nand `</think>`."
    assert split_thought(thoughtful(said, [f"thought_{form}"])["content"]).answer == said


@pytest.mark.parametrize(
    "reply",
    [
        "<think>London</think>\n</think>\nParis",
        "<think>a</think> </think> Paris",
        "</think></think>Paris",
        "London</think></think>\n\nParis",
        "<think>a</think>Paris</think>",
        "[THINK]x[/THINK][/THINK]Paris",
    ],
)
def test_a_closing_mark_that_comes_twice_is_no_part_of_the_answer(reply: str) -> None:
    assert split_thought(reply).answer == "Paris"
    assert split_thought("<think>a</think>Write </think> here.").answer == "Write </think> here."


async def test_a_person_may_want_thoughts_to_be_graded(tmp_path: Path) -> None:
    def metric(example: dict[str, Any], output: str) -> float:
        return float(output == f"<think>why</think>\n{example['target']}")

    def model(messages: list[Any]) -> str:
        return f"<think>why</think>{RIGHT[messages[-1].content]}"

    for thoughts in (True, False):
        result = await whet.aevaluate(
            "Which team?", data=DATA, reward=metric, lm={"address": model, "thoughts": thoughts},
            run=tmp_path / str(thoughts),
        )  # fmt: skip
        assert result.score.mean == float(thoughts)


MARKS = [
    *("<|im_end|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|endoftext|>"),
    "<|eot_id|>\n<|end_of_text|>\n",
]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("thought", ["", "<think>refund or other?</think>\n"])
def test_marks_for_the_end_of_a_turn_are_no_part_of_an_answer(
    mark: str, thought: str, tmp_path: Path
) -> None:
    def model(messages: list[Any]) -> str:
        return f"{thought}{RIGHT[messages[-1].content]}{mark}"

    strict = {"exact_match": {"strict": True}}
    result = whet.evaluate(
        "Which team?", data=DATA, reward=strict, lm=model, split="test", run=tmp_path / "run"
    )
    assert result.score.mean == 1.0 and result.score.n == 10


@pytest.mark.parametrize(
    "reply", ["<s>old</s>", "Write </s> at the end.", '"</s>"', "`<|im_end|>`", "yes  \n", "a <b>", ""]
)
def test_marks_elsewhere_stay(reply: str) -> None:
    assert split_thought(reply).answer == reply


def test_an_answer_that_is_nothing_but_a_mark_is_empty(tmp_path: Path) -> None:
    def model(messages: list[Any]) -> str:
        return "<|im_end|>" if messages[-1].content.endswith(" 2") else RIGHT[messages[-1].content]

    result = whet.evaluate(
        "Which team?", data=DATA, reward="exact_match", lm=model, split="test", run=tmp_path / "run"
    )
    assert result["failed"] == 1 and result.score.mean == 0.9
    assert any("empty answer" in warning for warning in result.warnings)
