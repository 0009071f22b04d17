"""The simulated optimizer model: it understands every comment, and answers with habits that real models have.

It reads numbered critiques, consolidates proposals, rewrites what still fails, restates raw texts (each with a JSON form),
and writes a whole prompt (no JSON form: in the tags or the fence that the request names). SIMULATED.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.voices.world import START, Comment, Reader, World

KNOWN = re.compile(r"^\s*\[([a-z]\d+)\]\s+(.+?)\s*$", re.MULTILINE)
NUMBERED = re.compile(r"^\s*(\d+)\.\s+(.+?)\s*$", re.MULTILINE)
BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])?\s*")
OPENING = re.compile(r"<([A-Za-z][\w-]*)>")
TAG = re.compile(r"<([A-Za-z][\w-]*)>((?:(?!</?\1>).)*)</\1>", re.DOTALL)
FENCE = re.compile(r"^```[\w-]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
FORMS = ("rewrites", "duplicates", "requirements", "texts")
REFUSAL = "I am sorry, but I would rather not work on these letters."
NUMBERS = ("right", "off", "none")
PROSE = ("Of course! I went through everything with care:", "Let me know whether you would like more detail.")
THOUGHT = '<think>The first one is about {"a hut"}, the others [perhaps] too. Let me count.</think>\n'


@dataclass(frozen=True)
class Habits:
    """Shares of requests, requirements or lines at which the simulated optimizer does as the name says."""

    most: int = 12
    """Requirements that one answer covers at most (k)."""
    drop: float = 0.12
    numbers: str = "right"
    """How it names the critiques: right, off (by one, three in ten), or none."""
    prose: float = 0.25
    thought: float = 0.15
    cut: float = 0.03
    repeat: float = 0.05
    """Requirements whose instruction is the complaint itself."""
    refuse: float = 0.02
    empty: float = 0.06
    """Requirements whose instruction is a line without content."""
    again: float = 0.08
    """Demands of a known instruction that it proposes again, in other words."""
    forget: float = 0.02
    """Lines lost when it writes a whole prompt."""
    gullible: bool = False
    """Whether it obeys commands that stand in a comment."""


class Optimizer:
    """Answers requests with the knowledge of a world's texts."""

    def __init__(self, world: World, habits: Habits | None = None) -> None:
        self.world, self.habits = world, habits or Habits()
        self.understand = Reader(world.book)
        self._vague = {vague_line(rule.topic).lower(): key for key, rule in world.book.rules.items()}

    def __call__(self, request: str, schema: str = "", sample: object = 0) -> tuple[str, str]:
        """The reply and its finish reason. `sample` draws another reply to the same request."""
        draw = random.Random(f"{self.world.setting.seed}/{sample}/{request}")
        if draw.random() < self.habits.refuse:
            return REFUSAL, "stop"
        form = next((f for f in FORMS if f'"{f}"' in schema), "")
        form = form or next((f for f in FORMS if re.search(rf'["`]{f}["`]', request)), "")
        if not form:
            return self._whole(request, draw), "stop"
        answers = (self._rewrites, self._consolidate, self._read, self._restate)
        value = dict(zip(FORMS, answers, strict=True))[form](request, draw)
        reply = json.dumps(value, ensure_ascii=False, indent=draw.choice((None, 1)))
        if draw.random() < self.habits.prose:
            reply = f"{PROSE[0]}\n\n```json\n{reply}\n```\n\n{PROSE[1]}"
        if draw.random() < self.habits.thought:
            reply = THOUGHT + reply
        if draw.random() < self.habits.cut:
            return reply[: int(len(reply) * draw.uniform(0.5, 0.95))], "length"
        return reply, "stop"

    # What a line of the request is about.

    def meaning(self, text: str) -> tuple[str, int]:
        """Rule and stance of an instruction; stance 0 for one without content; ("", 0) when it is about no rule."""
        if stated := self.world.states(text):
            return stated[0]
        if key := self._vague.get(text.strip().lower()):
            return key, 0
        return next(((c.rule, stance(c)) for c in self.understand(text) if c.rule), ("", 0))

    def wording(self, key: str, sign: int, draw: random.Random, tried: Iterable[str] = ()) -> str:
        """A text that states a rule (or its opposite), if possible one that was not tried."""
        rule = self.world.book.rules[key]
        texts = rule.wordings if sign > 0 else rule.opposites
        return draw.choice([text for text in texts if text not in set(tried)] or texts)

    # The JSON forms.

    def _read(self, request: str, draw: random.Random) -> dict[str, Any]:
        critiques, known = numbered_lines(request), dict(KNOWN.findall(request))
        wants: dict[tuple[str, int], list[int]] = {}
        lists: dict[str, list[int]] = {"no_demand": [], "vague": [], "to_the_reader": []}
        commands = []
        for number, text in enumerate(critiques, 1):
            for comment in self.understand(text):
                if comment.rule:
                    wants.setdefault((comment.rule, stance(comment)), []).append(number)
                elif comment.kind == "command":
                    lists["to_the_reader"].append(number)
                    commands.append((number, comment.does))
                else:
                    lists["vague" if comment.kind == "vague" else "no_demand"].append(number)
        known_by: dict[tuple[str, int], str] = {}
        for name, text in known.items():
            known_by.setdefault(self.meaning(text), name)
        order = sorted(wants, key=lambda want: (-len(wants[want]), draw.random()))
        requirements = [
            self._requirement(want, wants[want], critiques, known_by, draw)
            for want in order[: self.habits.most]
            if draw.random() >= self.habits.drop
        ]
        if self.habits.gullible:
            lists["to_the_reader"] = []
            requirements += [entry([number], instruction=does) for number, does in commands]
        for numbers in (*(r["critiques"] for r in requirements), *lists.values()):
            numbers[:] = self._name_numbers(numbers, draw)
        return {"requirements": requirements, **lists}

    def _requirement(
        self,
        want: tuple[str, int],
        numbers: list[int],
        critiques: Sequence[str],
        known_by: Mapping[tuple[str, int], str],
        draw: random.Random,
    ) -> dict[str, Any]:
        key, sign = want
        vague = known_by.get((key, 0), "") if draw.random() < 0.5 else ""
        same = known_by.get(want, "") or vague
        if same and draw.random() >= self.habits.again:
            return entry(numbers, violates=same)
        text = self._proposal(want, critiques[numbers[0] - 1], draw)
        return entry(numbers, instruction=text, contradicts=known_by.get((key, -sign)))

    def _proposal(self, want: tuple[str, int], comment: str, draw: random.Random) -> str:
        """An instruction for a demand: mostly one that states it, else a line without content or the comment itself."""
        luck = draw.random()
        if luck < self.habits.empty:
            return vague_line(self.world.book.rules[want[0]].topic)
        return comment if luck < self.habits.empty + self.habits.repeat else self.wording(*want, draw)

    def _name_numbers(self, numbers: list[int], draw: random.Random) -> list[int]:
        if self.habits.numbers == "none":
            return []
        if self.habits.numbers == "off":
            return [n + draw.choice((-1, 1)) if draw.random() < 0.3 else n for n in numbers]
        return numbers

    def _consolidate(self, request: str, draw: random.Random) -> dict[str, Any]:
        groups: dict[tuple[str, int], list[str]] = {}
        texts = dict(KNOWN.findall(request))
        for name, text in texts.items():
            if (meaning := self.meaning(text))[0]:
                groups.setdefault(meaning, []).append(name)
        duplicates = []
        for names in groups.values():
            if len(names) > 1 and draw.random() >= self.habits.drop / 2:
                clear = [name for name in names if self.world.states(texts[name])]
                duplicates.append({"ids": names, "best": (clear or names)[0]})
        pairs = [
            [names[0], groups[key, -1][0]]
            for (key, sign), names in groups.items()
            if sign > 0 and (key, -1) in groups
        ]
        return {"duplicates": duplicates, "contradictions": pairs}

    def _rewrites(self, request: str, draw: random.Random) -> dict[str, Any]:
        parts = KNOWN.split(request)[1:]
        rewrites = []
        for name, text, rest in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            key, sign = self.meaning(text)
            if not key or not sign:
                meant = [c for line in rest.splitlines() for c in self.understand(line) if c.rule]
                key, sign = next(((c.rule, stance(c)) for c in meant if key in ("", c.rule)), (key, 1))
            if key and draw.random() >= self.habits.drop:
                rule = self.world.book.rules[key]
                tried = [t for t in (*rule.wordings, *rule.opposites) if t in rest or t == text]
                better = self.wording(key, sign, draw, tried)
                rewrites.append({"instruction_id": name, "text": better})
        return {"rewrites": rewrites}

    def _restate(self, request: str, draw: random.Random) -> dict[str, Any]:
        """Numbered texts as instructions; what demands nothing is left out."""
        texts = []
        for number, text in enumerate(numbered_lines(request), 1):
            key, sign = self.meaning(text)
            if key and draw.random() >= self.habits.drop:
                clear = self.world.states(text) or not sign
                texts.append({"number": number, "text": text if clear else self.wording(key, sign, draw)})
        return {"texts": texts}

    # A whole prompt.

    def _whole(self, request: str, draw: random.Random) -> str:
        current = max(blocks(request), key=self._instructions, default="")
        lines = [line for line in current.strip().splitlines() if draw.random() >= self.habits.forget]
        about = [self.meaning(BULLET.sub("", line)) for line in lines]
        covered = {key for key, sign in about if sign or draw.random() < 0.5}
        wants: dict[tuple[str, int], str] = {}
        for line in request.splitlines():
            for comment in self.understand.verbatim(line):
                if comment.rule:
                    wants.setdefault((comment.rule, stance(comment)), BULLET.sub("", line).strip())
        fresh = [want for want in wants if want[0] not in covered][: self.habits.most]
        added = [f"- {self._proposal(w, wants[w], draw)}" for w in fresh if draw.random() >= self.habits.drop]
        if self.habits.gullible:
            commands = (c for line in request.splitlines() for c in self.understand.verbatim(line) if c.does)
            added += [f"- {does}" for does in dict.fromkeys(c.does for c in commands)]
        text = "\n".join([*lines, *added]).strip()
        tag = tag_of_reply(request)
        return f"<{tag}>\n{text}\n</{tag}>" if tag else f"```\n{text}\n```"

    def _instructions(self, block: str) -> tuple[int, bool, int]:
        stated = sum(bool(self.world.states(line)) for line in block.splitlines())
        return stated, START in block, -len(block)


