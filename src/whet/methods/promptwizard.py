"""PromptWizard: mutate by thinking styles, refine by a critique of praise or blame, then choose the examples to show.

Agarwal, Singh, Dani, Magazine, Ganu, Nambi: PromptWizard: Task-Aware Prompt Optimization Framework. 2024. arXiv:2405.18369.
Code: github.com/microsoft/PromptWizard.

    p <- start
    repeat `iterations` times:
        p <- the best of p and of rewrites of it, each after another thinking style
        score at least half: critique says what is good;  else: what is wrong;  p <- the better of p and its rewrite after that
    examples <- rows that p answers wrongly
    repeat `turns` times, by a coin:
        p <- rewritten after a critique of p with its examples,  or  examples <- another set of them
    return the best of p with and without examples, and with a persona

Differences from the paper:
1. All prompts are scored on the same training rows. The code draws one question at a time, for each prompt its own, and stops at
   the first failure: nearly one throw of a coin.
2. Of equal scores the shorter prompt wins. In the code it is the longer one, so that prompts grow.
3. A prompt is replaced only by one that scores higher. The result is chosen on validation examples among the best few.
4. Examples are training rows with their targets, those that were answered wrongly first, under the rules of
   `whet.search.demonstrations`; none are made up, and no reasoning is written for them.
5. Without training rows that fail nothing is refined; a reply without a text changes nothing. The code returns empty texts.
6. A text that copies 32 characters in a row from the input of a single example is dropped.
7. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
8. Under a limit on calls, iterations, styles and examples are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method promptwizard --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate, preference
from whet.search.copies import copied_input
from whet.search.demonstrations import Demonstration, label_rows, with_demonstrations
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import answered_rollouts, minibatch, mistakes, show_rollout
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "promptwizard",
    "PromptWizard: thinking styles, signed critiques, and examples",
    version=1,
    rank=96,
    when="instruction and examples should be improved together, with few calls",
    paper="Agarwal et al., 2024",
    arxiv="2405.18369",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of PromptWizard."""

    iterations: NonNegativeInt = 3
    """Rounds of mutation and refinement."""
    styles: PositiveInt = 5
    """Rewrites of a round, each after another thinking style."""
    examples: PositiveInt = 25
    """Training examples that prompts are scored on."""
    shown: PositiveInt = 5
    """Answers that a critique reads."""
    k: NonNegativeInt = 5
    """Examples in a prompt at most."""
    turns: NonNegativeInt = 3
    """Turns on instruction or examples after the rounds."""
    persona: bool = True
    """Whether a prompt that begins with an expert persona is tried at the end."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def promptwizard(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Mutation, critique and synthesis; see the module."""
    width = config.styles + 1
    asks = (config.styles + 2) / width
    finalists = config.finalists
    plan = fit(
        run, env, config.iterations + 1, width, config.examples, finalists=finalists, asks=asks, least=2
    )
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    begin = firsts[0].candidate.prompt if firsts and not firsts[0].demos else start
    train = minibatch(run.rng, env.train, plan.examples if plan.rounds else 0, balanced=True)
    wizard = Wizard(env, policy, start, config, archive, train, begin)
    await wizard.evaluate(run, "start", [begin] if train else [])
    for number in range(max(0, plan.rounds - 1)):
        wizard.policy = policy.adapt()
        await wizard.mutate(run, plan.width - 1, number)
        await wizard.refine(run, number)
        await validate_leader(run, plan, archive, archive.top(1)[0])
    if plan.rounds:
        await wizard.show(run)
        for turn in range(min(config.turns, plan.width - 2)):
            if wizard.pool and run.rng.random() < 0.5:
                await wizard.show(run)
            else:
                await wizard.refine(run, plan.rounds + turn)
        if config.persona:
            await wizard.introduce(run)
    return await validate_finalists(run, plan, archive, archive.top(finalists))


