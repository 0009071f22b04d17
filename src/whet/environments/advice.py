"""A small model that consults a large one before it answers: the system that Prompt-R1 trains.

Turn format of Prompt-R1 (arXiv:2511.01016): in each turn the small model thinks and either asks
(`<think>...</think><interaction_prompt>...</interaction_prompt>`) or finishes
(`<think>...</think><answer>...</answer>`). The large model, frozen, answers what it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.environments.episodes import Actor, ActorAction, ActorObservation, Conversation, WorldStep
from whet.environments.play import play
from whet.errors import quantity
from whet.replies import between
from whet.run import Run
from whet.types import Message

RULES = (
    "Answer with the help of another model. In each turn write <think>...</think>"
    "<interaction_prompt>...</interaction_prompt> to ask it, or <think>...</think><answer>...</answer> to finish."
)
STOPS = ("</interaction_prompt>", "</answer>")
LONGEST = 8000
"""Characters of a reply that the small model reads; the rest is cut."""


class Consultation:
    """One question on which the small model consults `model`, in at most `turns` turns.

    The large model sees what it was asked and answered before. The small model reads all messages of the question as one
    text.
    """

    def __init__(self, question: Conversation, model: Actor, turns: int, sample: int = 0) -> None:
        text = "\n\n".join(message.content for message in question)
        self.opening: Conversation = (Message("system", RULES), Message("user", text))
        self.turns = turns
        self._model, self._sample = model, sample
        self._before: Conversation = ()
        self._taken = 0

    async def step(self, run: Run, text: str) -> WorldStep:
        """The large model's reply to a question, or the end with the answer (None when the text has neither).

        What is asked in the last turn is not sent: there is no turn left to read the reply in.
        """
        self._taken += 1
        answers = between(text, "<answer>", "</answer>")
        questions = between(text, "<interaction_prompt>", "</interaction_prompt>")
        if answers:
            return WorldStep(done=True, answer=answers[0])
        if not questions:
            return WorldStep(done=True)
        if self._taken == self.turns:
            return WorldStep(notes={"asked": 1.0})
        messages = (*self._before, Message("user", questions[0]))
        reply = (await self._model.act(run, [ActorObservation.first(messages)], self._sample))[0]
        self._before = (*messages, Message("assistant", reply.text))
        shown = f"<interaction_response>{reply.text[:LONGEST]}</interaction_response>"
        return WorldStep(shown, usage=reply.usage, error=reply.error, notes={"asked": 1.0})


@dataclass(frozen=True)
class Consulting:
    """The small model and the large one as one actor: its text is the small model's final answer."""

    writer: Actor
    model: Actor
    turns: int

    @property
    def calls(self) -> int:
        """One less than the turns, for each call that the large model makes."""
        return max(0, self.turns - 1) * self.model.calls

    def episode(self, question: Conversation, sample: int = 0) -> Consultation:
        """One question, ready to be played by the small model."""
        return Consultation(question, self.model, self.turns, sample)

    async def act(
        self, run: Run, observations: Sequence[ActorObservation], sample: int = 0
    ) -> list[ActorAction]:
        """Consult on all conversations together; one that ends without an answer is an error."""
        played = await play(
            run, self.writer, [self.episode(h.messages, sample) for h in observations], sample
        )
        actions = []
        for one in played:
            lacking = (
                None
                if one.answer is not None
                else f"parse: no answer within {quantity(len(one.turns), 'turn')}"
            )
            record = one.turns[-1].action.record
            actions.append(ActorAction(one.answer or "", one.usage, one.error or lacking, record, one.cut))
        return actions
