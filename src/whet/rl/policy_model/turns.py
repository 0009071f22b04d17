"""Conversations as tokens: what stands between one turn of the writer and the next."""

from __future__ import annotations

from collections.abc import Sequence

from whet.rl.policy_model.backbone import Backbone
from whet.rl.policy_model.sample import Sample
from whet.types import Message

_MARK = "whet0turn0mark"


def between(body: Backbone, sample: Sample, replies: Sequence[Message]) -> tuple[int, ...]:
    """The tokens from the end of a sample to the beginning of the writer's next turn.

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
