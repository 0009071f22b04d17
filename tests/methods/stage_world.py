"""Two prompts in series with one reward at the end: each has words that help and words that hinder, and one of them is broken.

`interaction` 0: the stages succeed independently, and each pays half of the reward. 1: only prompts that match each other earn,
and no prompt is good by itself. The writer crosses the texts that it is shown and changes a phrase, and knows of no worth. The
model that attributes reads what each prompt answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.methods.readers import Crosser

from whet.environments.environment import Environment
from whet.models.scripted import chance, shuffle
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.run import Run
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers
from whet.types import Example, Message, Request, Rollout, TraceStep

STAGES = ("plan", "answer")
PLAIN = "Say what the review is like."
START = Prompt.of_parts({stage: f"<!-- whet:begin -->\n{PLAIN}\n<!-- whet:end -->\n" for stage in STAGES})
RUN = re.compile(r"^Run \d+:\nplan answered: (.*)\nanswer answered: (.*)$", re.MULTILINE)


def quality(seed: int, stage: str, text: str, broken: bool) -> float:
    """How often a prompt of a stage succeeds: of the phrases a third helps, and a third hinders."""
    order = shuffle(PHRASES, seed, stage)
    third = len(order) // 3
    good, bad = (sum(phrase in text for phrase in part) for part in (order[:third], order[third : 2 * third]))
    return min(0.98, max(0.02, (0.25 if broken else 0.7) + 0.12 * good - 0.12 * bad))


@dataclass(frozen=True)
class StageEnvironment(Environment):
    """Two calls of the task model a rollout; the reward is the mean of the stages, or whether the two prompts match."""

    seed: int = 0
    interaction: int = 0
    calls = 2

    def worth(self, prompt: Prompt) -> float:
        """What a prompt earns on average."""
        texts = [prompt.region_text(stage) for stage in STAGES]
        if self.interaction:
            return self.match(texts)
        broken = int(chance(self.seed, "broken") * 2)
        pairs = enumerate(zip(STAGES, texts, strict=True))
        return sum(quality(self.seed, stage, text, at == broken) for at, (stage, text) in pairs) / 2

    def match(self, texts: list[str]) -> float:
        """How often prompts earn something that only earn together: by the first phrase of each."""
        first, second = ([p for p in PHRASES if p in text][:1] for text in texts)
        return 0.9 if first and first == second else 0.2

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        texts = [prompt.region_text(stage) for stage in STAGES]
        broken, steps = int(chance(self.seed, "broken") * 2), []
        for at, (stage, text) in enumerate(zip(STAGES, texts, strict=True)):
            await run.generate("task", Request((Message("user", f"{text} {example.id}"),)))
            likely = self.match(texts) if self.interaction else quality(self.seed, stage, text, at == broken)
            right = chance(self.seed, example.id, "" if self.interaction else stage) < likely
            steps.append(TraceStep(stage, {}, "sound" if right else "muddled"))
        reward = sum(step.output == "sound" for step in steps) / 2
        return Rollout(prompt.id, example.id, "done", reward, steps=tuple(steps))


class Attributor(Crosser):
    """Writes as `Crosser`; asked for credits it gives 1 for a sound answer and -1 for another one, as far as it is shown them."""

    def answer(self, request: Request, sample: int) -> str:
        question = request.messages[-1].content
        if "<CREDITS>" not in question:
            return super().answer(request, sample)
        runs = RUN.findall(question) or [("", "")] * question.count("Reward: ")
        worth = {"sound": 1, "muddled": -1}
        credits = [dict(zip(STAGES, [worth.get(one, 0) for one in run], strict=True)) for run in runs]
        return f"<CREDITS>{json.dumps(credits)}</CREDITS>"


class Changed(Attributor):
    """An attributor whose questions or replies are changed on the way."""

    question: Callable[[str], str] = staticmethod(str)
    reply: Callable[[str], str] = staticmethod(str)

    def answer(self, request: Request, sample: int) -> str:
        text = request.messages[-1].content
        if "<CREDITS>" not in text:
            return super().answer(request, sample)
        asked = Request((Message("user", type(self).question(text)),))
        return type(self).reply(super().answer(asked, sample))


def exchanged(reply: str) -> str:
    """Credits dealt to the prompts by chance."""
    runs = json.loads(reply.removeprefix("<CREDITS>").removesuffix("</CREDITS>"))
    dealt = [
        dict(zip(one, shuffle(list(one.values()), reply, at), strict=True)) for at, one in enumerate(runs)
    ]
    return f"<CREDITS>{json.dumps(dealt)}</CREDITS>"


def hidden(question: str) -> str:
    """A question to the attributor without what the prompts answered."""
    return re.sub(r"^(plan|answer) answered: .*\n", "", question, flags=re.MULTILINE)


CHANGES: dict[str, dict[str, Any]] = {
    "": {},
    "exchanged": {"reply": staticmethod(exchanged)},
    "hidden": {"question": staticmethod(hidden)},
    "unreadable": {"reply": staticmethod(lambda reply: "<CREDITS>It depends.</CREDITS>")},
}


def rows(first: int, n: int) -> tuple[Example, ...]:
    """Rows with nothing in them but a number."""
    return tuple(
        Example(f"row-{i}", {"input": f"Row {i}"}, None, {}, f"Row {i}") for i in range(first, first + n)
    )


def stage_world(seed: int, interaction: int = 0, change: str = "") -> KnownWorld:
    """The world of a seed."""
    env = StageEnvironment(
        Answers(lambda question, sample: "done"),
        ExactMatch(),
        rows(0, 80),
        rows(1000, 30),
        seed=seed,
        interaction=interaction,
    )
    writer: Any = type("Writer", (Changed,), CHANGES[change])("writer", {"seed": str(seed)})
    return KnownWorld(env, START, env.worth, writer)
