"""Minstrel: a prompt in modules, written one by one; critics debate what it does, and the modules they name are written anew.

Wang, Liu, Liang, Tong, Wang, Zhang, Wang: Minstrel: Structural Prompt Generation with Multi-Agents Coordination for Non-AI
Experts. 2024. arXiv:2409.13449; modules of LangGPT, arXiv:2402.16929. Code: github.com/langgptai/Minstrel.

    modules <- those of the list that a selector switches on for the task
    for each of them: text <- its generator's
    prompt <- the texts in the order of the list, each under its heading
    repeat `rounds` times:
        answer a batch; each critic of the panel writes notes on the answers from its own point of view
        a verdict on the notes: which modules are at fault, and why;  write these modules anew
        keep them where the score does not fall
    return the best

Differences from the paper:
1. Prompts are scored and the result is chosen on validation examples; the start competes. The paper has no score.
2. The debate is one round: each critic writes once, and one verdict closes it. The published code has a chat tester alone.
3. A selection that cannot be read switches on the six modules that the code falls back on; it is asked for twice, not five times.
4. A module whose text the prompt refuses, that copies 32 characters in a row from a single input, or holds private data, is left
   out.
5. `targets` of `random` writes any modules anew instead of those that the verdict names: the control.
6. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
7. Under a limit on calls, rounds, critics and examples are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method minstrel --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import objectionable
from whet.search.edits import replace_region, text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import (
    UNANSWERED,
    minibatch,
    mistakes,
    show_example,
    show_rollout,
    wanted_answers_known,
)
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "minstrel",
    "Minstrel: a prompt in modules, and critics that name the module at fault",
    version=1,
    rank=138,
    when="there is no good prompt yet, and the prompt should have a structure that people can edit",
    paper="Wang et al., 2024",
    arxiv="2409.13449",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of Minstrel."""

    rounds: NonNegativeInt = 4
    """Rounds of testing, debate and rewriting."""
    examples: PositiveInt = 40
    """Training examples that each prompt is scored on."""
    shown: PositiveInt = 5
    """Wrong answers that the critics read."""
    critics: PositiveInt = 3
    """Critics of the panel at most."""
    named: PositiveInt = 2
    """The largest number of modules that are rewritten in a round."""
    targets: Literal["verdict", "random"] = "verdict"
    """The choice of these modules: those that the verdict names, or random modules."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def minstrel(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """A prompt in modules; see the module."""
    asks = 2.0 + config.named / 2
    plan = fit(run, env, config.rounds + 2, 1, config.examples, finalists=config.finalists, asks=asks)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    current = firsts[0].candidate if firsts else Candidate(start)
    train = minibatch(run.rng, env.train, plan.examples, balanced=True)
    spare = (
        config.critics
        if plan.asks is None
        else 1 + max(0, plan.asks - int(asks) * plan.rounds) // max(1, plan.rounds)
    )
    panel = CRITICS[: min(config.critics, spare)]
    studio = Studio(env, policy, start, text_in(start, current.prompt), panel)
    texts, best, rollouts = dict[str, str](), env.reward.low - 1, list[Rollout]()
    for number in range(max(0, plan.rounds - 1)):
        if not texts:
            new = await studio.first(run, len(MODULES) if plan.asks is None else max(1, plan.asks // 2))
        elif mistakes(rollouts, env.reward.high):
            new = await studio.repair(run, texts, train, rollouts, number, config)
        else:
            break
        if not new:
            break
        prompt = studio.prompt(new)
        if prompt is None or prompt in archive:
            continue
        news = await env.evaluate(run, prompt, train)
        child = Candidate(prompt, (current.id,), f"round {number}" if texts else "modules", mean_score(news))
        archive.add(run, child)
        if child.mean >= best:
            texts, current, rollouts, best = new, child, news, child.mean
            await validate_leader(run, plan, archive, current)
    return await validate_finalists(run, plan, archive, [current, *archive.top(plan.finalists)])


@dataclass(frozen=True)
class Studio:
    """The agents: selector, generators, critics. `base` is the text that the modules replace."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    base: str
    panel: Sequence[str]

    def prompt(self, texts: Mapping[str, str]) -> Prompt | None:
        """The modules in the order of the list, each under its heading; None without any, or where the start refuses them."""
        parts = [f"## {name.capitalize()}\n{texts[name]}" for name in MODULES if name in texts]
        return replace_region(self.start, "\n\n".join([self.base.strip(), *parts]) + "\n") if parts else None

    async def first(self, run: Run, most: int) -> dict[str, str]:
        """The text of each module that the selector switches on, `most` at most."""
        rows = minibatch(run.rng, self.env.train, SHOWN_ROWS, balanced=True)
        heading = EXAMPLES if wanted_answers_known(rows) else UNANSWERED
        head = "\n\n".join([self.about(), heading, *map(show_example, rows)])
        listed = "\n".join(f"- {name}: {about}" for name, about in MODULES.items())
        replies = await self.policy.write(run, f"{head}\n\n{LIST}\n{listed}\n\n{SELECT}", "MODULES")
        names = next((names for reply in replies if (names := selected_modules(reply))), list(DEFAULT))
        return await self.generate(run, {name: head for name in names[:most]}, 0)

    async def repair(
        self,
        run: Run,
        texts: Mapping[str, str],
        train: Sequence[Example],
        rollouts: Sequence[Rollout],
        number: int,
        config: Config,
    ) -> dict[str, str]:
        """The modules with those written anew that the critics, or chance, hold to be at fault."""
        rows, wrong = {row.id: row for row in train}, mistakes(rollouts, self.env.reward.high)
        wrong = run.rng.sample(wrong, min(config.shown, len(wrong)))
        shown = [show_rollout(rows[r.example_id], r) for r in wrong]
        whole = "\n\n".join(f"## {name}\n{text}" for name, text in texts.items())
        head = "\n\n".join([self.about(), f"{STRUCTURE}\n\n{whole}", WRONG, *shown])

        async def criticise(branch: Run, view: str) -> list[str]:
            return await self.policy.write(branch, f"{head}\n\n{view}", "NOTE", sample=number)

        notes = [f"- {note}" for some in await run.map(criticise, self.panel) for note in some]
        question = "\n\n".join([head, "\n".join([NOTES, *notes]), VERDICT])
        replies = await self.policy.write(run, question, "FAULTS", sample=number)
        faults = {
            name: note for reply in replies for name, note in named_faults(reply).items() if name in MODULES
        }
        if config.targets == "random":
            names = run.rng.sample(sorted(texts), min(len(faults), len(texts)))
            faults = dict(zip(names, faults.values(), strict=False))
        asking = {name: f"{head}\n\n{FAULT} {note}" for name, note in list(faults.items())[: config.named]}
        return {**texts, **await self.generate(run, asking, number)}

    async def generate(self, run: Run, heads: Mapping[str, str], sample: int) -> dict[str, str]:
        """The text of each of the modules, after a head of its own."""

        async def one(branch: Run, name: str) -> list[str]:
            question = f"{heads[name]}\n\n{WRITE} {name}: {MODULES[name]}\n\n{ONLY}"
            return await self.policy.write(branch, question, "MODULE", sample=sample)

        names = [name for name in heads if name in MODULES]
        written = zip(names, await run.map(one, names), strict=True)
        texts = {name: replies[0].strip() for name, replies in written if replies}
        known = self.start.source
        return {
            name: text
            for name, text in texts.items()
            if not objectionable(secrets, self.env.train, known, text)
            and self.prompt({name: text}) is not None
        }

    def about(self) -> str:
        """The head of every question: the task and the instruction."""
        return show_instruction(self.env.description, self.start, self.base)


