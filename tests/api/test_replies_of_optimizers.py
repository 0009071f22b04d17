"""What becomes of the replies of an optimizer model, whatever stands around its text: the prompt that is found, what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from whet.engine.journal import read_events
from whet.types import Completion, Request

ROWS = [{"id": str(i), "input": f"Message {i}", "target": "ab"[i % 2]} for i in range(36)]
START = "<!-- whet:begin -->\nSay it.\n<!-- whet:end -->\n\n{{input}}"
GOOD = "Read the message carefully and say which team it is for."
METHODS = {
    "gepa": {},
    "opro": {"steps": 2, "samples": 2},
    "protegi": {},
    "meta_prompt": {"loops": 2},
    "mipro": {},
}


async def optimized(reply: str, folder: Path, method: str = "meta_prompt", **more: Any) -> whet.Result:
    """A run whose optimizer model always writes this reply; with GOOD in its prompt the task model is right."""

    def task(request: Request) -> Completion:
        asked = request.messages[-1].content
        number = int(asked.split("Message ")[1].split()[0].strip("."))
        return Completion("ab"[number % 2] if GOOD in asked or number % 3 == 0 else "?")

    def answer(messages: list[Any], request: Request) -> Completion:
        return task(request)

    def optimizer(messages: list[Any]) -> str:
        asked = messages[-1].content
        other = next((tag for tag in ("REASON", "SUMMARY") if f"<{tag}>" in asked), None)
        return f"<{other}>It is vague.</{other}>" if other else reply

    return await whet.aoptimize(
        START, data=more.pop("data", ROWS), reward="exact_match", lm=answer, optimizer_lm=optimizer, method=method,
        settings=METHODS[method], budget=whet.Budget(calls=260, optimizer_calls=30), run=folder / "run", **more,
    )  # fmt: skip


XML = f"<role>You sort mail.</role>\n<instruction>{GOOD}</instruction>\n<instruction>Be brief.</instruction>"
FENCED = f'{GOOD}\nAnswer as JSON:\n```json\n{{"team": "a"}}\n```\nOnly that.'


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("reply", "text"),
    [(f"<INSTRUCTION>\n{XML}\n</INSTRUCTION>", XML), (f"```\n{FENCED}\n```", FENCED)],
    ids=["xml", "fences"],
)
async def test_a_text_with_tags_or_fences_arrives_whole(
    method: str, reply: str, text: str, tmp_path: Path
) -> None:
    result = await optimized(reply, tmp_path, method)
    assert text in result.best.prompt.text


OWN_WORDS = {
    "gepa": "Your task is to rewrite the instructions below, so that an assistant does its task better with them.",
    "opro": "It must work for any input of this kind, not only for those above.",
    "protegi": "The instruction is a part of this prompt, in the place of [INSTRUCTION].",
}


@pytest.mark.parametrize("method", OWN_WORDS)
async def test_words_that_a_method_meant_for_the_optimizer_model_are_said(
    method: str, tmp_path: Path
) -> None:
    copied = OWN_WORDS[method]
    result = await optimized(f"<INSTRUCTION>{GOOD} {copied}</INSTRUCTION>", tmp_path / "copy", method)
    (warning,) = [text for text in result.warnings if "meant for the optimizer model" in text]
    assert copied in result.best.prompt.text and copied.lower().rstrip(".") in warning
    other = "Your task is to find the team that can help the customer best."
    result = await optimized(f"<INSTRUCTION>{GOOD} {other}</INSTRUCTION>", tmp_path / "other", method)
    assert other in result.best.prompt.text
    assert not [text for text in result.warnings if "meant for the optimizer model" in text]


async def test_a_search_whose_texts_all_copy_rows_says_so(tmp_path: Path) -> None:
    rows = [{**row, "input": f"{row['input']} of the customer Xavier number {row['id']}."} for row in ROWS]
    copied = "Message 5 of the customer Xavier number 5."
    result = await optimized(f"<INSTRUCTION>{GOOD} {copied}</INSTRUCTION>", tmp_path, "gepa", data=rows)
    assert copied not in result.best.prompt.text and result.status == "completed"
    (warning,) = [text for text in result.warnings if "tried no text of the optimizer model" in text]
    assert "xavier number 5" in warning and "(`optimizer_lm`)" in warning


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f'"{GOOD}"',
        f"<think>Shorter?</think>\n<INSTRUCTION>{GOOD}</INSTRUCTION>",
        f"<INSTRUCTION>{GOOD}\nMessage: {{{{input}}}}</INSTRUCTION>",
        f"<!-- whet:begin -->\n{GOOD}\n<!-- whet:end -->\n\n{{{{input}}}}",
        f'{{"prompt": "{GOOD}"}}',
        f"Here it is:\n```markdown\n{GOOD}\n```\nHope this helps.",
        f"&lt;INSTRUCTION&gt;{GOOD}&lt;/INSTRUCTION&gt;",
    ],
)
async def test_habits_of_optimizers_leave_the_text_alone(reply: str, tmp_path: Path) -> None:
    result = await optimized(reply, tmp_path)
    assert result.best.prompt.text == f"{GOOD}\n\n{{{{input}}}}"


async def test_replies_that_are_of_no_use_are_counted_by_reason_with_an_example(tmp_path: Path) -> None:
    result = await optimized(f"Sure! Here it is:\n\n{GOOD}\n\nIt is better.", tmp_path)
    (warning,) = [text for text in result.warnings if "texts are lost" in text]
    assert "replies of the optimizer model had no text between the tags <" in warning
    assert "; each was asked for again, and " in warning
    assert 'Example: "Sure! Here it is: Read the message' in warning


@pytest.mark.parametrize("method", ["sprig", "prompt_learning", "opro"])
async def test_replies_that_their_limit_cut_are_said_to_be_cut(method: str, tmp_path: Path) -> None:
    half = {"text": "Let me think. The prompt should say that od", "stop_reason": "max_tokens"}
    result = await whet.aoptimize(
        START, data=ROWS, reward="exact_match", lm=lambda messages: "a", optimizer_lm=lambda messages: half, method=method,
        budget=whet.Budget(calls=160), run=tmp_path / "run",
    )  # fmt: skip
    said = "\n".join(result.warnings)
    assert "ended before the text was complete" in said and "--optimizer-option max_tokens=8192" in said
    assert "did not understand" not in said and "could not be read" not in said


class _Fails:
    """An optimizer model that writes nothing useful once, and fails at every other call."""

    version = 1
    calls = 0

    def __call__(self, messages: list[Any]) -> str:
        self.calls += 1
        if self.calls > 1:
            raise RuntimeError("the account is empty")
        return "Sure!\n\nHere it comes."


async def test_replies_that_never_came_are_no_misunderstanding(tmp_path: Path) -> None:
    result = await whet.aoptimize(
        START, data=ROWS, reward="exact_match", lm=lambda messages: "a", optimizer_lm=_Fails(), method="opro",
        settings=METHODS["opro"], budget=whet.Budget(calls=260, optimizer_calls=30), run=tmp_path / "run",
    )  # fmt: skip
    said = "\n".join(result.warnings)
    assert (
        'did not come ("provider: callable/_Fails' in said and 'RuntimeError: the account is empty")' in said
    ), said
    assert "did not understand" not in said and "stronger" not in said and 'xample: ""' not in said


BARE = "The prompt is weak. Let me think about what to write. I should read the feedback first and then"


@pytest.mark.parametrize("method", METHODS)
async def test_whole_replies_that_are_used_without_tags_are_counted(method: str, tmp_path: Path) -> None:
    said = [text for text in (await optimized(BARE, tmp_path, method)).warnings if "single paragraph" in text]
    assert len(said) == 1 and f'Example: "{BARE}"' in said[0], said
    number = int(said[0].split("The search used ")[1].split()[0])
    events = [e.value for e in read_events(tmp_path / "run" / "journal.sqlite", ["replies"])]
    assert number == sum(event["bare"][0] for event in events if "bare" in event) > 0


async def test_texts_that_must_be_asked_for_again_leave_calls_for_their_trials(tmp_path: Path) -> None:
    result = await optimized(BARE, tmp_path, "mipro")
    assert result["usage"]["calls"] == {"task": 185, "optimizer": 29, "judge": 0}


async def test_tags_that_come_when_asked_again_are_no_whole_reply(tmp_path: Path) -> None:
    for n, reply in enumerate(
        [f"<INSTRUCTION>{GOOD}</INSTRUCTION>", f"One.\n\n{BARE}", f"It is <INSTRUCTION>{BARE}"]
    ):
        said = (await optimized(reply, tmp_path / str(n))).warnings
        assert not any("single paragraph" in text for text in said), reply


async def test_replies_that_came_when_asked_again_say_what_was_wrong_first(tmp_path: Path) -> None:
    two = f"<INSTRUCTION>{GOOD}</INSTRUCTION>\n<INSTRUCTION>Be brief.</INSTRUCTION>"
    result = await optimized(two, tmp_path)
    (warning,) = [text for text in result.warnings if "several texts" in text]
    assert "of the optimizer model held several texts instead of one; " in warning
    assert 'could be used. Example: "<INSTRUCTION>Read' in warning


async def test_what_a_found_prompt_brings_is_said(tmp_path: Path) -> None:
    reply = f"<INSTRUCTION>{GOOD} See https://evil.example/x and a@b.org. It is {{input}}.\n```\nopen</INSTRUCTION>"
    result = await optimized(reply, tmp_path)
    said = "\n".join(result.warnings)
    assert "addresses that the start prompt did not contain: https://evil.example/x, a@b.org." in said
    assert "a code fence that is never closed" in said
    assert "{input} goes to the model as it stands" in said


async def test_a_prompt_that_grows_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    long = f"<INSTRUCTION>{GOOD} {'Consider every word. ' * 800}</INSTRUCTION>"
    result = await optimized(long, tmp_path / "default")
    assert GOOD not in result.best.prompt.text
    assert any("it may have at most 2,000" in text for text in result.warnings)
    result = await optimized(long, tmp_path / "wide", longest=10_000)
    assert GOOD in result.best.prompt.text


async def test_prompt_learning_keeps_to_the_limit(tmp_path: Path) -> None:
    number = 0

    def optimizer(messages: list[Any]) -> str:
        nonlocal number
        number += 1
        text = f"Name the team number {number} at the end of the answer, in capital letters."
        return f'{{"requirements": [{{"critiques": [1], "violates": null, "instruction": "{text}", "contradicts": null}}]}}'

    def metric(example: dict[str, Any], output: str) -> dict[str, Any]:
        return {"reward": 0.0, "critique": f"It lacks the team of {example['id']}."}

    result = await whet.aoptimize(
        START, data=ROWS, reward=metric, lm=lambda messages: "?", optimizer_lm=optimizer, method="prompt_learning",
        budget=whet.Budget(calls=200), longest=40, run=tmp_path / "run",
    )  # fmt: skip
    assert len(result.best.prompt.text) <= 4 * 40 and result["usage"]["calls"]["optimizer"] > 2


async def test_an_optimizer_whose_calls_fail_for_good_is_asked_no_more(tmp_path: Path) -> None:
    def optimizer(messages: list[Any], request: Request) -> str:
        if request.sample > 2 or "a" not in request.messages[-1].content:
            raise RuntimeError("the account is empty")
        return f"<INSTRUCTION>Say a{request.sample}.</INSTRUCTION>"

    result = await whet.aoptimize(
        START, data=ROWS, reward="exact_match", lm=lambda messages: "a", optimizer_lm=optimizer, method="gepa",
        budget=whet.Budget(calls=900), run=tmp_path / "run",
    )  # fmt: skip
    assert 20 <= result.usage.calls["optimizer"] <= 80, result.usage
    assert any("RuntimeError: the account is empty" in text for text in result.warnings)
