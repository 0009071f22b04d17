"""Simulated worlds of hidden rules: topics that fail until the prompt holds their phrase, and phrases that do harm everywhere.

The optimizers read what a meta-prompt shows, as `readers.py`: the topics of failed inputs, what was refused, what stands already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from tests.methods.readers import FAILED_INPUT, TOPICS, Blinded, TopicModel, letters

import whet
from whet.environments.environment import Environment
from whet.methods.ace import REWRITE
from whet.models.scripted import Scripted, chance, luck, request_text, shuffle
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers
from whet.types import Example, Message, Request

LAST_WORD = "Answer with the last word."
SORT = Prompt.parse("You sort letters.\n<!-- whet:begin -->\nSay yes or no.\n<!-- whet:end -->\n{{input}}")
HARMFUL = PHRASES[TOPICS:]


class PoisonModel(TopicModel):
    """A TopicModel to which each harmful phrase in its prompt costs `harm` on all inputs; half of the topics fail at first."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"harm": "0.05"}
    FAILING = 6

    def right(self, topic: int, prompt: str) -> float:
        harm = self.option_float("harm") * sum(phrase in prompt for phrase in HARMFUL)
        return max(0.0, super().right(topic, prompt) - harm)


def failed_topics(question: str) -> list[int]:
    """The topics of the inputs that a question shows as failed, the most frequent first."""
    failed = [
        int(topic[0])
        for block in question.split("Input: ")[1:]
        if not re.search(r"Reward: 1\b", block) and (topic := FAILED_INPUT.findall(f"Input: {block}"))
    ]
    return sorted(set(failed), key=lambda topic: (-failed.count(topic), topic))


