"""Texts of trained policies become prompts like those of any other model: without thoughts and wrapping, never cut."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from whet.methods.dsp import hint_in
from whet.methods.prl import answer_in
from whet.prompt import Prompt
from whet.rl.policy_model import Sample
from whet.rl.score_book import rewrite_of, written_text
from whet_client.prompt.length import LengthLimit

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")


def sample(text: str, ended: bool = True) -> Sample:
    return Sample(text, (1,), (2,), (0.0,), (True,), ended)


@pytest.mark.parametrize(
    ("text", "ended", "written"),
    [
        ("Be kind.", True, "Be kind."),
        ("<think>Sure?</think>\nBe kind.", True, "Be kind."),
        ("Sure?</think>Be kind.", True, "Be kind."),
        ("```\nBe kind.\n```", True, "Be kind."),
        ("<instruction>Be kind.</instruction>", True, "Be kind."),
        ('"Be kind."', True, "Be kind."),
        ("<think>Sure", True, None),
        ("Be ki", False, None),
        ("<think>Sure", False, None),
    ],
)
def test_a_rewrite_is_what_was_written_after_the_thought_and_never_cut(
    text: str, ended: bool, written: str | None
) -> None:
    assert written_text(sample(text, ended)) == written
    prompt = rewrite_of(START, written_text(sample(text, ended)))
    assert (None if prompt is None else prompt.region_text()) == written


def test_a_rewrite_beyond_the_limit_is_refused() -> None:
    from dataclasses import replace

    assert rewrite_of(replace(START, limit=LengthLimit(20)), "kind " * 40) is None


@pytest.mark.parametrize(
    ("text", "ended", "hint"),
    [
        ("capitals; twice", True, "capitals; twice"),
        ("<think>which?</think> capitals; twice", True, "capitals; twice"),
        ("capitals; twice; rev", False, "capitals; twice"),
        ("capit", False, ""),
        ("<think>which", False, ""),
    ],
)
def test_a_hint_is_whole_keywords_without_a_thought(text: str, ended: bool, hint: str) -> None:
    assert hint_in(text, ended) == hint


def test_an_answer_inside_of_a_thought_is_no_prompt() -> None:
    assert answer_in("<think>Perhaps <answer>no</answer>?</think><answer>Be kind.</answer>") == "Be kind."
    assert answer_in("<think>Perhaps <answer>no</answer>? It") is None
    assert answer_in("<think>Yes.</think><answer>```\nBe kind.\n```</answer>") == "Be kind."