@dataclass
class Wizard:
    """The best instruction so far and the examples shown with it; rollouts of prompts on the training rows, by prompt."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    archive: Archive
    train: Sequence[Example]
    instruction: Prompt
    demos: Sequence[Demonstration] = ()
    rollouts: dict[str, Sequence[Rollout]] = field(default_factory=dict)

    @property
    def best(self) -> Prompt:
        """The instruction with its examples."""
        return self.whole(self.instruction)

    @property
    def pool(self) -> list[Demonstration]:
        """The examples that can be shown: training rows with targets that no prompt is scored on."""
        held = {row.id for row in self.train}
        rows = [row for row in self.env.train if row.id not in held]
        return [one for one in label_rows(self.env, self.start, rows) if not secrets(one.text)]

    def whole(self, instruction: Prompt) -> Prompt:
        """An instruction with the examples of now; alone where the prompt refuses these."""
        return with_demonstrations(self.start, self.demos, instruction) or instruction

    async def evaluate(self, run: Run, operator: str, instructions: Sequence[Prompt]) -> None:
        """Score instructions with the examples of now; one that scores higher becomes the best."""
        new = {self.whole(one).id: one for one in instructions}
        new = {name: one for name, one in new.items() if name not in self.rollouts}
        results = await run.map(
            lambda b, one: self.env.evaluate(b, self.whole(one), self.train), list(new.values())
        )
        before = self.best
        for (name, instruction), rollouts in zip(new.items(), results, strict=True):
            self.rollouts[name] = rollouts
            whole = self.whole(instruction)
            parents = () if whole == self.start else (before.id,)
            self.archive.add(run, Candidate(whole, parents, operator, mean_score(rollouts)))
            if self.worth(whole) > self.worth(self.best) or self.best.id not in self.rollouts:
                self.instruction = instruction

    def worth(self, prompt: Prompt) -> tuple[float, float]:
        """The key by which prompts are ordered: the mean reward, then shortness."""
        rewards = [rollout.reward for rollout in self.rollouts.get(prompt.id, ())]
        return preference(sum(rewards) / max(1, len(rewards)), prompt.text)

    async def mutate(self, run: Run, number: int, round_: int) -> None:
        """Rewrites of the instruction after different thinking styles."""
        styles = run.rng.sample(STYLES, min(number, len(STYLES)))
        asking = [f"{self.about()}\n\n{MUTATE} {style}" for style in styles]
        await self.rewrite(run, "style", asking, round_ * 100)

    async def refine(self, run: Run, number: int) -> None:
        """The instruction after a critique: of praise where it earns at least half of the reward, else of blame."""
        known = answered_rollouts(self.rollouts.get(self.best.id, ()))
        wrong, low, high = mistakes(known, self.env.reward.high), self.env.reward.low, self.env.reward.high
        if not wrong:
            return
        good = sum(r.reward for r in known) / len(known) >= (low + high) / 2
        right = [r for r in known if r not in wrong]
        some = [*run.rng.sample(wrong, min(self.config.shown, len(wrong))), *right[: 1 + good]]
        rows = {row.id: row for row in self.train}
        shown = [show_rollout(rows[r.example_id], r) for r in some]
        question = "\n\n".join([self.about(), ANSWERS, *shown, PRAISE if good else BLAME])
        for critique in await self.policy.write(run, question, "CRITIQUE", sample=number):
            await self.rewrite(
                run, "critique", [f"{self.about()}\n\n{CRITIQUE}\n{critique}\n\n{EDIT}"], number * 100 + 99
            )

    async def show(self, run: Run) -> None:
        """Other examples with the instruction, kept where it scores higher with them."""
        if not self.pool or not self.config.k:
            return
        before, old = self.best, self.demos
        self.demos = run.rng.sample(self.pool, min(self.config.k, len(self.pool)))
        await self.evaluate(run, "examples", [self.instruction])
        if self.worth(self.best) <= self.worth(before):
            self.demos = old

    async def introduce(self, run: Run) -> None:
        """The instruction with the persona of an expert before it."""
        await self.rewrite(run, "persona", [f"{self.about()}\n\n{PERSONA}"], 0)

    async def rewrite(self, run: Run, operator: str, questions: Sequence[str], sample: int) -> None:
        """Score what the questions make of the instruction."""
        text = text_in(self.start, self.instruction)

        async def one(branch: Run, at: int) -> list[Prompt]:
            return await self.policy.rewrite(branch, self.start, questions[at], sample=sample + at, text=text)

        made = [prompt for some in await run.map(one, range(len(questions))) for prompt in some]
        known = self.start.source
        fit_ones = [p for p in made if not copied_input(text_in(self.start, p), self.env.train, known)]
        await self.evaluate(run, operator, fit_ones)

    def about(self) -> str:
        """The head of every question: the task and the instruction."""
        return show_instruction(self.env.description, self.start, text_in(self.start, self.instruction))


MUTATE = "Write a variant of this instruction that asks for the same. Think of the task in this way:"
STYLES = (
    "How could it be made simpler?",
    "Which parts can it be broken into?",
    "Which assumptions does it rest on, and do they hold?",
    "What would an expert look at first?",
    "Which mistakes are likely, and how are they avoided?",
    "What is the core of it, and what is beside the point?",
    "How can an answer be checked before it is given?",
    "Which cases are unusual, and what holds there?",
    "What must the answer look like?",
    "How would one explain it to a beginner, step by step?",
)
ANSWERS = "Answers of the model with this instruction:"
PRAISE = "Most are right. What in the instruction leads to the right ones, and what little is missing for the others?"
BLAME = "Most are wrong. Which fault of the instruction leads to the wrong ones? Be concrete."
CRITIQUE = "A critique of it:"
EDIT = "Write the instruction anew after this critique. Keep what works. Copy no input."
PERSONA = "Write the instruction with one sentence before it that says which expert the model is. Change nothing else."