class RuleWriter(Scripted):
    """Knows a phrase for each topic that it sees fail, with the probability `right` the one that helps, else a harmful one.

    It takes none that it sees already, in the text or among what was refused. `write` says it in the form of a method."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"right": "0.5", "most": "6", "forgets": "0.05"}
    write: Callable[[RuleWriter, str, list[str]], str] = lambda self, question, phrases: ""

    def phrases(self, question: str, draw: str) -> list[str]:
        right, chosen = self.option_float("right"), list[str]()
        for topic in failed_topics(question):
            good = chance(self.seed, draw, topic) < right
            phrase = PHRASES[topic] if good else shuffle(HARMFUL, self.seed, draw, topic)[0]
            chosen += [phrase] if phrase not in question else []
        return shuffle(chosen, self.seed, draw, "order")[: self.option_int("most")]

    def answer(self, request: Request, sample: int) -> str:
        question = request_text(request)
        return type(self).write(self, question, self.phrases(question, luck(request, sample)))


def edits(writer: RuleWriter, question: str, phrases: list[str]) -> str:
    """Phrases as edits at the end of the text; notes and guidance that say nothing."""
    if "<EDITS>" not in question:
        return "<NOTES>Small edits.</NOTES><GUIDANCE>Take care.</GUIDANCE>".replace("><", ">\n<")
    return f"<EDITS>{json.dumps([{'op': 'append', 'text': phrase} for phrase in phrases])}</EDITS>"


def poisoned(
    seed: int,
    write: Callable[[RuleWriter, str, list[str]], str],
    change: Callable[[str], str] = str,
    harm: str = "0.05",
    **options: str,
) -> KnownWorld:
    """Letters about twelve topics, and an optimizer that knows phrases, some of them harmful."""
    model = PoisonModel("topics", {"seed": str(seed), "harm": harm})
    writer = type("Writer", (RuleWriter,), {"write": staticmethod(write)})(
        "writer", {"seed": str(seed), **options}
    )
    env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
    reader: Any = Blinded(writer, change)
    return KnownWorld(env, SORT, lambda p: model.accuracy(p.source), reader)


def optimized(
    folder: Path, method: str, write: Callable[[str], str], *, lucky: bool = False, **settings: Any
) -> str:
    """The best text that a method finds, through `whet.optimize`, where the prompt must ask for the last word.

    `write` is the optimizer; 200 task calls and 15 optimizer calls may be made. A `lucky` model is right now and then."""
    calls = iter(range(10**6))

    def answer(messages: list[Message]) -> str:
        right = LAST_WORD in messages[0].content or (lucky and next(calls) % 4 == 0)
        return messages[-1].content.split()[-1] if right else "?"

    result = whet.optimize(
        "<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->",
        data=[{"input": f"Text {i} ends in w{i}", "target": f"w{i}"} for i in range(60)],
        reward="exact_match",
        lm=answer,
        optimizer_lm=lambda messages: write(messages[-1].content),
        method=method,
        settings=settings,
        budget=whet.Budget(task_calls=200, optimizer_calls=15),
        run=folder / "run",
    ).to_dict()
    assert result["usage"]["calls"]["task"] <= 200 and result["usage"]["calls"]["optimizer"] <= 15
    return Prompt.parse(result["best"]["prompt"]).region_text()


LESSON = re.compile(r"^\[(L\d+)\] (.*?)(?: \(helped \d+, harmed \d+\))?$", re.MULTILINE)


def playbook(writer: RuleWriter, question: str, phrases: list[str]) -> str:
    """Phrases as insights, then as lessons; verdicts on the lessons that it sees are right three times in four.

    Asked for the whole list it forgets some lessons.
    """
    lessons, draw = dict(LESSON.findall(question)), f"{len(question)} {question[-2000:]}"
    if "<REFLECTION>" in question:
        verdicts: dict[bool, list[str]] = {True: [], False: []}
        for key, text in lessons.items():
            if chance(writer.seed, draw, key, "judged") < 0.3:
                right = chance(writer.seed, draw, key, "right") < 0.75
                verdicts[(text in HARMFUL) != right].append(key)
        reflection = {"insights": phrases, "helped": verdicts[True], "harmed": verdicts[False]}
        return f"<REFLECTION>{json.dumps(reflection)}</REFLECTION>"
    new = [
        line.removeprefix("- ")
        for line in question.partition("New insights:\n")[2].split("\n\n")[0].splitlines()
    ]
    if "<OPERATIONS>" in question:
        return f"<OPERATIONS>{json.dumps([{'op': 'add', 'text': text} for text in new])}</OPERATIONS>"
    if REWRITE not in question:
        return "".join(f"<LESSON>{text}</LESSON>\n" for text in new)
    forgets = writer.option_float("forgets")
    old = [text for key, text in lessons.items() if chance(writer.seed, draw, key, "kept") >= forgets]
    return "".join(f"<LESSON>{text}</LESSON>\n" for text in [*old, *new])


CODE = re.compile(r"^(?:- )?(k\d+) means (\d)$", re.MULTILINE)
KNOWS = 0.15


class CodeWriter(RuleWriter):
    """Says of each kind of input that it sees fail which digit was wanted."""

    def phrases(self, question: str, draw: str) -> list[str]:
        failed = re.findall(r"Input: (k\d+) .*\nWanted: (\d)\n.*\nReward: 0", question)
        return [f"{kind} means {digit}" for kind, digit in dict(failed).items()]


def many_codes(
    seed: int,
    kinds: int,
    write: Callable[[RuleWriter, str, list[str]], str],
    change: Callable[[str], str] = str,
    base: type[RuleWriter] = CodeWriter,
    **options: str,
) -> KnownWorld:
    """Inputs of many kinds, each with a digit as its answer, which the task model knows for 15 % of them without a lesson."""

    def digit(kind: str) -> str:
        return str(int(10 * chance(seed, "digit", kind)))

    def answer(question: str, sample: int) -> str:
        prompt, _, text = question.rpartition("Question: ")
        kind = text.split()[0]
        taught, right = dict(CODE.findall(prompt)), digit(kind)
        knows = chance(seed, "knows", text, sample) < KNOWS
        return taught.get(kind) or (right if knows else str((int(right) + 1) % 10))

    def rows(first: int, n: int) -> tuple[Example, ...]:
        texts = [f"k{i % kinds} number {i}?" for i in range(first, first + n)]
        return tuple(
            Example(text, {"input": text}, digit(text.split()[0]), {"input": text}, text) for text in texts
        )

    def worth(prompt: Prompt) -> float:
        taught = dict(CODE.findall(prompt.text))
        return sum(taught.get(f"k{i}") == digit(f"k{i}") for i in range(kinds)) / kinds

    start = Prompt.parse("<!-- whet:begin -->\nAnswer with a digit.\n<!-- whet:end -->\nQuestion: {{input}}")
    writer = type("Writer", (base,), {"write": staticmethod(write)})("writer", {"seed": str(seed), **options})
    reader: Any = Blinded(writer, change)
    env = Environment(Answers(answer), ExactMatch(), rows(0, 4 * kinds), rows(10_000 * kinds, kinds))
    return KnownWorld(env, start, worth, reader)


class GroupWriter(RuleWriter):
    """Says of each kind of input which digit the answers with the full reward gave, whatever was wanted."""

    def phrases(self, question: str, draw: str) -> list[str]:
        blocks = [block.partition("\n")[::2] for block in question.split("Input: ")[1:]]
        right = {text.split()[0]: re.findall(r"Answered: (\d)\nReward: 1", rest) for text, rest in blocks}
        return [f"{kind} means {digits[0]}" for kind, digits in right.items() if digits]


def insights(writer: RuleWriter, question: str, phrases: list[str]) -> str:
    """Phrases as insights between tags, then as operations."""
    if "<OPERATIONS>" in question:
        return playbook(writer, question, phrases)
    return "\n".join(f"<INSIGHT>{phrase}</INSIGHT>" for phrase in phrases)


def tips_of(writer: RuleWriter, question: str, phrases: list[str]) -> str:
    """Phrases as tips between tags."""
    return "\n".join(f"<TIP>{phrase}</TIP>" for phrase in phrases)


def with_rewards_shuffled(question: str) -> str:
    """A question in which the rewards of the answers to an input are dealt out anew among these."""

    def dealt(block: str) -> str:
        rewards = re.findall(r"(?m)^Reward: .*$", block)
        new = iter(shuffle(rewards, block))
        return re.sub(r"(?m)^Reward: .*$", lambda _: next(new), block)

    head, *blocks = question.split("Input: ")
    return "Input: ".join([head, *map(dealt, blocks)])
