"""What becomes of a live prompt's instructions over months in which policies change. Everything but whet itself is simulated.

    python benchmarks/lifecycle.py                       # 12 months, seeds 0 to 4, with upkeep and without
    python benchmarks/lifecycle.py --months 6 --seeds 1

A desk answers questions about topics. For each topic a policy says what the answer must be; every month two policies change and,
from the fourth month on, one topic is given up. Customers whose answer is not what the policy says complain in half of the cases.
The learner reads the complaints, a person approves each proposal (simulated: always), and the owner keeps the task of the gate at
the policy of the day (simulated). The reader of comments is simulated too: one in four times it does not see that an instruction
says already what a comment wants, or that two say the same, so that the same is written twice. The answering model follows the
instructions that it finds; where two contradict each other, it follows one of them by chance.

Printed are, by arm: the share of answers that are right in the second half of each month, the instructions and their tokens at
its end, how many of these say the same as another one, contradict the policy or are about a topic that was given up, and how
often, so far, an instruction that the policy still wants left without another one that says the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from whet.prompt import Prompt
from whet.types import Request, content_hash
from whet_client.records import Feedback, Inference
from whet_live.database import open_database
from whet_live.learner.context import LearnerConfig
from whet_live.learner.gate_config import GateConfig
from whet_live.learner.learner import Learner
from whet_live.learner.learner_store import PROPOSED, LearnerSettings
from whet_live.registry import Decision, Registry
from whet_live.traffic import Traffic

NAME = "desk"
TOPICS = (
    "currency",
    "weight",
    "date",
    "time",
    "length",
    "country",
    "greeting",
    "title",
    "unit",
    "font",
    "colour",
    "speed",
)
VALUES = ("amber", "basil", "cedar", "delta", "ember")
WORDINGS = (
    "Give the {topic} of every answer as {value}.",
    "Whatever is asked, the {topic} that an answer names has to be {value} and nothing else.",
    "In each and every single answer, without any exception, always state the {topic} in the form of {value}.",
)
SHORT = "{topic}: {value}."
COMPLAINTS = (
    "The {topic} should be {value}.",
    "Wrong {topic}, it is {value} here.",
    "{value} for the {topic}, please!",
)
PROMPT = "You are a desk.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n{{question}}\n"
UNKNOWN = "unknown"
MISSES = 0.25
"""How often the simulated reader does not see that an instruction says already what a comment wants, or what another one says."""
COMPLAIN, CHANGES, FIRST_END = 0.5, 2, 4
GATED_ROWS = 60
MOST_STEPS = 40

Duty = tuple[str, str]
"""A topic, and what an answer about it must be."""
_DUTIES = {(t, v) for t in TOPICS for v in VALUES}
_OF_TEXT = {form.format(topic=t, value=v): (t, v) for t, v in _DUTIES for form in (*WORDINGS, SHORT)}
_OF_COMMENT = {form.format(topic=t, value=v): (t, v) for t, v in _DUTIES for form in COMPLAINTS}


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    return int(content_hash([str(part) for part in parts])[:8], 16) / 16**8


# The simulated models


def follow(prompt: str, question: str) -> str:
    """What the simulated answering model says: the value that an instruction gives for the topic, one of several by chance."""
    topic = next((t for t in TOPICS if t in question), "")
    lines = [line.removeprefix("- ") for line in prompt.splitlines()]
    wanted = [_OF_TEXT[line][1] for line in lines if line in _OF_TEXT and _OF_TEXT[line][0] == topic]
    return wanted[int(chance(question, prompt) * len(wanted))] if wanted else UNKNOWN


async def answerer(messages: object, request: Request) -> str:
    """The simulated answering model."""
    text = request.messages[-1].content
    return follow(text, text.strip().splitlines()[-1])


def read_feedback(request: Request) -> str:
    """The simulated reader of comments, writer and comparer of instructions; also for the local server of `whet.testing`."""
    text = request.messages[-1].content
    form = next(iter(dict((request.schema or {}).get("properties") or {})), "")  # type: ignore[call-overload]
    forms = {"requirements": _read, "duplicates": _compare, "demands": _confirm, "rewrites": _shorten}
    return json.dumps(forms[form](text)) if form in forms else "An answer."


async def reader(messages: object, request: Request) -> str:
    """The simulated reader as a model."""
    return read_feedback(request)


for simulated in (answerer, reader):
    simulated.simulated = True  # type: ignore[attr-defined]


def _lines(text: str) -> dict[str, Duty]:
    """The instructions of a request that the simulated reader knows, by id."""
    found = re.findall(r"^\[(\w+)\] (.*)$", text, re.MULTILINE)
    return {key: _OF_TEXT[line] for key, line in found if line in _OF_TEXT}


def _read(text: str) -> dict[str, object]:
    known, _, shown = text.rpartition("Critiques:\n")
    standing = _lines(known)
    places: dict[Duty, list[int]] = {}
    for number, words in re.findall(r"^(\d+)\. (.*)$", shown, re.MULTILINE):
        if words in _OF_COMMENT:
            places.setdefault(_OF_COMMENT[words], []).append(int(number))
    entries = []
    for (topic, value), numbers in places.items():
        said = next((key for key, duty in standing.items() if duty == (topic, value)), None)
        if said is not None and chance("miss", text, topic) < MISSES:
            said = None
        contrary = [key for key, duty in standing.items() if duty[0] == topic and duty[1] != value]
        form = WORDINGS[int(chance("wording", text, topic) * len(WORDINGS))]
        entries.append({
            "critiques": numbers, "existing": said, "contradicts": contrary[0] if contrary else None,
            "instruction": None if said else form.format(topic=topic, value=value),
        })  # fmt: skip
    return {"requirements": entries, "no_demand": [], "vague": [], "to_the_reader": []}


def _compare(text: str) -> dict[str, object]:
    groups: dict[Duty, list[str]] = {}
    for key, duty in _lines(text).items():
        if chance("miss", text, key) >= MISSES:
            groups.setdefault(duty, []).append(key)
    doubles = [{"ids": keys, "best": keys[0], "merged": None} for keys in groups.values() if len(keys) > 1]
    pairs = [[groups[a][0], groups[b][0]] for a in groups for b in groups if a[0] == b[0] and a[1] < b[1]]
    return {"duplicates": doubles, "contradictions": pairs, "unclear": [], "improper": []}


def _confirm(text: str) -> dict[str, object]:
    instruction, comment = (
        re.findall(rf"^{name}: (.*)$", text, re.MULTILINE)[-1] for name in ("Instruction", "Comment")
    )
    return {"demands": _OF_TEXT.get(instruction) == _OF_COMMENT.get(comment, ("", ""))}


def _shorten(text: str) -> dict[str, object]:
    shorter = {key: SHORT.format(topic=t, value=v) for key, (t, v) in _lines(text).items()}
    return {"rewrites": [{"instruction_id": key, "text": new} for key, new in shorter.items()]}


# The simulated desk


@dataclass
class Desk:
    """A prompt in production, its policy, its customers, and the person who approves."""

    folder: Path
    seed: int
    upkeep: int
    policy: dict[str, str] = field(default_factory=dict)
    customers: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.policy = {topic: self.rng.choice(VALUES) for topic in TOPICS}
        self.database = open_database(f"sqlite:///{self.folder}/whet.db")
        self.registry, self.traffic = Registry(self.database), Traffic(self.database)
        gate = GateConfig(self.folder / "task", answerer, root=self.folder / "runs")
        config = LearnerConfig(reader, calls=20, gates={NAME: gate}, root=self.folder / "runs")
        self.learner = Learner(self.database, self.registry, self.traffic, None, config)
        self.registry.create(NAME, Prompt.parse(PROMPT), author="ann", label="production")
        rules = {"quorum": 3, "share": 0, "upkeep": self.upkeep}
        self.learner.configure(NAME, LearnerSettings(rules=rules), actor="ann")

    def close(self) -> None:
        """Give the database back."""
        self.database.close()

    @property
    def standing(self) -> list[str]:
        """The instructions in production."""
        return [one.text for _, one in self.registry.get(NAME).instructions]

    def serve(self, questions: int) -> float:
        """Answer questions; customers complain. The share of answers that are right."""
        version = self.registry.get(NAME)
        asked, said, right = list[Inference](), list[Feedback](), 0
        for _ in range(questions):
            self.customers += 1
            topic, user = self.rng.choice(list(self.policy)), f"c{self.customers}"
            question = f"question {self.customers} about the {topic}"
            answer = follow(version.prompt.source, question)
            shown = Inference(NAME, version.version, {"question": question}, answer, user=user)
            asked.append(shown)
            if answer == self.policy[topic]:
                right += 1
            elif self.rng.random() < COMPLAIN:
                text = self.rng.choice(COMPLAINTS).format(topic=topic, value=self.policy[topic])
                said.append(Feedback("comment", shown.id, text=text, user=user))
        self.traffic.add(asked, said)
        return right / questions

    def change(self, month: int) -> None:
        """What the new month brings: other policies, and topics that are given up."""
        if month:
            for topic in self.rng.sample(sorted(self.policy), CHANGES):
                self.policy[topic] = self.rng.choice([v for v in VALUES if v != self.policy[topic]])
        if month >= FIRST_END and len(self.policy) > len(TOPICS) // 2:
            del self.policy[self.rng.choice(sorted(self.policy))]
        self._write_task(month)

    def _write_task(self, month: int) -> None:
        """The task of the gate, as the owner keeps it: each topic of the policy by turns."""
        task = self.folder / "task"
        task.mkdir(exist_ok=True)
        rows = []
        for split, count in (("train", 12), ("validation", GATED_ROWS), ("test", 12)):
            for n in range(count):
                topic = list(self.policy)[n % len(self.policy)]
                question = f"{split} {month} {n} about the {topic}"
                rows.append({"input": {"question": question}, "target": self.policy[topic], "split": split})
        (task / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
        (task / "prompt.md").write_text(PROMPT, "utf-8")
        text = "name: desk\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n"
        (task / "task.yaml").write_text(text, "utf-8")

    def learn(self) -> None:
        """Steps of the learner until it has nothing to do; a person approves what it proposes."""
        idle = 0
        for _ in range(MOST_STEPS):
            before = self.standing
            update = asyncio.run(self.learner.step(NAME))
            if update is not None and update.outcome == PROPOSED:
                self.registry.decide(str(update.proposal), Decision("approve"), actor="eve")
            self._count_lost(before)
            idle = 0 if update is not None else idle + 1
            if idle > 1:
                return

    def _count_lost(self, before: Sequence[str]) -> None:
        wanted = set(self.policy.items())
        had, has = ({_OF_TEXT.get(text) for text in texts} & wanted for texts in (before, self.standing))
        self.lost += len(had - has)

    def state(self) -> dict[str, float]:
        """How the prompt is at the end of a month."""
        duties = [_OF_TEXT[text] for text in self.standing if text in _OF_TEXT]
        version = self.registry.get(NAME)
        return {
            "instructions": len(duties),
            "tokens": sum(one.tokens for _, one in version.instructions),
            "doubles": len(duties) - len(set(duties)),
            "contrary": sum(t in self.policy and self.policy[t] != v for t, v in duties),
            "obsolete": sum(t not in self.policy for t, v in duties),
        }


def run_months(folder: Path, seed: int, months: int, questions: int, upkeep: int) -> list[dict[str, float]]:
    """One desk over some months; how each ended, with `right`, the share of right answers in its second half, and `lost`."""
    desk = Desk(folder, seed, upkeep)
    try:
        rows = []
        for month in range(months):
            desk.change(month)
            desk.serve(questions)
            desk.learn()
            right = desk.serve(questions)
            desk.learn()
            rows.append({"month": month + 1, "right": right, **desk.state(), "lost": desk.lost})
        return rows
    finally:
        desk.close()


def show(name: str, runs: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """A table of the means over seeds, by month."""
    keys = [key for key in runs[0][0] if key != "month"]
    print(f"\n{name}, means over {len(runs)} seeds (simulated)\n")
    print("| month | " + " | ".join(keys) + " |")
    print("|---" * (len(keys) + 1) + "|")
    for month in zip(*runs, strict=True):
        values = (fmean(row[key] for row in month) for key in keys)
        print(f"| {month[0]['month']} | " + " | ".join(f"{value:.2f}" for value in values) + " |", flush=True)


def main() -> None:
    """Both arms."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--months", type=int, default=12)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--questions", type=int, default=200, help="in each half of a month")
    chosen = options.parse_args()
    for name, upkeep in (("with upkeep", 5), ("without", 0)):
        runs = []
        for seed in range(chosen.seeds):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(run_months(Path(folder), seed, chosen.months, chosen.questions, upkeep))
        show(name, runs)


if __name__ == "__main__":
    main()
