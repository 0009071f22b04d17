"""SkillOpt-Sleep: rows of a day are replayed at night, and a short block of rules learns from the good and bad answers to each.

SkillOpt. Microsoft, 2026. arXiv:2605.23904: the part that consolidates logs (github.com/microsoft/SkillOpt, 0.2.0).

    for each night, with the rows of a day:
        held <- a third of the rows;  the others teach, with `recall` earlier training rows that are most like them
        abstain where a held row is among those that teach
        answer each teaching row K times;  rows with the largest spread between best and worst answer are shown,
            or failures where no row has any
        the writer adds, changes or deletes up to 4 rules;  score the held rows anew with the old and the new rules
        strictly better: adopt
    return the rules, if they win on validation rows

Differences from the published code:
1. The K answers to a row are different samples, of a temperature above 0. There they came from one cached sample for a time, so
   that no row had a spread. `samples` of same is that defect, as a control.
2. Rows come from the training split in its order. Nothing is harvested from transcripts: `whet tasks from-traffic` does that.
3. The held rows of earlier nights are asked again (`growing`), the newest `gate_rows` of all. A third of a day tells little.
4. Rows are alike by character trigrams instead of words. Only earlier training rows are recalled.
5. Rules stand in one block; a text and a memory are not apart. A rule that copies 32 characters in a row from a single input, or
   holds private data, is dropped.
6. To adopt what the nights made takes validation rows and the sealed test instead of a command of a person.
7. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
8. Within a limit on calls there are fewer nights.

Run it:  whet optimize TASK --method skillopt_sleep --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.instructions.neighbours import grams
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.principles import operations_or_lines
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import normalize_wording
from whet.search.lessons import LessonList, begin_lessons
from whet.search.minibatch import answered_rollouts, mistakes, show_answer, show_example, show_rollout
from whet.search.plan import SearchPlan, share_out, validate_finalists
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "skillopt_sleep",
    "SkillOpt-Sleep: rules from the good and bad answers of a day",
    version=1,
    rank=23,
    when="rows arrive day by day, and the model answers the same input sometimes well and sometimes badly",
    paper="Microsoft, 2026",
    arxiv="2605.23904",
    needs=("optimizer",),
)

HELD = 0.34
"""Share of a day's rows that the gate asks."""


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of SkillOpt-Sleep."""

    nights: PositiveInt = 10
    """Nights at most."""
    rows: PositiveInt = 20
    """Training rows of a day."""
    rollouts: PositiveInt = 5
    """Answers to each teaching row (K); 1 learns from failures alone."""
    temperature: NonNegativeFloat = 0.7
    """Temperature of several answers."""
    samples: Literal["distinct", "same"] = "distinct"
    """Whether the answers to a row are distinct samples, or one sample repeated (a control)."""
    shown: PositiveInt = 6
    """Rows that the writer reads."""
    edits: PositiveInt = 4
    """Rules that it may add, change or delete in a night."""
    recall: NonNegativeInt = 0
    """Earlier training rows that teach again."""
    recalled: Literal["alike", "random"] = "alike"
    """The choice of recalled rows: those most like the rows of the day, or random rows."""
    gate: Literal["strict", "off"] = "strict"
    """New rules must score higher on held rows; `off` takes all."""
    growing: bool = True
    """Whether the gate uses held rows of earlier nights again."""
    gate_rows: PositiveInt = 40
    """Held rows that the gate asks at most."""
    most: PositiveInt = 40
    """Rules at most."""


async def skillopt_sleep(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Rules learned night by night; see the module."""
    plan, archive = share_out(run, env, 0, 2), Archive()
    plan, current, rules = await begin_lessons(run, plan, archive, start, config.most, secrets)
    days = [env.train[at : at + config.rows] for at in range(0, len(env.train), config.rows)][: config.nights]
    paid = payable_nights(plan, config, days)
    run.note_rounds(paid, len(days))
    sleeper = Sleeper(plan.env, policy, config, archive, rules, current)
    for number, day in enumerate(days[:paid]):
        sleeper.policy = policy.adapt()
        await sleeper.sleep(run, day, number)
    return await validate_finalists(run, plan, archive, [sleeper.current])


def payable_nights(plan: SearchPlan, config: Config, days: Sequence[Sequence[Example]]) -> int:
    """Count the nights that the limits pay for."""
    spent = held = nights = 0
    for day in days if plan.asks is None else days[: plan.asks]:
        mine = held_size(len(day))
        held = min(config.gate_rows, held * config.growing + mine)
        spent += config.rollouts * (len(day) - mine + config.recall) + 2 * held
        if plan.rollouts is not None and spent > plan.rollouts:
            break
        nights += 1
    return nights


def held_size(rows: int) -> int:
    """The number of a day's rows that are held for the gate."""
    return max(1, round(HELD * rows))


