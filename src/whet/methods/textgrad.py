"""TextGrad: a text is a variable; each answer gives its gradient in words, and a step follows the sum of a batch.

Yuksekgonul, Bianchi, Boen, Liu, Huang, Guestrin, Zou: TextGrad: Automatic "Differentiation" via Text. 2024. arXiv:2406.07496.
Code: zou-group/textgrad.

    text <- start
    for step in 1..steps:
        answer a batch of `minibatch` rows with the text
        gradient of each row: what about the text made its answer fall short          (backward)
        new <- the optimizer rewrites the text by all gradients, under the constraints (step)
        text <- new, unless it earns less than the text on the rows that are held out  (revert)
    return the best text

Differences from the paper and its code:
1. A row whose answer earns the full reward has no gradient, and a batch of such rows changes nothing. The paper asks for
   criticism of right answers too (`criticise=all`).
2. The reward and its critique are the loss. Gradients of the answer and of the text are one call; the code makes two of them.
3. Old and new text answer the same held-out training rows. The paper's validation rows decide about each step and about the
   result; here they choose the result only, among the best texts.
4. Gradients stand in the order of the batch, and equal ones are shown once. The code keeps them in a set: their order is chance.
5. `momentum` shows past texts, and of each whether it was taken back. In the code the question with past texts is built and not
   returned, so that the optimizer is sent nothing. `memory` shows past gradients, as in the code.
6. A reply without a text changes nothing; it ends the program of the authors.
7. `critic=batch` asks for one gradient of the whole batch: the control. `revert=false` always follows the step.
8. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
9. Within a limit on calls the held-out rows are cut, then the steps (`whet.search.plan`).

With `revert=false` and `criticise=all` it is PACE (Dong, Luo, Jiang, Jin, Li, Findings of ACL 2024, arXiv:2308.10088): actors
answer under the prompt, a critic judges each answer, and the prompt is edited by all critics.

Run it:  whet optimize TASK --method textgrad --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.language import in_tags
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import (
    answered_rollouts,
    infinite_batches,
    minibatch,
    mistakes,
    next_rows,
    show_rollout,
)
from whet.search.plan import fit, rounds_of, validate_finalists, validate_leader
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "textgrad",
    "TextGrad: a gradient in words for each answer, summed, and steps that are taken back",
    version=1,
    rank=69,
    when="answers are long, so that a critic should read one at a time, and many edits do harm",
    paper="Yuksekgonul et al., 2024",
    arxiv="2406.07496",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of TextGrad."""

    steps: NonNegativeInt = 12
    """Steps of the optimizer."""
    minibatch: PositiveInt = 3
    """Training examples of a step, each with a gradient of its own."""
    held_out: PositiveInt = 50
    """Training examples on which a step is compared with the text before it."""
    revert: bool = True
    """Whether a step is taken back that earns less than the text before it."""
    critic: Literal["row", "batch"] = "row"
    """The source of gradients: a call for each example, or one call for the batch."""
    criticise: Literal["short", "all"] = "short"
    """The answers that have a gradient: those that fall short of the full reward, or all."""
    memory: NonNegativeInt = 0
    """Earlier steps whose gradients the optimizer sees."""
    momentum: NonNegativeInt = 0
    """Earlier texts that the optimizer sees."""
    constraints: str = ""
    """The constraints on every text, one a line."""
    finalists: PositiveInt = 3
    """Texts measured on validation examples at the end."""


