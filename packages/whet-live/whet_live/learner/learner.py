"""The always-on learner: from feedback about live prompts to proposals, or to versions that are tried in stages.

The feedback is a pure fold over the events of traffic (`feedback_state`). A model reads it (`reading`); what it requires is a
pure function of that (`requirements`), and an update is the journalled work of turning requirements into instructions
(`pipeline`). One learner works on a prompt at a time, however many there are.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from whet._util.blocking import blocking
from whet.errors import UsageError, WhetError
from whet.instructions.guard import visible
from whet.prompt.instructions import reason_to_refuse, without_list_mark
from whet_live.database import Database, ListPage, iso
from whet_live.learner import learner_store
from whet_live.learner.context import FeedbackSnapshot, LearnerConfig, LearnerContext, region_of
from whet_live.learner.feedback_state import FeedbackState, PromptFeedback
from whet_live.learner.learner_store import MODE_AUTO, MODE_OFF, LearnerSettings, PromptUpdate
from whet_live.learner.leases import hold
from whet_live.learner.paid_steps import read_unread_feedback
from whet_live.learner.pipeline import begin_update, follow_up, run_update
from whet_live.learner.reader_check import reader_fault
from whet_live.learner.requirements import (
    LiveRequirement,
    RequirementEvidence,
    find_quarantined,
    find_requirements,
    unread,
)
from whet_live.registry import Registry
from whet_live.registry.audit import end_of_log
from whet_live.registry.registry_store import prompt_names
from whet_live.traffic import Traffic

if TYPE_CHECKING:
    from whet_live.experiments import Experiments

SECONDS = 5.0
"""How often traffic is looked at."""
REQUIREMENT = "requirement "
"""What the key of a requirement begins with where a row could be meant as well."""
AUTO_NEEDS_READER = "The mode auto needs a model that reads feedback (--optimizer-lm). Without one a person writes instructions."
LISTED = 40
"""Prompts in one page of a list."""
_PART = 200
_LONGEST_PAUSE = 300.0
_HOUR = 3_600_000_000
_log = logging.getLogger("whet.learner")


class Learner:
    """Learns from the traffic of a database. Threads and processes may share the work. One that does not learn (`learns`)
    shows and takes decisions, and leaves a long backlog to those that do."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        traffic: Traffic,
        experiments: Callable[[], Experiments] | None = None,
        config: LearnerConfig | None = None,
        *,
        learns: bool = True,
    ) -> None:
        snapshot = FeedbackSnapshot(database, traffic)
        self.context = LearnerContext(
            database, registry, traffic, snapshot, config or LearnerConfig(), experiments
        )
        self.learns = learns
        self._idle: dict[str, tuple[object, ...]] = {}
        self._warned = set[str]()
        with database.read() as connection:
            self._faults = learner_store.names_of_faults(connection) if learns else set[str]()

    def _read_state(self, name: str) -> FeedbackState:
        """What somebody decides by: the whole feedback state, or what is known of it already where others learn."""
        return self.advance() if self.learns else self.context.snapshot.cached_state(name)[0]

    def advance(self) -> FeedbackState:
        """Take in the events that arrived since; the whole feedback state."""
        return self.context.snapshot.advance()

    def keep(self) -> None:
        """Save the feedback state now, so that the next process need not read it again."""
        self.context.snapshot.keep()

    def settings(self, name: str) -> LearnerSettings:
        """How a prompt learns."""
        return self.context.settings(name)

    def modes(self, names: Sequence[str]) -> list[str]:
        """The mode in which each of these prompts learns, in order."""
        with self.context.database.read() as connection:
            return learner_store.read_modes(connection, names)

    def configure(self, name: str, settings: LearnerSettings, *, actor: str) -> None:
        """Set how a prompt (or, with the name `*`, every prompt without settings of its own) learns. Raises UsageError."""
        with self.context.registry.change() as connection:
            learner_store.write_settings(connection, name, settings, actor)

    def decide(self, name: str, key: str, accept: bool, *, actor: str, reason: str = "") -> None:
        """Accept or dismiss a row in quarantine (by its id) or a requirement (`requirement KEY`). Raises UsageError.

        An accepted row counts like any other; an accepted requirement is learned whatever the number of its sources, as soon
        as there is an instruction for it.
        """
        feedback = self._read_state(name).prompts.get(name, PromptFeedback())
        key = REQUIREMENT + key.removeprefix("demand ") if key.startswith("demand ") else key
        with self.context.registry.change() as connection:
            learner_store.write_decision(connection, name, key, accept, actor, reason)
            known = key in feedback.rows
            if key.startswith(REQUIREMENT):
                requirement = key.removeprefix(REQUIREMENT)
                known |= requirement.removeprefix("row ") in feedback.rows and requirement.startswith("row ")
                known |= requirement in learner_store.read_readings(connection, name).requirements
            if not known:
                raise UsageError(f'No feedback about {name} has the id "{visible(key)}". Look it up again.')

    def write(self, name: str, key: str, text: str, *, actor: str, reason: str = "") -> str:
        """Write the instruction for a requirement (by its key), which accepts it; the key that it has now. Raises UsageError.

        It becomes part of the next update in these words, with the actor as its author.
        """
        text = without_list_mark(text.strip())
        if (why := reason_to_refuse(text)) is not None:
            raise UsageError(f"This cannot be an instruction: {why}.")
        requirement = next((one for one in self._requirements(name) if one.key == key), None)
        if requirement is None or requirement.instruction:
            raise UsageError(
                f'No requirement on {name} waits under "{visible(key)}" for a text. Look it up again.'
            )
        with self.context.registry.change() as connection:
            before = learner_store.read_readings(connection, name)
            if requirement.requirement_id in before.requirements:
                after = before.reword(key, text, actor)
            else:
                after, key = before.write(text, actor, requirement.rows)
            learner_store.write_readings(connection, name, before, after)
            learner_store.write_decision(connection, name, f"{REQUIREMENT}{key}", True, actor, reason)
        return key

    def read_again(self, name: str, *, actor: str, reason: str = "") -> int:
        """Have the reader read the rows again for which no answer could be used; how many they are. Raises UsageError for an
        unknown prompt."""
        with self.context.registry.change() as connection:
            return learner_store.forget_unreadable(connection, name, actor, reason)

    def fault(self) -> str:
        """Why the reader does not answer, as far as whoever learns knows; empty where nothing is known against it."""
        with self.context.database.read() as connection:
            return learner_store.read_faults(connection, [learner_store.READER]).get(
                learner_store.READER, ("", 0)
            )[0]

    def status(self, name: str, *, wait: bool = True) -> dict[str, object]:
        """What is known and waited for about a prompt, as JSON: settings, requirements, quarantine, newest updates.

        Without `wait` a long backlog is left to whoever learns; `unread` says how many events of traffic it has. `reader` is the
        model that reads feedback here, `to_read` how many rows wait for one, `verdicts` how many rows require nothing, and why,
        `faults` what keeps whoever learns from going on: that the reader does not answer, that the last step failed.
        """
        context = self.context
        state, behind = (self.advance(), 0) if wait else context.snapshot.cached_state(name)
        settings = context.settings(name)
        feedback, base = state.prompts.get(name, PromptFeedback()), context.base(name, settings)
        requirements, facts, to_read = list[LiveRequirement](), RequirementEvidence(settings.policy), 0
        if base is not None:
            facts, region = (
                context.add_neighbours(context.facts(name, base, settings), feedback),
                region_of(base, settings),
            )
            requirements = find_requirements(feedback, state.clock, base, region, facts)
            to_read = len(unread(feedback, base, region, facts))
        verdicts = Counter(one.verdict for one in facts.readings.rows.values() if one.verdict)
        with context.database.read() as connection:
            recent = learner_store.read_updates(connection, name, limit=10)
            faults = learner_store.read_faults(connection, [learner_store.READER, name])
        quarantine = [
            {
                "id": row.id,
                "source": row.who,
                "about": row.about,
                "reasons": list(row.flags),
                "texts": [row.text],
            }
            for row in find_quarantined(feedback, facts)
        ]
        return {
            "name": name,
            "settings": settings.as_json(),
            "version": None if base is None else base.version,
            "unread": behind,
            "reader": context.config.reader or None,
            "to_read": to_read,
            "verdicts": dict(sorted(verdicts.items())),
            "warning": AUTO_NEEDS_READER if settings.mode == MODE_AUTO and not context.config.reader else "",
            "faults": [{"message": why, "at": iso(at)} for why, at in faults.values()],
            "rows": len(feedback.rows),
            "sources": len(feedback.first),
            "requirements": [requirement.as_json() for requirement in requirements],
            "quarantine": quarantine,
            "updates": [update.as_json() for update in recent],
            # The keys of 0.1.0, for programs that read them.
            "demands": [{**one.as_json(), "requirement": one.requirement_id} for one in requirements],
            "lessons": [update.as_json() for update in recent],
        }

    def _requirements(self, name: str) -> list[LiveRequirement]:
        """What is required of a prompt now."""
        context, state = self.context, self._read_state(name)
        settings = context.settings(name)
        base = context.base(name, settings)
        if base is None or name not in state.prompts:
            return []
        feedback = state.prompts[name]
        facts = context.add_neighbours(context.facts(name, base, settings), feedback)
        return find_requirements(feedback, state.clock, base, region_of(base, settings), facts)

    def due(self) -> list[str]:
        """The prompts that have feedback, in order."""
        prompts = self.advance().prompts
        with self.context.database.read() as connection:
            return [name for name in prompt_names(connection) if name in prompts]

    def cached_state(self, after: str = "", limit: int = LISTED) -> tuple[ListPage[str], int]:
        """The same by what is known already, some at a time, and how many events of traffic are not read yet."""
        prompts, stored, unread = self.context.snapshot.cached_names()
        page = list[str]()
        with self.context.database.read() as connection:
            while len(page) <= limit and (part := prompt_names(connection, after, _PART)):
                kept = learner_store.kept_among(connection, part) if stored else ()
                page += [name for name in part if name in prompts or name in kept]
                after = part[-1]
        return ListPage.of(page, limit, str), unread

    async def step(self, name: str) -> PromptUpdate | None:
        """Go on with the update of a prompt that was begun, or have some feedback read and begin one if there is enough to learn;
        what became of it.

        None when there is nothing to do, or while another learner works on the prompt. Raises WhetError when a model, a
        task or the database cannot be used; the update stays open then, and the next step goes on with it.
        """
        settings = self.settings(name)
        if settings.mode == MODE_OFF:
            return None
        if settings.mode == MODE_AUTO and not self.context.config.reader and name not in self._warned:
            self._warned.add(name)
            _log.warning("%s: %s", name, AUTO_NEEDS_READER)
        with hold(self.context.database, f"learn {name}") as lease:
            if lease is None:
                return None
            with self.context.database.read() as connection:
                begun = learner_store.read_updates(connection, name, learner_store.OPEN, 1)
            if begun:
                return await run_update(self.context, begun[0], settings, lease)
            mark = self._mark(name)
            more = await read_unread_feedback(self.context, name, settings, lease)
            update = begin_update(self.context, name, settings, lease)
            if update is not None:
                return await run_update(self.context, update, settings, lease)
            followed = follow_up(self.context, name, settings)
            if followed is None and not more:
                self._idle[name] = mark
            return followed

    def _mark(self, name: str) -> tuple[object, ...]:
        """What a step for a prompt depends on: as long as it is the same, there is nothing new to do."""
        state = self.advance()
        with self.context.database.read() as connection:
            return state.prompts.get(name), state.clock // _HOUR, end_of_log(connection)

    def _wait_for_step(self, name: str) -> PromptUpdate | None:
        """One step, waited for; in the main thread a reward function that hangs ends at its time limit."""
        return blocking(self.step)(name)

    def look(self) -> tuple[list[PromptUpdate], dict[str, WhetError]]:
        """One step for every prompt that is due: what became of the updates, and what went wrong, by prompt."""
        done: list[PromptUpdate] = []
        failed: dict[str, WhetError] = {}
        for name in self.due():
            try:
                idle = name in self._idle and self._idle[name] == self._mark(name)
                update = None if idle else self._wait_for_step(name)
                done += [update] if update is not None else []
            except WhetError as error:
                failed[name] = error
                self._note_fault(name, str(error))
            else:
                if not idle:
                    self._note_fault(name, "")
        return done, failed

    def check_reader(self) -> str:
        """Ask the reader for one short answer and remember whether it came; why it did not, empty where it did."""
        fault = reader_fault(self.context.config)
        self._note_fault(learner_store.READER, fault)
        return fault

    def _note_fault(self, name: str, message: str) -> None:
        if not message and name not in self._faults:
            return
        with self.context.database.begin() as connection:
            learner_store.write_fault(connection, name, message)
        (self._faults.add if message else self._faults.discard)(name)

    def watch(
        self,
        stop: threading.Event,
        seconds: float = SECONDS,
        tell: Callable[[PromptUpdate], None] = lambda update: None,
    ) -> None:
        """Learn until `stop` is set: look every few `seconds`, after failures less often; `tell` is called with each update."""
        pause = seconds
        while not stop.is_set():
            try:
                done, failed = self.look()
            except WhetError as error:
                done, failed = [], {"": error}
            silent = learner_store.READER in self._faults and bool(self.check_reader())
            for update in done:
                tell(update)
            for name, why in failed.items():
                _log.warning("%s: %s", name or "the database", why)
            pause = min(_LONGEST_PAUSE, 2 * pause) if failed or silent else seconds
            stop.wait(pause)
        self.keep()
