"""The always-on learner: from feedback about live prompts to proposals, or to versions that are tried in stages.

The feedback is a pure fold over the events of traffic (`feedback_state`). A model reads it (`reading`); what it requires is a
pure function of that (`requirements`), and an update is the journalled work of turning requirements into instructions
(`pipeline`). One learner works on a prompt at a time, however many there are.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

from whet._util.blocking import blocking
from whet.errors import UsageError, WhetError
from whet.instructions.answers import VAGUE
from whet.instructions.guard import visible
from whet.prompt.instructions import reason_to_refuse, without_list_mark
from whet_live.database import Database, ListPage, iso
from whet_live.learner import learner_store
from whet_live.learner.context import FeedbackSnapshot, LearnerConfig, LearnerContext, region_of
from whet_live.learner.dates import Carried, apply_dates, restore
from whet_live.learner.evaluation import evaluate_answers, read_evaluators
from whet_live.learner.feedback_state import FeedbackState, PromptFeedback
from whet_live.learner.history import find_trials, history_of
from whet_live.learner.learner_store import MODE_AUTO, MODE_OFF, LearnerSettings, PromptUpdate
from whet_live.learner.leases import hold
from whet_live.learner.paid_steps import read_unread_feedback
from whet_live.learner.pattern_edits import merge_patterns, rename_pattern
from whet_live.learner.pattern_reading import PatternName
from whet_live.learner.pattern_report import WEEKS, PatternReport, WeeklyUsers, report_patterns
from whet_live.learner.patterns import PatternStep, name_patterns
from whet_live.learner.pipeline import begin_update, begin_upkeep, follow_up, run_update
from whet_live.learner.reader_check import reader_fault
from whet_live.learner.reading import UNREADABLE
from whet_live.learner.requirements import (
    CONTESTED,
    LiveRequirement,
    RequirementEvidence,
    find_quarantined,
    find_requirements,
    unread,
)
from whet_live.learner.searching import read_searches, search_prompt
from whet_live.learner.terms import (
    InstructionTerms,
    names_with_dates,
    read_dates,
    read_review,
    read_terms,
    write_terms,
)
from whet_live.registry import Registry, Version
from whet_live.registry.audit import end_of_log
from whet_live.registry.labels import ChangeActor
from whet_live.registry.names import ANY_PROMPT
from whet_live.registry.registry_store import prompt_names
from whet_live.traffic import Traffic

if TYPE_CHECKING:
    from whet_live.experiments import Experiments

SECONDS = 5.0
"""The time between two looks at the traffic."""
REQUIREMENT = "requirement "
"""The prefix of a requirement's key where a row could be meant as well."""
AUTO_NEEDS_READER = "The mode auto needs a model that reads feedback (--optimizer-lm). Without one a person writes instructions."
AGAIN = (UNREADABLE, VAGUE)
"""Verdicts of comments that a better reader, or one that sees more, may understand."""
LISTED = 40
"""Prompts in one page of a list."""
_PART = 200
_MOST_TRIALS = 200
"""The newest updates of a prompt among which trials without an instruction are looked for."""
_LONGEST_PAUSE = 300.0
_HOUR = 3_600_000_000
_QUARTER = _HOUR // 4
"""The time between two counts of critiques that wait for the reader, if no others came."""
_PATTERNS = "the patterns of failures: "
_log = logging.getLogger("whet.learner")