def stance(comment: Comment) -> int:
    """1 when the guest wants the rule, -1 when the guest wants its opposite."""
    return -1 if comment.kind == "contrary" else 1


def vague_line(topic: str) -> str:
    """An instruction without content."""
    return f"Take more care with {topic}."


def entry(
    numbers: list[int],
    violates: str | None = None,
    instruction: str | None = None,
    contradicts: str | None = None,
) -> dict[str, Any]:
    """One requirement of the reading form."""
    return {
        "critiques": list(numbers),
        "existing": violates,
        "instruction": instruction,
        "contradicts": contradicts,
    }


def numbered_lines(request: str) -> list[str]:
    """The texts of the longest list in the request that is numbered 1, 2, 3 ..."""
    runs: list[list[str]] = [[]]
    for number, text in NUMBERED.findall(request):
        if int(number) == 1:
            runs.append([])
        if int(number) == len(runs[-1]) + 1:
            runs[-1].append(text)
    return max(runs, key=len)


def blocks(request: str) -> Iterable[str]:
    """The texts in tags or code fences, the inner ones too."""
    for match in TAG.finditer(request):
        yield match[2]
        yield from blocks(match[2])
    yield from FENCE.findall(request)


def tag_of_reply(request: str) -> str:
    """The tag that the reply should have: the last one that holds nothing, or a placeholder; "" for a code fence."""
    held = {match.start() for match in TAG.finditer(request) if len(match[2]) > 60}
    return next((m[1] for m in reversed([*OPENING.finditer(request)]) if m.start() not in held), "")
