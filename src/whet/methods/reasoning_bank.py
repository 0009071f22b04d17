"""ReasoningBank: what right and wrong answers taught is kept by input, and recalled for inputs that are alike; with MaTTS.

ReasoningBank: Scaling Agent Self-Evolving with Reasoning Memory. Google, 2025; ICLR 2026. arXiv:2509.25140. Rules as in the
published code (github.com/google-research/reasoning-bank).

    bank <- empty
    for each input x:
        m <- the items of the input in the bank that is most alike
        y <- answer x with m;  v <- was it right?
        items <- why it worked, if so;  else what to do so that it does not happen again
        bank gains (x, items)
    MaTTS, parallel:   several answers to x, and items from their contrast
    MaTTS, sequential: the answer is checked and given again, and items come from all of it
    at inference: answer each input with the items of the one most alike

Differences from the paper and its code:
1. An input enters the bank together with its items, and only if it has some. In the code it can be found before and give nothing.
2. Equal items stand in a prompt once. An item ends where its tag ends: the code splits at blank lines.
3. A memory goes when the answers that it was recalled for are right less than half as often as all (`forget`). In the code a
   wrong verdict stays for good.
4. `verdict` of reward grades by the task's reward, and items are written beside target and critique. `model` asks the optimizer
   model, as the paper does: it and the writer of items then see neither target nor reward.
5. Inputs are answered in windows of `batch` with the same bank; 1 is the paper's stream.
6. The bank and the start are compared on validation rows.
7. Inputs are known by hashed character trigrams, or by an `embedding`. Their text is not kept.
8. Items that copy 32 characters in a row from a single input, or hold private data, are dropped.
9. The task is one question with one answer: a trajectory is that answer. Sequential MaTTS shows it again below the input.
10. Within a limit on calls fewer inputs are learned from.
11. `recall` of random, all and none, and `outcomes`, are the controls.

Run it:  whet optimize TASK --method reasoning_bank --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from whet._util.fields import NonNegativeFloat, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.models.embeddings import NONE
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.guidance import with_hint
from whet.rl.prompt_router import Routed, answer_each, check_routing, features_of, routed_environment
from whet.rl.reasoning_memory import Memory, MemoryBank, Recall, deploy_bank
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import objectionable
from whet.search.edits import text_in
from whet.search.minibatch import answered_rollouts, minibatch, show_answer, show_example
from whet.search.plan import share_out
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "reasoning_bank",
    "ReasoningBank: lessons recalled for inputs that are alike",
    version=1,
    rank=59,
    when="inputs are of many kinds, and what helps with one says nothing about the others or contradicts it",
    paper="ReasoningBank, ICLR 2026",
    arxiv="2509.25140",
    needs=("optimizer",),
    trains="a bank of lessons, recalled by input",
    edits_all=True,
)

CONTRASTED, USES = 5, 2


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ReasoningBank."""

    rows: PositiveInt = 200
    """Training rows that are learned from at most."""
    batch: PositiveInt = 8
    """Rows answered with the same bank; 1 learns after each."""
    recall: Recall = "nearest"
    """The memories that an input gets: those of the most similar inputs, of random inputs, of all inputs, or none."""
    near: PositiveInt = 1
    """Inputs whose items are recalled (n)."""
    items: PositiveInt = 3
    """The largest number of items from one row; 5 from several answers in parallel."""
    verdict: Literal["reward", "model"] = "reward"
    """The source of the verdict on an answer: the reward, or the optimizer model, which sees no target."""
    outcomes: Literal["both", "success", "failure"] = "both"
    """The answers from which items are written."""
    scaling: Literal["none", "parallel", "sequential"] = "none"
    """MaTTS: several answers in parallel, or each answer a check of the previous answer."""
    answers: PositiveInt = 3
    """Answers to a row with MaTTS (N)."""
    temperature: NonNegativeFloat = 0.7
    """Temperature of several answers in parallel."""
    forget: bool = True
    """Whether a memory goes that is recalled for wrong answers."""
    embedding: str = NONE
    """Vectors of inputs: none (character trigrams), embedded/encoder, or openai/NAME, ollama/NAME, ... at its endpoint."""


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a task of several turns, and for an embedding that there is not."""
    check_routing("reasoning_bank", env, config.embedding)


async def reasoning_bank(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """A bank of items that grows with each answer; see the module."""
    plan = share_out(run, env, 0, finalists=1)
    archive, bank = Archive(), MemoryBank(start, config.recall, config.near, config.embedding)
    incumbent = await archive.validate(run, plan.env, [Candidate(start)])
    each, asks = (1 if config.scaling == "none" else config.answers), questions_of(config)
    count = plan.payable(min(config.rows, len(env.train)), each)
    count = count if plan.asks is None else min(count, plan.asks // asks)
    run.note_rounds(-(-count // config.batch), -(-min(config.rows, len(env.train)) // config.batch))
    rows, learner = minibatch(run.rng, env.train, count), BankLearning(env, policy, config, bank)
    for step, first in enumerate(range(0, count, config.batch)):
        learner.policy = policy.adapt()
        await learner.learn(run, rows[first : first + config.batch], step)
    if not bank.memories or config.recall == "none":
        return incumbent
    candidate = Candidate(start, (start.id,), "bank", system=await run.keep(bank))
    archive.add(run, candidate)
    return await archive.validate(run, routed_environment(plan.env, bank), [candidate])


def questions_of(config: Config) -> int:
    """Calls of the optimizer model for a row: one that writes items, and those that judge."""
    judged = config.answers if config.scaling == "parallel" else 1
    return 1 + (judged if config.verdict == "model" else 0)


@dataclass(frozen=True)
class JudgedAnswer:
    """Whether an answer is right, and why."""

    right: bool
    why: str = ""

    @property
    def text(self) -> str:
        """The item on a line of its own, as a writer of items reads it."""
        return f"\n{RIGHT if self.right else WRONG} {self.why}".rstrip()


@dataclass
class BankLearning:
    """The state of learning: the bank, and all verdicts so far."""

    env: Environment
    policy: LanguagePolicy
    config: Config
    bank: MemoryBank
    verdicts: list[bool] = field(default_factory=list)

    async def learn(self, run: Run, window: Sequence[Example], step: int) -> None:
        """Answer rows with the bank as it is; then it gains what they teach, and loses what misled."""
        recalled = await self.bank.recall(run, window)
        answers = await self.answer(run, window, [self.bank.compose(places) for places in recalled])
        features = await features_of(run, [row.user_text for row in window], self.config.embedding)
        taught = await run.map(partial(self.teach, step), list(zip(window, answers, strict=True)))
        memories = [
            Memory(row.id, tuple(items), vector)
            for row, vector, (_, items) in zip(window, features, taught, strict=True)
            if items
        ]
        self.count_uses(recalled, [verdict for verdict, _ in taught])
        self.bank.memories += memories
        reward = mean_score([group[-1] for group in answers]).mean
        run.log("step", {"step": step, "reward": reward, "memories": len(self.bank.memories)})

    async def answer(
        self, run: Run, window: Sequence[Example], prompts: Sequence[Prompt]
    ) -> list[list[Rollout]]:
        """The answers to each row; the last one counts."""
        number = 1 if self.config.scaling == "none" else self.config.answers
        env, rows, groups = self.env, list(window), list[list[Rollout]]()
        if self.config.scaling == "parallel":
            env = replace(env, generation=replace(env.generation, temperature=self.config.temperature))
        for sample in range(number):
            groups.append(await answer_each(run, env, prompts, rows, sample))
            if self.config.scaling == "sequential":
                rows = [with_hint(row, RECHECK + r.output) for row, r in zip(window, groups[-1], strict=True)]
        return [list(group) for group in zip(*groups, strict=True)]

    async def teach(
        self, step: int, run: Run, one: tuple[Example, Sequence[Rollout]]
    ) -> tuple[bool | None, list[str]]:
        """Whether the answers to a row are right (most of them), None where nobody knows; and the items that they teach."""
        row, answers = one[0], answered_rollouts(one[1])
        contrast = self.config.scaling == "parallel" and len(answers) > 1
        judged = answers if contrast else answers[-1:]
        verdicts = [await self.judge(run, row, answer, step) for answer in judged]
        known = [verdict.right for verdict in verdicts if verdict is not None]
        if not known:
            return None, []
        right = 2 * sum(known) >= len(known)
        if self.config.outcomes != "both" and right != (self.config.outcomes == "success"):
            return right, []
        earlier = [None] * (len(answers) - len(judged))
        shown = self.show(row, answers, [*earlier, *verdicts])
        request = CONTRAST if contrast else SUCCESS if right else FAILURE
        most = CONTRASTED if contrast else self.config.items
        question = f"{self.about}\n\n{shown}\n\n{request} {FORM} {most}"
        items = await self.policy.write(run, question, "ITEM", sample=step, many=True)
        return right, [item for item in map(lines_of, items) if self.admits(item)][:most]

    async def judge(self, run: Run, row: Example, answer: Rollout, step: int) -> JudgedAnswer | None:
        """Whether an answer is right, and why; None for a verdict that cannot be read."""
        if self.config.verdict == "reward":
            return JudgedAnswer(answer.reward >= self.env.reward.high)
        question = f"{self.about}\n\n{self.show(row, [answer], [None])}\n\n{JUDGE}"
        for reply in await self.policy.write(run, question, "VERDICT", sample=step):
            for value in json_values(reply):
                if isinstance(value, dict) and isinstance(value.get("right"), bool):
                    return JudgedAnswer(value["right"], str(value.get("why") or ""))
        return None

    def count_uses(self, recalled: Sequence[Sequence[int]], verdicts: Sequence[bool | None]) -> None:
        """Count for each memory the answers that it was recalled for; one that misleads goes."""
        self.verdicts += [verdict for verdict in verdicts if verdict is not None]
        for places, verdict in zip(recalled, verdicts, strict=True):
            for at in places if verdict is not None else ():
                self.bank.memories[at] = self.bank.memories[at].count(bool(verdict))
        usual = sum(self.verdicts) / max(1, len(self.verdicts))
        if self.config.forget:
            self.bank.memories = [one for one in self.bank.memories if not misleads(one, usual)]

    def admits(self, item: str) -> bool:
        """Whether an item can stand in the prompt, copies no single input and holds nothing private."""
        fit = self.bank.admits(item)
        return fit and not objectionable(secrets, self.env.train, self.bank.start.source, item)

    def show(self, row: Example, answers: Sequence[Rollout], verdicts: Sequence[JudgedAnswer | None]) -> str:
        """A row with the answers to it; how they were graded, and what was wanted, only where the reward is what judges."""
        if self.config.verdict == "reward":
            return "\n".join([show_example(row), *dict.fromkeys(map(show_answer, answers))])
        bare = [replace(one, critique=None, addressed={}, error=None) for one in answers]
        texts = [
            show_answer(one, graded=False) + (verdict.text if verdict else "")
            for one, verdict in zip(bare, verdicts, strict=True)
        ]
        return "\n".join([show_example(replace(row, target=None)), *texts])

    @property
    def about(self) -> str:
        """The head of every question: the task and its instruction."""
        start = self.bank.start
        return show_instruction(self.env.description, start, text_in(start, start))


def misleads(memory: Memory, usual: float) -> bool:
    """Whether at least two answers are known that a memory was recalled for, and fewer than half of the usual share are right."""
    uses = memory.right + memory.wrong
    return uses >= USES and memory.right / uses < usual / 2


def lines_of(text: str) -> str:
    """An item without its blank lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines() if line.strip())


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Routed:
    """The task in which the bank of a blob is recalled for every input. Raises UsageError for another blob."""
    return deploy_bank(env, blob)


RECHECK = "an earlier answer is given below. Check it step by step, and answer again. "
RIGHT, WRONG = "Judged right.", "Judged wrong."
JUDGE = (
    'Is this answer right? Write a JSON object: {"why": "what speaks for it and against it", "right": true} or the same with '
    "false."
)
SUCCESS = "The answer is right. What made it work, that will help with like inputs?"
FAILURE = "The answer is wrong. What went wrong, and what must be done with like inputs so that it does not happen again?"
CONTRAST = (
    "Compare these answers with each other. What do the good ones do that the others do not? What do several of them agree on, "
    "and which mistakes occur?"
)
FORM = (
    "Write items. The first line of an item is its title, the second says when to use it and when not, then follow one to three "
    "sentences with what to do. Copy no input. Items at most:"
)
