"""ICPL: a person picks the best and the worst of several answers; a model that sees both, and why, writes the next prompts.

Yu, Tan, Lu, Gao, Yang, Wang, Wu, Vinitsky: ICPL: Few-shot In-context Preference Learning via LLMs. 2024. arXiv:2410.17233.
There a model writes reward functions as code, and people see videos of what was trained with them.

    best <- start
    for round in 1..rounds:
        K - 1 prompts are written in sight of the best and the worst prompt of the last round, of what each answered (traces), and
            of the best ones before
        these and the best prompt answer the same `rows` inputs
        the person, who sees the answers only, picks the best and the worst
    return the best prompt of the last round

Differences from the paper, of which the abstract, a page of the authors and a summary by others could be read:
1. What is written are prompts. The traces are their answers; the paper's are figures of the parts of a reward.
2. The best prompt of the last round stands among the K, so that the last pick is between all that were best.
3. Answers stand in an order that is drawn. Prompts whose answers are the same are one answer to the person; where all are the
   same nobody is asked, and the next prompts are written in sight of none.
4. A pick is recorded when it is made. A run that is stopped goes on with the pick that is open.
5. The person's best prompt is measured on validation rows by the reward of the task beside the start. Only there rewards are
   paid for, and targets read.
6. `shown` is the control: `best` shows no worst one, `random` shows any two. `traces=false` shows no answers.
7. A prompt that earns something where the start earns nothing on validation rows stands in the first round
   (`whet.search.from_zero`).
8. Within a limit on calls there are fewer rounds, then fewer prompts in one.

Run it:  whet optimize TASK --method icpl --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from whet._util.fields import NonNegativeInt, PositiveInt, TwoOrMore
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.answer_duels import without_reward
from whet.rl.language import in_tags
from whet.rl.people import TERMINAL
from whet.rl.person_picks import PersonPick, find_picker, pick_extremes
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import head_examples, infinite_batches, minibatch, next_rows, shorten, show_example
from whet.search.plan import SearchPlan, share_out, validate_finalists
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "icpl",
    "ICPL: a person picks the best and the worst of several answers, and a model writes on",
    version=1,
    rank=67,
    when="nobody can define a good answer, and a person has time for a few looks at several answers",
    paper="Yu et al., 2024",
    arxiv="2410.17233",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ICPL."""

    rounds: NonNegativeInt = 5
    """Questions to the person at most."""
    prompts: TwoOrMore = 6
    """Prompts of a round, whose answers the person sees (K)."""
    rows: PositiveInt = 1
    """Inputs that the prompts of a round answer."""
    pick: str | Callable[..., Any] = TERMINAL
    """The source of picks: the person at the terminal, or a Python file with `def pick(input, answers)`, or such a function,
    which returns the places of the best and of the worst answer, from 0."""
    shown: Literal["both", "best", "random"] = "both"
    """The prompts of a round that the model sees: the best and the worst, only the best, or two random prompts in their place
    (a control)."""
    traces: bool = True
    """Whether the model sees the answers of these prompts."""
    history: NonNegativeInt = 3
    """Best prompts of earlier rounds that the model sees."""
    validated: PositiveInt = 1
    """Prompts that the person liked best last, measured on validation examples at the end."""


def check(env: Environment, config: Config) -> None:
    """Raises UsageError where nobody can be asked."""
    find_picker(config.pick)


async def _answer(env: Environment, rows: Sequence[Example], run: Run, one: Candidate) -> list[Rollout]:
    return await env.evaluate(run, one.prompt, rows)


