"""The always-on learner: from feedback about live prompts to proposals, or to versions that are tried in stages.

The feedback is a pure fold over the events of traffic (`feedback_state`). A model reads it (`reading`); what it demands is a
pure function of that (`requirements`), and a lesson is the journalled work of turning demands into instructions
(`pipeline`). One learner works on a prompt at a time, however many there are.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from whet.errors import UsageError, WhetError
from whet.instructions.guard import visible
from whet.live.database import Database
from whet.live.learner import learner_store
from whet.live.learner.context import LearnerConfig, LearnerContext, region_of
from whet.live.learner.feedback_state import FeedbackState, PromptFeedback
from whet.live.learner.learner_store import MODE_AUTO, MODE_OFF, LearnerSettings, Lesson
from whet.live.learner.leases import held
from whet.live.learner.paid_steps import read_feedback
from whet.live.learner.pipeline import begin, follow_up, give
from whet.live.learner.requirements import Facts, LiveRequirement, find_demands, quarantined, unread
from whet.live.learner.snapshot import Memory
from whet.live.registry import ListPage, Registry
from whet.live.registry.audit import end_of_log
from whet.live.registry.registry_store import names
from whet.live.traffic import Traffic
from whet.prompt.instructions import refusal

if TYPE_CHECKING:
    from whet.live.experiments import Experiments

SECONDS = 5.0
"""How often traffic is looked at."""
DEMAND = "demand "
"""What the key of a demand begins with where a row could be meant as well."""
AUTO_NEEDS_READER = "The mode auto needs a model that reads feedback (--optimizer-lm). Without one a person writes instructions."
LISTED = 40
"""Prompts in one page of a list."""
_PART = 200
_LONGEST_PAUSE = 300.0
_HOUR = 3_600_000_000
_log = logging.getLogger("whet.learner")


class Learner:
    """Learns from the traffic of a database. Threads and processes may share the work."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        traffic: Traffic,
        experiments: Callable[[], Experiments] | None = None,
        teaching: LearnerConfig | None = None,
    ) -> None:
        memory = Memory(database, traffic)
        self.desk = LearnerContext(
            database, registry, traffic, memory, teaching or LearnerConfig(), experiments
        )
        self._idle: dict[str, tuple[Any, ...]] = {}
        self._warned = set[str]()

    def advance(self) -> FeedbackState:
        """Take in the events that arrived since; the whole feedback state."""
        return self.desk.memory.advance()

    def keep(self) -> None:
        """Save the feedback state now, so that the next process need not read it again."""
        self.desk.memory.keep()

    def settings(self, name: str) -> LearnerSettings:
        """How a prompt learns."""
        return self.desk.settings(name)

    def modes(self, names: Sequence[str]) -> list[str]:
        """The mode in which each of these prompts learns, in order."""
        with self.desk.database.read() as connection:
            return learner_store.read_modes(connection, names)

    def configure(self, name: str, settings: LearnerSettings, *, actor: str) -> None:
        """Set how a prompt (or, with the name `*`, every prompt without settings of its own) learns. Raises UsageError."""
        with self.desk.registry.change() as connection:
            learner_store.write_settings(connection, name, settings, actor)

    def decide(self, name: str, key: str, accept: bool, *, actor: str, reason: str = "") -> None:
        """Accept or dismiss a row in quarantine (by its id) or a demand (`demand KEY`). Raises UsageError.

        An accepted row counts like any other; an accepted demand is learned whatever the number of its sources, as soon as there
        is an instruction for it.
        """
        feedback = self.advance().prompts.get(name, PromptFeedback())
        with self.desk.registry.change() as connection:
            learner_store.write_verdict(connection, name, key, accept, (actor, reason))
            known = key in feedback.rows
            if key.startswith(DEMAND):
                demand = key.removeprefix(DEMAND)
                known |= demand.removeprefix("row ") in feedback.rows and demand.startswith("row ")
                known |= demand in learner_store.read_readings(connection, name).requirements
            if not known:
                raise UsageError(f'No feedback about {name} has the id "{visible(key)}". Look it up again.')

    def write(self, name: str, key: str, text: str, *, actor: str, reason: str = "") -> str:
        """Write the instruction for a demand (by its key), which is thereby accepted; the key that it has now. Raises UsageError.

        It becomes part of the next lesson in these words, with the actor as its author.
        """
        text = text.strip()
        if (why := refusal(text)) is not None:
            raise UsageError(f"This cannot be an instruction: {why}.")
        demand = next((one for one in self._demands(name) if one.key == key), None)
        if demand is None or demand.instruction:
            raise UsageError(
                f'No demand on {name} waits under "{visible(key)}" for a text. Look it up again.'
            )
        with self.desk.registry.change() as connection:
            before = learner_store.read_readings(connection, name)
            if demand.requirement in before.requirements:
                after = before.reworded(key, text, actor)
            else:
                after, key = before.write(text, actor, demand.rows)
            learner_store.write_readings(connection, name, before, after)
            learner_store.write_verdict(connection, name, f"{DEMAND}{key}", True, (actor, reason))
        return key

    def status(self, name: str, *, wait: bool = True) -> dict[str, Any]:
        """What is known and waited for about a prompt, as JSON: settings, demands, quarantine, newest lessons.

        Without `wait` a long backlog is left to whoever learns; `unread` says how many events of traffic it has. `reader` is the
        model that reads feedback here, `to_read` how many rows wait for one, `verdicts` how many rows demand nothing, and why.
        """
        desk = self.desk
        state, behind = (self.advance(), 0) if wait else desk.memory.glance(name)
        settings = desk.settings(name)
        feedback, base = state.prompts.get(name, PromptFeedback()), desk.base(name, settings)
        demands, facts, to_read = list[LiveRequirement](), Facts(settings.policy), 0
        if base is not None:
            facts, region = (
                desk.grouped(desk.facts(name, base, settings), feedback),
                region_of(base, settings),
            )
            demands = find_demands(feedback, state.clock, base, region, facts)
            to_read = len(unread(feedback, base, region, facts))
        verdicts = Counter(one.verdict for one in facts.readings.rows.values() if one.verdict)
        with desk.database.read() as connection:
            recent = learner_store.read_lessons(connection, name, limit=10)
        quarantine = [
            {
                "id": row.id,
                "source": row.who,
                "about": row.about,
                "reasons": list(row.flags),
                "texts": [row.text],
            }
            for row in quarantined(feedback, facts)
        ]
        return {
            "name": name,
            "settings": settings.as_json(),
            "version": None if base is None else base.version,
            "unread": behind,
            "reader": desk.teaching.reader or None,
            "to_read": to_read,
            "verdicts": dict(sorted(verdicts.items())),
            "warning": AUTO_NEEDS_READER if settings.mode == MODE_AUTO and not desk.teaching.reader else "",
            "rows": len(feedback.rows),
            "sources": len(feedback.first),
            "demands": [demand.as_json() for demand in demands],
            "quarantine": quarantine,
            "lessons": [lesson.as_json() for lesson in recent],
        }

    def _demands(self, name: str) -> list[LiveRequirement]:
        """What is demanded of a prompt now."""
        desk, state = self.desk, self.advance()
        settings = desk.settings(name)
        base = desk.base(name, settings)
        if base is None or name not in state.prompts:
            return []
        feedback = state.prompts[name]
        facts = desk.grouped(desk.facts(name, base, settings), feedback)
        return find_demands(feedback, state.clock, base, region_of(base, settings), facts)

    def due(self) -> list[str]:
        """The prompts that have feedback, in order."""
        prompts = self.advance().prompts
        with self.desk.database.read() as connection:
            return [name for name in names(connection) if name in prompts]

    def glance(self, after: str = "", limit: int = LISTED) -> tuple[ListPage[str], int]:
        """The same by what is known already, some at a time, and how many events of traffic are not read yet."""
        prompts, stored, unread = self.desk.memory.glance_names()
        page = list[str]()
        with self.desk.database.read() as connection:
            while len(page) <= limit and (part := names(connection, after, _PART)):
                kept = learner_store.heard_among(connection, part) if stored else ()
                page += [name for name in part if name in prompts or name in kept]
                after = part[-1]
        return ListPage(page[:limit], page[limit - 1] if len(page) > limit else None), unread

    async def step(self, name: str) -> Lesson | None:
        """Go on with the lesson of a prompt that was begun, or have some feedback read and begin one if there is enough to learn;
        what became of it.

        None when there is nothing to do, or while another learner works on the prompt. Raises WhetError when a model, a
        task or the database cannot be used; the lesson stays open then, and the next step goes on with it.
        """
        settings = self.settings(name)
        if settings.mode == MODE_OFF:
            return None
        if settings.mode == MODE_AUTO and not self.desk.teaching.reader and name not in self._warned:
            self._warned.add(name)
            _log.warning("%s: %s", name, AUTO_NEEDS_READER)
        with held(self.desk.database, f"learn {name}") as lease:
            if lease is None:
                return None
            with self.desk.database.read() as connection:
                begun = learner_store.read_lessons(connection, name, learner_store.OPEN, 1)
            if begun:
                return await give(self.desk, begun[0], settings, lease)
            mark = self._mark(name)
            progress = await read_feedback(self.desk, name, settings, lease)
            lesson = begin(self.desk, name, settings, lease)
            if lesson is not None:
                return await give(self.desk, lesson, settings, lease)
            followed = follow_up(self.desk, name, settings)
            if followed is None and not progress.more:
                self._idle[name] = mark
            return followed

    def _mark(self, name: str) -> tuple[Any, ...]:
        """What a step for a prompt depends on: as long as it is the same, there is nothing new to do."""
        state = self.advance()
        with self.desk.database.read() as connection:
            return state.prompts.get(name), state.clock // _HOUR, end_of_log(connection)

    def look(self) -> tuple[list[Lesson], dict[str, WhetError]]:
        """One step for every prompt that is due: what became of the lessons, and what went wrong, by prompt."""
        done: list[Lesson] = []
        failed: dict[str, WhetError] = {}
        for name in self.due():
            self._look_at(name, done, failed)
        return done, failed

    def _look_at(self, name: str, done: list[Lesson], failed: dict[str, WhetError]) -> None:
        try:
            if name in self._idle and self._idle[name] == self._mark(name):
                return
            lesson = asyncio.run(self.step(name))
        except WhetError as error:
            failed[name] = error
        else:
            done += [lesson] if lesson is not None else []

    def watch(
        self,
        stop: threading.Event,
        seconds: float = SECONDS,
        tell: Callable[[Lesson], None] = lambda lesson: None,
    ) -> None:
        """Learn until `stop` is set: look every few `seconds`, after failures less often; `tell` hears of each lesson."""
        pause = seconds
        while not stop.is_set():
            try:
                done, failed = self.look()
            except WhetError as error:
                done, failed = [], {"": error}
            for lesson in done:
                tell(lesson)
            for name, why in failed.items():
                _log.warning("%s: %s", name or "the database", why)
            pause = min(_LONGEST_PAUSE, 2 * pause) if failed else seconds
            stop.wait(pause)
        self.keep()