@dataclass(frozen=True)
class WaitingCount:
    """How much waits for a person about one prompt: comments that nobody has read, where no model reads here; comments in
    quarantine; and requirements that have their sources, and of which too many people want the contrary."""

    unread: int
    quarantined: int
    contested: int


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
        self._sorted: dict[str, tuple[PromptFeedback | None, int]] = {}
        self._users = WeeklyUsers()
        self._warned = set[str]()
        with database.read() as connection:
            self._faults = learner_store.names_of_faults(connection) if learns else set[str]()

    def _read_state(self, name: str) -> FeedbackState:
        """The state for a decision: the whole feedback state, or the cached one if another process learns."""
        return self.advance() if self.learns else self.context.snapshot.cached_state(name)[0]

    def advance(self) -> FeedbackState:
        """Take in the events that arrived since; the whole feedback state."""
        return self.context.snapshot.advance()

    def keep(self) -> None:
        """Save the feedback state now, so that the next process need not read it again."""
        self.context.snapshot.keep()

    def settings(self, name: str) -> LearnerSettings:
        """Return the settings by which a prompt learns."""
        return self.context.settings(name)

    def modes(self, names: Sequence[str]) -> list[str]:
        """The mode in which each of these prompts learns, in order."""
        with self.context.database.read() as connection:
            return learner_store.read_modes(connection, names)

    def configure(self, name: str, settings: LearnerSettings, *, actor: str) -> None:
        """Set how a prompt (or, with the name `*`, every prompt without settings of its own) learns. Raises UsageError.

        Where the reader of one prompt sees more from now on, comments that were too vague for it are read again.
        """
        with self.context.registry.change() as connection:
            before = learner_store.read_settings(connection, name)
            learner_store.write_settings(connection, name, settings, actor)
            if name != ANY_PROMPT and settings.in_context and settings.reads != before.reads:
                reason = f"the reader reads the {settings.reads} from now on"
                learner_store.forget_readings(connection, name, AGAIN, actor, reason)

    def decide(self, name: str, key: str, accept: bool, *, actor: str, reason: str = "") -> None:
        """Accept or dismiss a row in quarantine (by its id) or a requirement (`requirement KEY`). Raises UsageError.

        An accepted row counts like any other; an accepted requirement is learned whatever the number of its sources, as soon
        as there is an instruction for it.
        """
        feedback = self.settings(name).select_rows(self._read_state(name).prompts.get(name, PromptFeedback()))
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
        requirement = next(
            (requirement for requirement in self._requirements(name) if requirement.key == key), None
        )
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

    def instructions(self, name: str) -> list[dict[str, object]]:
        """The instructions of a prompt, those that left included, each with its terms as JSON values: `locked`, `first_day`,
        `last_day`, `review`, who set them, and whether a review is due. `measured` is how often people asked for one before and
        while it stood, by the answers of each version, with a 95% interval of the fall; None where that is not known. Raises
        UsageError where the prompt has no version under the label that is learned for."""
        base, region = self._require_base(name)
        with self.context.database.read() as connection:
            terms = read_terms(connection, name, region, base.ledger(region))
            readings = learner_store.read_readings(connection, name)
        today, state = self.context.today(), self.context.snapshot.cached_state(name)[0]
        feedback = self.settings(name).select_rows(state.prompts.get(name, PromptFeedback()))
        effects = history_of(self.context, base, region, feedback, readings).effects
        measures = effects.measure(
            {instruction.id: instruction.text for instruction in base.ledger(region).active}
        )
        measured = {measure.id: asdict(measure.effect) for measure in measures}
        rows = []
        for one in base.ledger(region).instructions.values():
            own = terms.get(one.id, InstructionTerms())
            more = {"review_due": own.due_for_review(today), "measured": measured.get(one.id)}
            rows.append({"region": region, **asdict(one), **own.as_json(), **more})
        return rows

    def terms(self, version: Version) -> dict[tuple[str, str], InstructionTerms]:
        """The terms of a version's instructions, by region and id."""
        with self.context.database.read() as connection:
            by_region = {
                region: read_terms(connection, version.name, region, version.ledger(region))
                for region in version.ledgers
            }
        return {(region, key): one for region, terms in by_region.items() for key, one in terms.items()}

    def trials(self, version: Version) -> dict[tuple[str, str], Mapping[str, Any]]:
        """The measurements of upkeep without each of a version's instructions, by region and id, as far as they were tried
        recently."""
        region = region_of(version, self.settings(version.name))
        with self.context.database.read() as connection:
            updates = learner_store.read_updates(connection, version.name, limit=_MOST_TRIALS)
        trials = find_trials(self.context, version, region, updates)
        return {(region, key): gate for key, gate in trials.items()}

    def version_and_region(self, name: str) -> tuple[int, str]:
        """The version that is learned for, 0 where the label does not stand, and the region of its instructions."""
        settings = self.settings(name)
        base = self.context.base(name, settings)
        return (0, "") if base is None else (base.version, region_of(base, settings))

    def set_terms(
        self,
        name: str,
        key: str,
        *,
        actor: str,
        reason: str = "",
        locked: bool | None = None,
        dates: str | None = None,
        review: str | None = None,
    ) -> InstructionTerms:
        """Lock or unlock an instruction, set the days between which it stands (`read_dates`; `..` for none) and the day of its
        review (empty for none); what is None stays. Raises UsageError."""
        base, region = self._require_base(name)
        ledger = base.ledger(region)
        first_last = None if dates is None else read_dates(dates)
        day = None if review is None else read_review(review)
        with self.context.registry.change() as connection:
            old = read_terms(connection, name, region, ledger).get(key, InstructionTerms())
            first, last = (old.first_day, old.last_day) if first_last is None else first_last
            terms = InstructionTerms(
                old.locked if locked is None else locked, first, last, old.review if day is None else day, actor, reason
            )  # fmt: skip
            return write_terms(connection, (name, region), ledger, key, terms)

    def restore(self, name: str, key: str, *, actor: str, reason: str = "") -> Carried:
        """Have an instruction that left stand again: a version and the label there or, where the label is protected, a proposal
        that somebody else approves. Raises UsageError."""
        base, _ = self._require_base(name)
        return restore(self.context, name, self.settings(name), base, key, ChangeActor(actor, reason))

    def _require_base(self, name: str) -> tuple[Version, str]:
        """The version that is learned for, and the region of its instructions."""
        settings = self.settings(name)
        base = self.context.base(name, settings)
        if base is None:
            self.context.registry.labels(name)
            raise UsageError(f"No version of {name} has the label {settings.label}, which is learned for.")
        return base, region_of(base, settings)

    def read_again(self, name: str, *, actor: str, reason: str = "", vague: bool = False) -> int:
        """Have the reader read the rows again for which no answer could be used and, with `vague`, those of which it could not
        tell what should change; how many they are. Raises UsageError for an unknown prompt."""
        verdicts = AGAIN if vague else (UNREADABLE,)
        with self.context.registry.change() as connection:
            return learner_store.forget_readings(connection, name, verdicts, actor, reason)

    def fault(self) -> str:
        """Why the reader does not answer, as far as whoever learns knows; empty where nothing is known against it."""
        with self.context.database.read() as connection:
            return learner_store.read_faults(connection, [learner_store.READER]).get(
                learner_store.READER, ("", 0)
            )[0]

    def status(self, name: str, *, wait: bool = True) -> dict[str, object]:
        """The learner's state of a prompt, as JSON: settings, requirements, quarantine, newest updates.

        Without `wait` a long backlog is left to whoever learns; `unread` says how many events of traffic it has. `reader` is the
        model that reads feedback here, `to_read` how many rows wait for one, `verdicts` how many rows require nothing, and why,
        `faults` what keeps whoever learns from going on: that the reader does not answer, that the last step failed.
        """
        context = self.context
        state, behind = (self.advance(), 0) if wait else context.snapshot.cached_state(name)
        settings = context.settings(name)
        feedback = settings.select_rows(state.prompts.get(name, PromptFeedback()))
        base = context.base(name, settings)
        requirements, facts, to_read = list[LiveRequirement](), RequirementEvidence(settings.policy), 0
        if base is not None:
            facts, region = (
                context.add_neighbours(context.facts(name, base, settings), feedback),
                region_of(base, settings),
            )
            requirements = find_requirements(feedback, state.clock, base, region, facts)
            to_read = len(unread(feedback, base, region, facts))
        verdicts = Counter(row.verdict for row in facts.readings.rows.values() if row.verdict)
        read = verdicts or any(not one.author for one in facts.readings.requirements.values())
        unguided = settings.mode == MODE_AUTO and not context.config.reader and not read
        with context.database.read() as connection:
            recent = learner_store.read_updates(connection, name, limit=10)
            faults = learner_store.read_faults(connection, [learner_store.READER, name])
            evaluators = [state.as_json() for state in read_evaluators(connection, name)]
            searches = [one.as_json() for one in read_searches(connection, name)]
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
            "warning": AUTO_NEEDS_READER if unguided else "",
            "faults": [{"message": why, "at": iso(at)} for why, at in faults.values()],
            "evaluators": evaluators,
            "searches": searches,
            "rows": len(feedback.rows),
            "sources": len(feedback.first),
            "requirements": [requirement.as_json() for requirement in requirements],
            "quarantine": quarantine,
            "updates": [update.as_json() for update in recent],
            # The keys of 0.1.0, for programs that read them.
            "demands": [
                {**requirement.as_json(), "requirement": requirement.requirement_id}
                for requirement in requirements
            ],
            "lessons": [update.as_json() for update in recent],
        }

    def count_waiting(self, names: Sequence[str]) -> dict[str, WaitingCount]:
        """Count what waits for a person, for each of these prompts about which something does; from cached state."""
        waiting = {}
        for name in names:
            state = self.context.snapshot.cached_state(name)[0]
            rows = state.prompts.get(name, PromptFeedback()).rows
            if not rows:
                continue
            with self.context.database.read() as connection:
                accepted, dismissed = learner_store.read_decisions(connection, name)
                readings = learner_store.read_readings(connection, name)
                updates = learner_store.read_updates(connection, name)
                settings = learner_store.read_settings(connection, name)
            evidence = RequirementEvidence(settings.policy, in_context=settings.in_context)
            learned = {row for one in updates if one.outcome != learner_store.STALE for row in one.rows}
            left = [row for row in rows.values() if row.id not in dismissed | learned]
            flagged = sum(bool(row.flags) and row.id not in accepted for row in left)
            read = {
                evidence.wording(rows[key]) for key, one in readings.rows.items() if one.done and key in rows
            }
            unread_rows = [row for row in left if not row.flags and evidence.wording(row) not in read]
            contested = 0
            if any(one.contradicts for one in readings.requirements.values()):
                contested = sum(one.state == CONTESTED for one in self._requirements_in(state, name))
            count = WaitingCount(0 if self.context.config.reader else len(unread_rows), flagged, contested)
            if any(astuple(count)):
                waiting[name] = count
        return waiting

    def _requirements(self, name: str) -> list[LiveRequirement]:
        """The current requirements on a prompt."""
        return self._requirements_in(self._read_state(name), name)

    def _requirements_in(self, state: FeedbackState, name: str) -> list[LiveRequirement]:
        context = self.context
        settings = context.settings(name)
        base = context.base(name, settings)
        if base is None or name not in state.prompts:
            return []
        feedback = settings.select_rows(state.prompts[name])
        facts = context.add_neighbours(context.facts(name, base, settings), feedback)
        return find_requirements(feedback, state.clock, base, region_of(base, settings), facts)

    def due(self) -> list[str]:
        """The prompts that have feedback, or instructions with dates, in order."""
        prompts = self.advance().prompts
        with self.context.database.read() as connection:
            dated = names_with_dates(connection)
            return [name for name in prompt_names(connection) if name in prompts or name in dated]

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
        """Go on with the update of a prompt that was begun, carry out dates of instructions that are due, or have some feedback
        read and begin an update if there is enough to learn; what became of it. Where learning is off, dates are carried out
        still.

        None when there is nothing to do, or while another learner works on the prompt. Raises WhetError when a model, a
        task or the database cannot be used; the update stays open then, and the next step goes on with it.
        """
        settings = self.settings(name)
        if settings.mode == MODE_OFF:
            return self._step_when_off(name, settings)
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
            dated = apply_dates(self.context, name, settings, lease)
            if dated is not None:
                return dated
            more = await read_unread_feedback(self.context, name, settings, lease)
            update = begin_update(self.context, name, settings, lease)
            if update is not None:
                return await run_update(self.context, update, settings, lease)
            followed = follow_up(self.context, name, settings)
            if followed is not None or more:
                return followed
            if (step := begin_upkeep(self.context, name, settings, lease)) is not None:
                return await run_update(self.context, step, settings, lease)
            self._idle[name] = mark
            return None

    def _step_when_off(self, name: str, settings: LearnerSettings) -> PromptUpdate | None:
        with hold(self.context.database, f"learn {name}") as lease:
            mark = self._mark(name)
            dated = None if lease is None else apply_dates(self.context, name, settings, lease)
            if lease is not None and dated is None:
                self._idle[name] = mark
            return dated

    def _mark(self, name: str) -> tuple[object, ...]:
        """A key of everything that a step for a prompt depends on. While it stays the same, there is nothing new to do."""
        state = self.advance()
        with self.context.database.read() as connection:
            log = end_of_log(connection)
        return state.prompts.get(name), state.clock // _HOUR, log, self.context.today()

    def _wait_for_step(self, name: str) -> PromptUpdate | None:
        """One step, waited for; in the main thread a reward function that hangs ends at its time limit."""
        return blocking(self.step)(name)

    def look(self) -> tuple[list[PromptUpdate], dict[str, WhetError]]:
        """The evaluators, a step for every prompt that is due, patterns of failures, and searches: what became of updates, and
        what went wrong."""
        done: list[PromptUpdate] = []
        failed = self._evaluate()
        for name in self.due():
            try:
                idle = name in self._idle and self._idle[name] == self._mark(name)
                update = None if idle else self._wait_for_step(name)
                done += [update] if update is not None else []
            except WhetError as error:
                failed[name] = error
                self._note_fault(name, str(error))
            else:
                if not idle and name not in failed:
                    self._note_fault(name, "")
        return done, failed | self._name_patterns() | self._search()

    def _evaluate(self) -> dict[str, WhetError]:
        """Have the evaluators grade what they may now; what went wrong, by prompt."""
        failed: dict[str, WhetError] = {}
        for config in self.context.config.evaluators:
            try:
                blocking(evaluate_answers)(self.context, config)
            except WhetError as error:
                failed[config.prompt] = error
                self._note_fault(config.prompt, f"the evaluator {config.task.name}: {error}")
        return failed

    def _name_patterns(self) -> dict[str, WhetError]:
        """Have the reader sort critiques into patterns where it may now; what went wrong, by prompt."""
        failed: dict[str, WhetError] = {}
        config = self.context.config
        prompts = self.advance().prompts if config.reader and config.pattern_calls else {}
        quarter = self.context.database.read_time() // _QUARTER if prompts else 0
        for name in self.due() if prompts else ():
            mark = prompts.get(name), quarter
            old = self._sorted.get(name)
            if mark[0] is None or (old is not None and old[0] is mark[0] and old[1] == mark[1]):
                continue
            if self.settings(name).mode == MODE_OFF:
                continue
            try:
                step = blocking(name_patterns)(self.context, name, config.pattern_calls)
            except WhetError as error:
                failed[name] = error
                self._note_fault(name, f"{_PATTERNS}{error}")
                continue
            self._forget_fault(name, _PATTERNS)
            if not step.more:
                self._sorted[name] = mark
        return failed

    def _forget_fault(self, name: str, begin: str) -> None:
        """Forget what went wrong for a prompt where the words begin so: it works again."""
        if name not in self._faults:
            return
        with self.context.database.read() as connection:
            message = learner_store.read_faults(connection, [name]).get(name, ("", 0))[0]
        if message.startswith(begin):
            self._note_fault(name, "")

    def _search(self) -> dict[str, WhetError]:
        """Have methods search for better prompts where they may today; what went wrong, by prompt."""
        failed: dict[str, WhetError] = {}
        for config in self.context.config.searches:
            try:
                blocking(search_prompt)(self.context, config)
            except WhetError as error:
                failed[config.prompt] = error
                self._note_fault(config.prompt, f"the search: {error}")
        return failed

    def patterns(self, name: str, weeks: int = WEEKS) -> PatternReport:
        """The patterns of failures of a prompt, counted, with the last `weeks` weeks. Raises UsageError for an unknown prompt
        and for a number of weeks that cannot be."""
        return report_patterns(self.context.database, name, weeks, users=self._users)

    def name_patterns(self, name: str, daily: int) -> PatternStep:
        """Have the reader sort the critiques of a prompt that wait, within the rest of the `daily` calls of today; returns a
        report. Raises UsageError without a reader and for an unknown prompt, ProviderError where the reader does not answer."""
        report_patterns(self.context.database, name, 1)
        return blocking(name_patterns)(self.context, name, daily, whole_day=True, packs=daily)

    def rename_pattern(
        self, name: str, key: str, title: str, *, description: str | None = None, actor: str, reason: str = ""
    ) -> PatternName:
        """Give the pattern `key` of a prompt another name and, where one is given, another description; see `rename_pattern`.
        Raises UsageError."""
        with self.context.registry.change() as connection:
            return rename_pattern(connection, name, key, title, description, ChangeActor(actor, reason))

    def merge_patterns(self, name: str, key: str, into: str, *, actor: str, reason: str = "") -> int:
        """Put the critiques of the pattern `key` of a prompt into another one; how many they are. Raises UsageError."""
        with self.context.registry.change() as connection:
            return merge_patterns(connection, name, key, into, ChangeActor(actor, reason))

    def check_reader(self) -> str:
        """Ask the reader for one short answer and remember whether it came; why it did not, empty where it did."""
        fault = reader_fault(self.context.config)
        self._note_fault(learner_store.READER, fault)
        return fault

    def _note_fault(self, name: str, message: str) -> None:
        if not message and name not in self._faults:
            return
        with self.context.database.begin() as connection:
            learner_store.remember_fault(connection, name, message)
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
