"""`prompt_learning` and `mipro` spend a limit on what may tell them something new."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import whet

WORDS = [f"word{n}" for n in range(40)]
PROMPT = "<!-- whet:begin -->\nWrite.\n<!-- whet:end -->\nNote: {{input}}"


class Notes:
    """Answers a note with those of the words that its prompt asks for; counts how often it is asked the same."""

    simulated, version = True, 1

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, messages: list[whet.Message]) -> str:
        text = "".join(m.content for m in messages)
        self.asked[text] += 1
        return " ".join(["Noted", *(word for word in WORDS if f"{word}." in text)])


def reward(example: dict[str, Any], output: str) -> dict[str, Any]:
    """Each note wants three of the words; the critique names one that is missing."""
    number = int(example["input"].split()[1])
    missing = [
        WORDS[place]
        for place in sorted({(number * k) % 40 for k in (1, 3, 7)})
        if WORDS[place] not in output.split()
    ]
    critique = f"The note says nothing of {missing[0]}." if missing else None
    return {"reward": 1 - len(missing) / 3, "critique": critique}


def reader(messages: list[whet.Message]) -> str:
    """Makes an instruction of the first critique alone, so that there is always more to learn."""
    text = messages[-1].content
    words = [word for word in WORDS if f"of {word}." in text]
    if '"requirements"' not in text or not words:
        return '{"duplicates": [], "contradictions": [], "unclear": []}'
    entry = f'{{"critiques": [1], "existing": null, "instruction": "Mention {words[0]}."}}'
    return f'{{"requirements": [{entry}]}}'


def learn(folder: Path, model: Notes, **more: Any) -> whet.RunResult:
    notes = [{"input": f"Note {n}"} for n in range(100)]
    data = {"train": notes[:50], "validation": notes[50:80], "test": notes[80:]}
    call: dict[str, Any] = {
        "data": data,
        "reward": reward,
        "lm": model,
        "optimizer_lm": reader,
        "run": folder / "run",
    }
    return whet.optimize(PROMPT, **call, method="prompt_learning", progress=False, **more)


def test_no_row_is_answered_twice_by_one_prompt(tmp_path: Path) -> None:
    """There are 50 training rows, and far more calls: a round of more rows than these held copies, which were paid and counted
    as answers of their own."""
    model = Notes()
    result = learn(tmp_path, model, budget=whet.Budget(task_calls=900, optimizer_calls=40))
    assert set(model.asked.values()) == {1}
    assert result.best.test is not None and result.baseline.test is not None
    assert result.best.test.mean > result.baseline.test.mean
    assert result.usage.calls["task"] == sum(model.asked.values()) <= 900
