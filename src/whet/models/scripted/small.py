"""Small simulators for tests: an echo, a constant, and an optimizer that combines phrases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from whet.models.scripted.reply import ReplyItem, ScriptedProposal, write
from whet.models.scripted.simulator import Scripted, chance, luck, request_text, shuffled
from whet.types import Request

PHRASES = (
    "Read the text carefully.|Look for evidence in the text.|Mind the tone.|Answer with a single word.|"
    "Be brief.|You are an expert.|Think step by step.|Take a deep breath."
)


class Echo(Scripted):
    """Answers with the last user message (the last message when there is none from a user)."""

    def answer(self, request: Request, sample: int) -> str:
        """The message, unchanged."""
        users = [m.content for m in request.messages if m.role == "user"]
        return users[-1] if users else request.messages[-1].content


class Constant(Scripted):
    """Answers with the option `text`, whatever it is asked."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"text": "ok"}

    def answer(self, request: Request, sample: int) -> str:
        """The text."""
        return self.options["text"]


class Phrases(Scripted):
    """An optimizer that proposes prompts made of the option `phrases` (separated by `|`).

    The law: a phrase that occurs anywhere in the request is used with probability `keep`, any other
    with probability `try`, in an order drawn anew; a proposal that would be empty is one phrase. With
    the default phrases it climbs the default task of `scripted/labels`: four of the eight carry the
    words that help there.
    """

    OPTIONS: ClassVar[Mapping[str, str]] = {"phrases": PHRASES, "keep": "0.8", "try": "0.3"}

    def answer(self, request: Request, sample: int) -> str:
        """Proposals in the form that the request asks for."""
        phrases = self.option_list("phrases", "|")
        keep, fresh = self.option_float("keep"), self.option_float("try")
        text, draw = request_text(request), luck(request, sample)

        def propose(k: int) -> ScriptedProposal:
            ordered = shuffled(phrases, self.seed, draw, k)
            used = [
                p for p in ordered if chance(self.seed, draw, k, p) < (keep if p in text else fresh)
            ] or ordered[:1]
            return ScriptedProposal([ReplyItem(p) for p in used], " ".join(used))

        return write(request, propose)
