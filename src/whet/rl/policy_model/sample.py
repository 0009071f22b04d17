"""A text that a policy wrote, as tokens that its update can read and as JSON that a journal can keep, and its next turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.rl.policy_model.backbone import Backbone
from whet.types import JSON, Message

_MARK = "whet0turn0mark"


@dataclass(frozen=True, slots=True)
class Sample:
    """One text that a policy wrote: what it read and the tokens that follow.

    `text` is the decoded response, stop sequence included; of a conversation, its newest turn. `prompt` are the
    tokens read. `tokens` is the response, end token included where it was written; in a conversation also what
    others said in between. Per response token: `logprobs` under the behaviour policy at its `temperature` (0 for
    tokens of others; at 1 for greedy and given texts) and `own`, whether the policy wrote it. `ended`: by an end
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


def between(body: Backbone, sample: Sample, replies: Sequence[Message]) -> tuple[int, ...]:
    """The tokens from the end of a sample to the beginning of the policy's next turn.

    They are what the chat template puts after an assistant's message: its end (unless the sample wrote it), the
    messages of others, and the head of the next turn. Without a template, messages are set apart by blank lines.
    """
    weights = body.weights
    if not weights.chat:
        return tuple(weights.encode("".join(f"\n\n{reply.content}" for reply in replies) + "\n\n"))
    turns = [Message("user", _MARK), Message("assistant", _MARK), *replies]
    text = weights.text(turns).split(_MARK, 2)[-1]
    ids = tuple(weights.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    last = sample.tokens[-1] if sample.tokens else None
    return ids[1:] if ids and last in body.ends and ids[0] == last else ids


def joined(sample: Sample, reply: Sequence[int], turn: Sample) -> Sample:
    """A sample, the messages of others after it, and the next turn, as one sample of the whole conversation."""
    return Sample(
        turn.text,
        sample.prompt,
        (*sample.tokens, *reply, *turn.tokens),
        (*sample.logprobs, *(0.0 for _ in reply), *turn.logprobs),
        (*sample.own, *(False for _ in reply), *turn.own),
        turn.ended,
        turn.temperature,
    )