async def icpl(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Prompts written in sight of a person's picks; see the module."""
    picker = find_picker(config.pick)
    plan = share_out(run, env, 0, finalists=config.validated)
    rounds, width = within(config, plan)
    archive, silent = Archive(), without_reward(env)
    run.note_rounds(rounds, config.rounds)
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    bests, rows = [Candidate(start)], infinite_batches(run.rng, env.train)
    writer, joining = PreferenceWriter(env, start, config), [first.candidate for first in firsts[:1]]
    for number in range(rounds):
        batch = next_rows(rows, config.rows)
        question = writer.question(bests, minibatch(run.rng, env.train, EXAMPLES))
        text = text_in(start, bests[-1].prompt)
        new = await policy.adapt().rewrite(
            run, start, question, width - 1, sample=number * config.prompts, text=text
        )
        made = [Candidate(prompt, (bests[-1].id,), f"round {number + 1}") for prompt in new]
        pool = list({one.id: one for one in [bests[-1], *joining, *made]}.values())[:width]
        for candidate in pool:
            archive.add(run, candidate)
        answers = await run.map(partial(_answer, silent, batch), pool)
        shown = [show_answers([rollout.output for rollout in own]) for own in answers]
        different = run.rng.sample(list(dict.fromkeys(shown)), len(set(shown)))
        writer.forget()
        if len(different) > 1:
            pick = PersonPick(
                show_answers([r.user_text for r in batch]), tuple(different), number + 1, rounds
            )
            best, worst = (shown.index(different[at]) for at in await pick_extremes(run, picker, pick))
            run.log("pick", {"round": number + 1, "best": pool[best].id, "worst": pool[worst].id})
            bests = [*(one for one in bests if one.id != pool[best].id), pool[best]]
            pair = run.rng.sample(range(len(pool)), 2) if config.shown == "random" else [best, worst]
            writer.remember([(text_in(start, pool[at].prompt), shown[at]) for at in pair])
        joining = []
    return await validate_finalists(run, plan, archive, bests[::-1][: config.validated])


@dataclass
class PreferenceWriter:
    """The writer of prompts. It shows the model the best and the worst prompt of the last round with their answers, and the
    best prompts of earlier rounds."""

    env: Environment
    start: Prompt
    config: Config
    pair: list[tuple[str, str]] = field(default_factory=list)

    def forget(self) -> None:
        """Show no pair, until there is one."""
        self.pair = []

    def remember(self, pair: Sequence[tuple[str, str]]) -> None:
        """Take in the best and the worst prompt of a round, each with what it answered."""
        self.pair = [*pair][: 1 if self.config.shown == "best" else 2]

    def question(self, bests: Sequence[Candidate], rows: Sequence[Example]) -> str:
        """The question to the model."""
        text = text_in(self.start, bests[-1].prompt)
        parts = [PURPOSE, show_instruction(self.env.description, self.start, text, INSTRUCTION)]
        parts += [head_examples(rows), *map(show_example, rows)]
        earlier = [text_in(self.start, one.prompt) for one in bests[:-1]][-self.config.history :]
        parts += [EARLIER, *map(in_tags, earlier)] if earlier and self.config.history else []
        for name, (shown, answers) in zip((LIKED, DISLIKED), self.pair, strict=False):
            parts += [f"{name}\n{in_tags(shown)}"] + (
                [f"{ANSWERED}\n{answers}"] if self.config.traces else []
            )
        return "\n\n".join([*parts, MORE if self.pair else FIRST])


def show_answers(texts: Sequence[str]) -> str:
    """Texts as one; several are numbered."""
    if len(texts) == 1:
        return shorten(texts[0], LONGEST)
    return "\n\n".join(f"{number}. {shorten(text, LONGEST)}" for number, text in enumerate(texts, 1))


def within(config: Config, plan: SearchPlan) -> tuple[int, int]:
    """Rounds, and prompts of a round, that the plan pays for: rounds go first, until two are left."""
    rounds, width = config.rounds, config.prompts
    while rounds and not (
        plan.payable(rounds, width * config.rows) == rounds
        and (plan.asks is None or rounds * (width - 1) <= plan.asks)
    ):
        rounds, width = (rounds - 1, width) if rounds > 2 or width == 2 else (rounds, width - 1)
    return rounds, width


EXAMPLES, LONGEST = 3, 3000
PURPOSE = "You write instructions for a language model. A person says which answers are best, and nothing else is known."
INSTRUCTION = "The instruction whose answers the person liked best so far:"
EARLIER = "Instructions whose answers the person liked best in earlier rounds, the oldest first:"
LIKED = (
    "In the last round, several instructions were compared. The person liked best the answers under this one:"
)
DISLIKED = "And the answers under this one least:"
ANSWERED = "It answered:"
FIRST = (
    "Write an instruction with which answers to any input of this kind may please the person more. Try something that is not in "
    "the instructions above. Do not copy the inputs."
)
MORE = (
    "Compare what the person liked and what not, and infer what the person wants. Write an instruction that gives more of the "
    "former and less of the latter. Do not copy the inputs."
)