async def textgrad(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Gradient descent in words; see the module."""
    asks = 1 + (config.minibatch if config.critic == "row" else 1)
    sizes = config.held_out + config.minibatch, config.finalists
    plan = fit(run, env, config.steps, 1, sizes[0], finalists=sizes[1], asks=asks)
    archive, current = Archive(), Candidate(start)
    await archive.validate(run, plan.env, [current])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    held_out = minibatch(run.rng, env.train, max(1, plan.examples - config.minibatch))
    current = firsts[0].candidate if firsts else current
    current = replace(current, score=(await env.score(run, [current.prompt], held_out))[0])
    archive.add(run, current)
    kept = {row.id for row in held_out}
    rows = infinite_batches(run.rng, [row for row in env.train if row.id not in kept] or held_out)
    optimizer = TextOptimizer(env, start, config)
    async for number, _ in rounds_of(run, plan, archive):
        batch = next_rows(rows, config.minibatch)
        rollouts = await env.evaluate(run, current.prompt, batch)
        text, writer = text_in(start, current.prompt), policy.adapt()
        gradients = await optimizer.backward(run, writer, text, batch, rollouts, number)
        for prompt in await optimizer.step(run, writer, text, gradients, number) if gradients else []:
            score = (await env.score(run, [prompt], held_out))[0]
            new = Candidate(prompt, (current.id,), f"step {number + 1}", score)
            archive.add(run, new)
            follows = not config.revert or new.mean >= current.mean
            optimizer.remember(text, gradients, text_in(start, prompt), follows)
            current = new if follows else current
            run.log("step", {"step": number, "gradients": len(gradients), "reverted": not follows})
        await validate_leader(run, plan, archive, archive.top(1)[0])
    return await validate_finalists(run, plan, archive, archive.top(config.finalists))


@dataclass
class TextOptimizer:
    """Gradients in words, and the step along them, with what was tried before."""

    env: Environment
    start: Prompt
    config: Config
    gradients: list[str] = field(default_factory=list)
    texts: list[tuple[str, bool]] = field(default_factory=list)

    async def backward(
        self,
        run: Run,
        policy: LanguagePolicy,
        text: str,
        batch: Sequence[Example],
        rollouts: Sequence[Rollout],
        number: int,
    ) -> list[str]:
        """The gradients of a batch in its order; none where no answer falls short, unless all are criticised."""
        every = self.config.criticise == "all"
        judged = answered_rollouts(rollouts) if every else mistakes(rollouts, self.env.reward.high)
        by_row = {one.example_id: one for one in judged}
        shown = [show_rollout(row, by_row[row.id]) for row in batch if row.id in by_row]
        groups = [[one] for one in shown] if self.config.critic == "row" else [shown] if shown else []
        about = f"{PURPOSE}\n\n{show_instruction(self.env.description, self.start, text, INSTRUCTION)}"

        async def criticise(branch: Run, group: Sequence[str]) -> list[str]:
            question = "\n\n".join([about, ANSWERED_ANY if every else ANSWERED, *group, CRITICISE])
            return await policy.write(branch, question, TAG, sample=number)

        written = await run.map(criticise, groups)
        return list(dict.fromkeys(gradient for gradients in written for gradient in gradients))

    async def step(
        self, run: Run, policy: LanguagePolicy, text: str, gradients: Sequence[str], number: int
    ) -> list[Prompt]:
        """The text rewritten by its gradients; none where the reply was of no use or the text stays."""
        about = f"{PURPOSE}\n\n{show_instruction(self.env.description, self.start, text, INSTRUCTION)}"
        parts = [about, GRADIENTS, *(f"- {gradient}" for gradient in gradients)]
        past = self.gradients[-self.config.memory :] if self.config.memory else []
        parts += [PAST_GRADIENTS, *past] if past else []
        texts = self.texts[-self.config.momentum :] if self.config.momentum else []
        parts += [PAST_TEXTS] if texts else []
        parts += [f"{in_tags(old)}\n{KEPT if stayed else TAKEN_BACK}" for old, stayed in texts]
        constraints = [line.strip() for line in self.config.constraints.splitlines() if line.strip()]
        parts += [CONSTRAINTS, *(f"- {line}" for line in constraints)] if constraints else []
        question = "\n\n".join([*parts, STEP])
        written = await policy.rewrite(run, self.start, question, sample=number, text=text)
        return [prompt for prompt in written if text_in(self.start, prompt) != text]

    def remember(self, text: str, gradients: Sequence[str], new: str, follows: bool) -> None:
        """Take in a step: its gradients, and the text that it left or that was taken back."""
        self.gradients.append("\n".join(f"- {gradient}" for gradient in gradients))
        self.texts.append((text, True) if follows else (new, False))


TAG = "REASON"
PURPOSE = "You improve the instruction of a language model."
INSTRUCTION = "The instruction now:"
ANSWERED = "With this instruction the model answered, and its answer fell short:"
ANSWERED_ANY = "With this instruction the model answered:"
CRITICISE = (
    "Say what about the instruction made the model answer so, and how the instruction would have to change for a better answer: "
    "what it leaves out, says wrongly or says too vaguely. Be concrete. Do not write a new instruction."
)
GRADIENTS = "What critics say of the instruction, each of another answer:"
PAST_GRADIENTS = "What critics said of it in earlier steps:"
PAST_TEXTS = "Earlier versions of the instruction:"
KEPT = "(this one was improved further)"
TAKEN_BACK = "(this one earned less, and was taken back)"
CONSTRAINTS = "The instruction must keep to this:"
STEP = (
    "Write the instruction anew so that what the critics say is mended. Keep what works. Write rules that hold for all inputs of "
    "this kind, and copy none of the inputs."
)
