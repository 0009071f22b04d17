"""Conversations as a world: after each answer of the model a user writes again, simulated by a model or read from the row.

A simulated user knows what the row says about them (a persona, a goal), which the model does not see. The judge's model plays
it. A scripted user says the texts of a column, whatever the model answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from whet.environments.episodes import Conversation, WorldStep
from whet.errors import UsageError, quantity
from whet.prompt import Prompt
from whet.replies import indent_further_lines, split_thought
from whet.rewards.asking import enclose_in_markers
from whet.run import Run
from whet.types import Example, Message, Request

END = "<end/>"
"""The text with which a simulated user ends the conversation."""
RULES = (
    "You play this user in a conversation with an assistant. Stay in the role, and say only what this user knows. Write only "
    "the user's next message, without a name in front. When the user has got what they want, or gives up, write "
    f"{END} and nothing else."
)
_END = re.compile(r"<end\s{0,9}/?>\W*\Z", re.IGNORECASE)
"""The end of the conversation at the end of a message; what stands before it is said too."""
TEMPERATURE = 1.0


@dataclass(frozen=True)
class DialogueWorld:
    """Conversations of at most `turns` answers of the model, each begun by the input of a row.

    `user`: the description of the simulated user, with slots that the row fills; None: the user says the texts of the column
    `script`. `answer`: what the reward grades, the whole conversation or the last answer. `path`: the file of the description.
    """

    turns: int
    user: Prompt | None = None
    script: str | None = None
    answer: Literal["conversation", "last"] = "conversation"
    path: Path | None = None
    graded: bool = True

    @property
    def name(self) -> str:
        """dialogue: with whom, and what is graded."""
        who = f"scripted by {self.script}" if self.user is None else f"with the user {self.user.id}"
        return f"dialogue {who}, {self.answer}"

    @property
    def judge_calls(self) -> int:
        """Calls of the judge's model in one conversation at most: one after each answer but the last."""
        return 0 if self.user is None else self.turns - 1

    def check(self, example: Example) -> None:
        """Raise UsageError for a row without what its user needs."""
        if self.user is None:
            self._script(example)
            return
        missing = sorted(self.user.slots - known_values(example).keys())
        if missing:
            raise UsageError(
                f"{example.place}: nothing fills {{{{{missing[0]}}}}} of the simulated user. Add the column {missing[0]!r}."
            )

    def _script(self, example: Example) -> list[str]:
        assert self.script is not None
        value: Any = example.row.get(self.script)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                value = [line for line in value.splitlines() if line.strip()]
        if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
            raise UsageError(
                f"{example.place}: the column {self.script!r} must be a list of what the user says after the first message."
            )
        return value

    def unsaid_lines(self, examples: Sequence[Example]) -> list[str]:
        """A warning of what a scripted user would say after the last answer that `turns` allows, and never does."""
        lengths = [] if self.user is not None else [(len(self._script(one)), one) for one in examples]
        longer = [(length, one) for length, one in lengths if length >= self.turns]
        if not longer:
            return []
        most, (_, first) = max(length for length, _ in longer), longer[0]
        room = (
            f"{quantity(self.turns - 1, 'line')} that the user can say within {quantity(self.turns, 'turn')}"
        )
        return [
            f"In {len(longer)} of {quantity(len(lengths), 'row')}, the first being {first.place}, the column {self.script!r} "
            f"holds more than the {room}: the rest is never said. turns: {most + 1} has room for all."
        ]

    def observe(self, example: Example) -> Example:
        """The example as it is: its input is what the user says first."""
        return example

    def reset(self, example: Example, opening: Conversation) -> DialogueEpisode:
        """A conversation that begins with the prompt and the input."""
        script = [] if self.user is not None else self._script(example)
        about = "" if self.user is None else self.user.render_text(known_values(example))
        return DialogueEpisode(self, opening, example, script, about)


def known_values(example: Example) -> dict[str, str]:
    """The names that a simulated user may know: every column of the row, and the keys of its input."""
    columns = {key: value for key, value in example.row.items() if key != "input"}
    shown = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in columns.items()
    }
    return {**shown, **example.values}


class DialogueEpisode:
    """One conversation."""

    def __init__(
        self, world: DialogueWorld, opening: Conversation, example: Example, script: list[str], about: str
    ) -> None:
        self.opening, self.turns = opening, world.turns
        self._world, self._script, self._about, self._taken = world, script, about, 0
        first = example.messages or (Message("user", example.user_text),)
        self._talk = [*first]

    async def step(self, run: Run, text: str) -> WorldStep:
        """The user's reply to the model's text, or the end."""
        self._taken += 1
        self._talk.append(Message("assistant", text))
        if self._taken == self.turns:
            return self._end(text)
        if self._world.user is None:
            if self._taken > len(self._script):
                return self._end(text)
            return self._go_on(self._script[self._taken - 1])
        shown = enclose_in_markers("The conversation so far", transcript(self._talk))
        request = Request(
            (Message("system", f"{self._about}\n\n{RULES}"), Message("user", shown)), TEMPERATURE
        )
        reply = (await run.generate("judge", request))[0]
        if reply.error is not None:
            return WorldStep(error=reply.error, usage=reply.usage)
        news = split_thought(reply.text).answer.strip()
        end = _END.search(news)
        words = news if end is None else news[: end.start()].strip()
        if words and end is None:
            return self._go_on(words)
        if words:
            self._talk.append(Message("user", words))
        return self._end(text, ended=1.0)

    def _go_on(self, news: str) -> WorldStep:
        self._talk.append(Message("user", news))
        return WorldStep(news)

    def _end(self, text: str, **notes: float) -> WorldStep:
        whole = self._world.answer == "conversation"
        return WorldStep(done=True, answer=transcript(self._talk) if whole else text, notes=notes)


def transcript(talk: list[Message]) -> str:
    """A conversation as one text, a line for each message; further lines of a message are indented."""
    return "\n".join(f"{message.role}: {indent_further_lines(message.content)}" for message in talk)


def load_dialogue(folder: Path, values: Mapping[str, Any], turns: int) -> DialogueWorld:
    """The world that `environment: {user: FILE}` or `{script: COLUMN}` describes. Raises UsageError for an unreadable file."""
    answer = values.get("answer", "conversation")
    if "script" in values:
        return DialogueWorld(turns, None, values["script"], answer)
    path = folder / values["user"]
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {reason}. Name a text file.") from None
    return DialogueWorld(turns, Prompt.parse(text, str(path)), None, answer, path)
