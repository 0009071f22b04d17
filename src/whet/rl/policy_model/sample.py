"""A text that a writer wrote, as tokens that its update can read and as JSON that a journal can keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.types import JSON


@dataclass(frozen=True, slots=True)
class Sample:
    """One text that a writer wrote: what it read and the tokens that follow.

    `text` is the decoded response, stop sequence included; of a conversation, its newest turn. `prompt` are the
    tokens read. `tokens` is the response, end token included where it was written; in a conversation also what
    others said in between. Per response token: `logprobs` under the behaviour policy at its `temperature` (0 for
    tokens of others; at 1 for greedy and given texts) and `own`, whether the writer wrote it. `ended`: by an end
    token or a stop sequence, not by the bound on tokens.
    """

    text: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    own: tuple[bool, ...]
    ended: bool
    temperature: float = 1.0

    def to_json(self) -> dict[str, JSON]:
        """The sample as a JSON object: what an effect records."""
        return {
            "text": self.text,
            "prompt": list(self.prompt),
            "tokens": list(self.tokens),
            "logprobs": list(self.logprobs),
            "own": None if all(self.own) else [int(own) for own in self.own],
            "ended": self.ended,
            "temperature": self.temperature,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Sample:
        """The sample that `to_json` wrote."""
        tokens = tuple(int(token) for token in value["tokens"])
        own = value["own"]
        return cls(
            str(value["text"]),
            tuple(int(token) for token in value["prompt"]),
            tokens,
            tuple(float(logprob) for logprob in value["logprobs"]),
            (True,) * len(tokens) if own is None else tuple(bool(one) for one in own),
            bool(value["ended"]),
            float(value["temperature"]),
        )