def selected_modules(reply: str) -> list[str]:
    """The modules that a reply switches on, in the order of the list: names in a JSON list, or those with true in an object."""
    for value in json_values(reply):
        names = [name for name, on in value.items() if on is True] if isinstance(value, dict) else value
        chosen = {str(name).strip().lower() for name in names} if isinstance(names, list) else set()
        if chosen & set(MODULES):
            return [name for name in MODULES if name in chosen]
    return []


def named_faults(reply: str) -> dict[str, str]:
    """The modules at fault with what is wrong, of the first JSON object of texts in a reply."""
    objects: list[dict[str, object]] = [value for value in json_values(reply) if isinstance(value, dict)]
    return {str(name).strip().lower(): str(note) for name, note in objects[0].items()} if objects else {}


MODULES = {
    "background": "what the model should know about the situation",
    "command": "what it is ordered to do, in one sentence",
    "suggestion": "what it may do where that helps",
    "goal": "what is to be reached",
    "examples": "one or two short examples that are made up",
    "constraints": "what must hold, and what must not be done, as a list",
    "workflow": "what to do first, second and so on, as a numbered list",
    "output format": "exactly what the answer looks like",
    "skills": "what it is good at, as a list",
    "style": "how it writes",
    "initialisation": "one sentence that sets it to work",
}
DEFAULT = ("background", "goal", "constraints", "workflow", "output format", "initialisation")
CRITICS = (
    "You care for right answers. What in which module leads to the wrong answers above? Write two sentences.",
    "You care for the form of answers. What in which module leads to answers of a wrong form? Write two sentences.",
    "You are a user with unusual inputs. For what does no module provide? Write two sentences.",
)
SHOWN_ROWS = 4
EXAMPLES = "Examples of its inputs, with what is wanted:"
LIST = "A structured instruction can have these modules:"
SELECT = 'Which of these does this task need? Write a JSON list of names: ["goal", "constraints"].'
WRITE = "Write the text of one module of the structured instruction. The module is"
ONLY = (
    "Write its text only, short, without a heading. It must hold for all inputs of this kind; copy no input."
)
STRUCTURE = "Below it stand these modules:"
WRONG = "With these the model answered wrongly:"
NOTES = "What critics say about it:"
VERDICT = (
    "Weigh these notes. Which modules are to be changed or added, and how? Write a JSON object: "
    '{"constraints": "what to change"}.'
)
FAULT = "What to change in it:"
