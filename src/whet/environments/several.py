"""A task made of several: each row belongs to a case, a task asked of one model, and all cases share the prompt.

Methods see one environment. Whoever evaluates a prompt gets one rollout per row, graded by the row's case on the scale from 0 to
1; `whet.types.mean_score` makes one number of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards.cases import place_in_range
from whet.run import Run
from whet.types import Completion, Example, Message, Request, Rollout, Score, mean_score
from whet_client.prompt.document import AUTO

T = TypeVar("T")
R = TypeVar("R")
TASK = "task"


@dataclass(frozen=True)
class EnvironmentCase:
    """One case: its environment, the role under which its model is asked, and the prompt of its own that follows the shared one
    (None: the shared prompt is all)."""

    env: Environment
    role: str = TASK
    frame: Prompt | None = None

    def prompt_for(self, prompt: Prompt) -> Prompt:
        """The request to this case's model under a shared prompt."""
        return prompt if self.frame is None else below(prompt, self.frame)


def below(shared: Prompt, frame: Prompt) -> Prompt:
    """A shared prompt without slots as the system message, and a prompt of a task's own below it; what that has to say as a
    system message of its own joins the shared one."""
    head = [Message("system", m.content) if m.role == AUTO else m for m in shared.messages]
    own = list(frame.messages)
    if [m.role for m in own] == [AUTO]:
        own = [Message("user" if frame.slots else "system", own[0].content)]
    if head[-1].role == own[0].role == "system":
        head[-1] = Message("system", f"{head[-1].content}\n\n{own.pop(0).content}")
    return Prompt((*head, *own))


@dataclass(frozen=True)
class SeveralEnvironment(Environment):
    """An environment of several cases by name. `worst`: the worst case is what a prompt is worth, not the mean over cases.

    Labels are read from answers, never scored for several prompts at once: `scores` is False.
    """

    cases: Mapping[str, EnvironmentCase] = field(default_factory=dict)
    worst: bool = False

    @property
    def calls(self) -> int:
        """Calls of a task model that one rollout makes at most."""
        return max(int(getattr(case.env, "calls", 1)) for case in self.cases.values())

    @property
    def supports_batching(self) -> bool:
        """Whether the model of every case answers in batches in this process."""
        return all(case.env.scores or case.env.supports_batching for case in self.cases.values())

    def messages(self, prompt: Prompt, example: Example) -> tuple[Message, ...]:
        """The messages to the model of the row's case."""
        return self.cases[example.case].prompt_for(prompt).render(example)

    def with_frames(self, frames: Mapping[str, Prompt]) -> SeveralEnvironment:
        """The same cases, some of which have another prompt of their own below the shared one."""
        cases = {n: replace(c, frame=frames[n]) if n in frames else c for n, c in self.cases.items()}
        return replace(self, cases=cases)

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order; the rows of a case together."""
        groups: dict[str, list[Example]] = {}
        for example in examples:
            groups.setdefault(example.case, []).append(example)

        async def of_case(branch: Run, name: str) -> list[Rollout]:
            case = self.cases[name]
            whole = case.prompt_for(prompt)
            rollouts = await case.env.evaluate(in_role(branch, case.role), whole, groups[name], sample)
            return [self._of_case(rollout, name, prompt) for rollout in rollouts]

        names = list(groups)
        answered = dict(zip(names, map(iter, await run.map(of_case, names)), strict=True))
        return [next(answered[example.case]) for example in examples]

    async def rollouts(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
    ) -> list[Rollout]:
        """One rollout for each pair of prompt and example."""
        return await run.map(lambda branch, pair: self.rollout(branch, *pair, sample), pairs)

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Ask the model of the row's case once and grade the answer."""
        case = self.cases[example.case]
        own, whole = in_role(run, case.role), case.prompt_for(prompt)
        if case.env.scores:
            rollout = (await case.env.evaluate(own, whole, [example], sample))[0]
        else:
            rollout = await case.env.rollout(own, whole, example, sample)
        return self._of_case(rollout, example.case, prompt)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """The reward of each prompt on the examples."""

        async def one(branch: Run, prompt: Prompt) -> Score:
            return mean_score(await self.evaluate(branch, prompt, examples))

        return await run.map(one, prompts)

    def _of_case(self, rollout: Rollout, name: str, prompt: Prompt) -> Rollout:
        reward = place_in_range(rollout.reward, self.cases[name].env.reward)
        return replace(rollout, prompt_id=prompt.id, reward=reward, case=name, of_worst=self.worst)


def in_role(run: Run, role: str) -> Run:
    """The run, whose calls of the task model go to the model of another role."""
    return run if role == TASK else cast(Run, _RoleRun(run, role))


class _RoleRun:
    """A run and its branches with another model in the task model's place."""

    def __init__(self, run: Run, role: str) -> None:
        self._run, self._role = run, role

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    async def generate(self, role: str, request: Request) -> list[Completion]:
        """See `whet.run.Run`."""
        return await self._run.generate(self._role if role == TASK else role, request)

    def branch(self, name: str) -> Run:
        """See `whet.run.Run`."""
        return in_role(self._run.branch(name), self._role)

    async def map(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """See `whet.run.Run`."""
        return await self._run.map(lambda branch, item: fn(in_role(branch, self._role), item), items)

    async def first(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> tuple[int, R]:
        """See `whet.run.Run`."""
        return await self._run.first(lambda branch, item: fn(in_role(branch, self._role), item), items)
