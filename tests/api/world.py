"""A small task in memory: a model function that gets better when the prompt asks for care, and rows for it."""

from __future__ import annotations

from typing import Any

import whet

PROMPT = "<!-- whet:begin -->\nSort the review.\n<!-- whet:end -->\nReview: {{input}}"
WORDS = {"bad": "negative", "dull": "negative", "good": "positive", "lovely": "positive"}


def rows(n: int = 20) -> list[dict[str, Any]]:
    return [{"input": f"Dish {i} was {word}.", "target": t} for i in range(n) for word, t in WORDS.items()]


class Counted:
    """A model as a function that counts its calls; careful prompts get every row right, others half of them."""

    simulated = True
    version = 1

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: list[whet.Message]) -> str:
        self.calls += 1
        text = messages[-1].content
        label = next((t for word, t in WORDS.items() if word in text), "unclear")
        careful = "careful" in " ".join(m.content for m in messages).lower()
        return label if careful or int(text.split("Dish ")[1].split()[0]) % 2 else "unclear"


def writer(messages: list[whet.Message], request: Any = None) -> str:
    """An optimizer model: asks for care from its second text on."""
    text = (
        "Sort it." if request is not None and request.sample % 2 == 0 else "Be careful and sort the review."
    )
    return f"<PROMPT>{text}</PROMPT>"


def right(example: dict[str, Any], output: str) -> float:
    return float(output == example["target"])