@dataclass
class Sleeper:
    """The state of the nights: rules, the candidate with them, rows that taught and rows that were held."""

    env: Environment
    policy: LanguagePolicy
    config: Config
    archive: Archive
    rules: LessonList
    current: Candidate
    taught: list[Example] = field(default_factory=list)
    held: list[Example] = field(default_factory=list)

    async def sleep(self, run: Run, day: Sequence[Example], number: int) -> None:
        """One night: replay, reflect, and adopt what is better on held rows."""
        mixed = run.rng.sample(day, len(day))
        size = held_size(len(day))
        teaching = mixed[size:]
        held_rows = [*(self.held if self.config.growing else []), *mixed[:size]][-self.config.gate_rows :]
        replayed, known = [*teaching, *self.recall(run, teaching)], [*self.taught, *teaching]
        self.taught, self.held = known, [*self.held, *mixed[:size]]
        verdict = "unverified"
        if teaching and not leaks(held_rows, known):
            rules = await self.reflect(run, replayed, number)
            verdict = await self.adopt(run, rules, held_rows, number)
        run.log("night", {"night": number + 1, "verdict": verdict, "rules": len(self.rules.lessons)})

    def recall(self, run: Run, teaching: Sequence[Example]) -> list[Example]:
        """Rows that taught before and teach again."""
        count = min(self.config.recall, len(self.taught))
        if self.config.recalled == "random":
            return run.rng.sample(self.taught, count)
        new = [grams(row.user_text) for row in teaching]
        return sorted(self.taught, key=lambda row: -likeness(grams(row.user_text), new))[:count]

    async def reflect(self, run: Run, rows: Sequence[Example], number: int) -> LessonList:
        """The rules after what the writer makes of the answers to rows; the same where nothing went wrong."""
        env, times = self.env, self.config.rollouts
        if times > 1:
            env = replace(env, generation=replace(env.generation, temperature=self.config.temperature))
        samples = [number * times + i * (self.config.samples == "distinct") for i in range(times)]
        rounds = await run.map(
            lambda branch, sample: env.evaluate(branch, self.current.prompt, rows, sample), samples
        )
        shown = contrasts(rows, list(zip(*rounds, strict=True)), self.config.shown)
        heading = CONTRASTS
        if not shown:
            by_id, wrong = {row.id: row for row in rows}, mistakes(rounds[0], env.reward.high)
            shown = [show_rollout(by_id[one.example_id], one) for one in wrong[: self.config.shown]]
            heading = FAILURES
        if not shown:
            return self.rules
        head = show_instruction(env.description, self.rules.start, self.rules.base)
        question = [
            head,
            f"{RULES}\n{self.rules.shown or NONE}",
            heading,
            *shown,
            f"{REQUEST} {self.config.edits}",
        ]
        replies = await self.policy.write(run, "\n\n".join(question), "OPERATIONS", sample=number)
        operations = [one for reply in replies for one in operations_or_lines(reply, "add")]
        rules, dropped = self.rules.apply_operations(operations[: self.config.edits])
        run.log(
            "operations", {"proposed": len(operations), "dropped": dropped, "lessons": len(rules.lessons)}
        )
        return rules

    async def adopt(self, run: Run, rules: LessonList, held_rows: Sequence[Example], number: int) -> str:
        """Take new rules where the held rows earn more with them; the verdict."""
        prompt = rules.prompt
        if prompt is None or prompt == self.current.prompt:
            return "unchanged"
        old, new = await self.env.score(run, [self.current.prompt, prompt], held_rows)
        candidate = Candidate(prompt, (self.current.id,), f"night {number + 1}", new)
        if new.mean <= old.mean and self.config.gate == "strict":
            return "rejected"
        self.archive.add(run, candidate)
        self.rules, self.current = rules, candidate
        return "adopted"


def leaks(held: Sequence[Example], taught: Sequence[Example]) -> bool:
    """Whether a held row has the input of one that teaches, or taught before."""
    return not {normalize_wording(row.user_text) for row in held}.isdisjoint(
        normalize_wording(row.user_text) for row in taught
    )


def likeness(own: frozenset[str], others: Sequence[frozenset[str]]) -> float:
    """The largest share of trigrams in common (Jaccard) with any of the others."""
    return max((len(own & other) / len(own | other) for other in others if own | other), default=0.0)


def contrasts(rows: Sequence[Example], groups: Sequence[Sequence[Rollout]], most: int) -> list[str]:
    """The rows whose answers differ most in reward, each with its best and its worst answer; those with no difference are left
    out."""
    known = [
        (row, sorted(answered_rollouts(group), key=lambda r: r.reward))
        for row, group in zip(rows, groups, strict=True)
    ]
    differing = [(row, group) for row, group in known if group and group[-1].reward > group[0].reward]
    differing.sort(key=lambda pair: pair[1][0].reward - pair[1][-1].reward)
    return [
        "\n".join([show_example(row), BETTER, show_answer(group[-1]), WORSE, show_answer(group[0])])
        for row, group in differing[:most]
    ]


RULES = "The rules that stand below it:"
NONE = "(none yet)"
CONTRASTS = "The model answered each of these inputs several times. The best and the worst answer to each:"
FAILURES = "With this instruction and these rules the model failed here:"
BETTER, WORSE = "A good answer:", "A bad answer:"
REQUEST = (
    "What does a good answer do that a bad one does not? Change the rules so that answers to inputs of this kind become good, "
    "and keep the form of the answers. Write a JSON list of operations: "
    '{"op": "add", "text": "..."}, {"op": "update", "id": "L1", "text": "..."} or {"op": "delete", "id": "L1"}. '
    "A rule is one short general sentence. Copy no input. Operations at most:"
)
