"""A simulated generator of JSON pages that obeys hidden rules as far as its prompt states them.

The law, for the first `rules` rules (the others are always broken unless stated). Let a page be one
request, and the prompt everything before it. For a rule r that the prompt

- does not mention, the page obeys r with probability `logistic(b_r + care * z)`: b_r is drawn per rule
  (normal, deviation `spread`), z per page (normal), and the b are shifted so that the mean over rules
  and pages is `base`;
- hints at (the topic without the value, or only a complaint), it obeys with at least `hint`;
- states, it fails with probability `slip * (1 + instructions / room) * (1 + (tokens / length) ** 2)`, the
  number of instructions and of tokens being those of the whole prompt, at most 1/2; on a share `lapse`
  of the pages it fails with probability 1/4 at least;
- contradicts, it obeys with probability `defy`;
- states and contradicts, one of the two wins, the later one with probability `recency`, once per prompt.

Whether a rule is obeyed is one draw per rule and page: with probability `habit` it is the same under all
prompts, otherwise it is drawn anew for every prompt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from statistics import NormalDist
from typing import ClassVar

from benchmarks.simulated.language import Stance, paragraphs
from benchmarks.simulated.rules import RULES, first, page_breaking, stances

from whet.models.scripted import Scripted, chance, tokens
from whet.types import Request

# Mean share of rules that a plain prompt already obeys, by number of rules.
BASES = ((1, 0.70), (10, 0.70), (25, 0.52), (50, 0.35), (100, 0.15))
_NORMAL = NormalDist()
_PAGE_QUANTILES = tuple(_NORMAL.inv_cdf((i + 0.5) / 15) for i in range(15))
_LAPSE_SLIP = 0.25
_WORST_SLIP = 0.5


@dataclass(frozen=True, slots=True)
class Prompting:
    """What a prompt says: the winning stance towards each rule that it mentions, and how long it is."""

    stance: Mapping[str, Stance]
    instructions: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Mood:
    """What holds for all rules on one page: its care (in log-odds) and the probability of a slip."""

    care: float
    slip: float


def default_base(rules: int) -> float:
    """Mean share of rules obeyed without instructions: straight lines between the numbers in `BASES`."""
    for (low, at_low), (high, at_high) in pairwise(BASES):
        if rules <= high:
            return at_low + (at_high - at_low) * (rules - low) / (high - low)
    return BASES[-1][1]


def split_request(request: Request) -> tuple[str, str]:
    """The prompt and the page that is asked for: the last message, or the last line of the only one."""
    if len(request.messages) > 1:
        return "\n".join(m.content for m in request.messages[:-1]), request.messages[-1].content
    before, _, last = request.messages[0].content.rstrip().rpartition("\n")
    return before, last


class RulesGenerator(Scripted):
    """Writes one JSON page; see the module for the law."""

    provider: ClassVar[str] = "simulated"
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "rules": "50",
        "base": "",
        "spread": "0.8",
        "care": "1.3",
        "hint": "0.5",
        "slip": "0.00075",
        "room": "150",
        "length": "6000",
        "lapse": "0.015",
        "defy": "0.05",
        "recency": "0.6",
        "habit": "0.5",
    }

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.rules = first(self.option_int("rules", 1, len(RULES)))
        for key in ("hint", "slip", "lapse", "defy", "recency", "habit"):
            self.option_float(key)
        self._values = {
            **{key: self.option_float(key) for key in ("hint", "slip", "lapse", "defy", "recency", "habit")},
            **{key: self.option_float(key, 0.0, 10.0) for key in ("spread", "care")},
            **{key: self.option_float(key, 1.0, 1e9) for key in ("room", "length")},
        }
        if not self.options["base"]:
            self.options["base"] = str(default_base(len(self.rules)))
        self._bias = self._biases(self.option_float("base", 0.001, 0.999))
        self._understood = lru_cache(maxsize=4096)(self._understand)

    def answer(self, request: Request, sample: int) -> str:
        """The page as compact JSON."""
        prompt, query = split_request(request)
        understood = self._understood(prompt)
        page = f"{query}\x1e{sample}"
        mood = self.mood(understood, page)
        broken = [rule.id for rule in RULES if not self._obeys(rule.id, understood, mood, (page, prompt))]
        return json.dumps(page_breaking(query, broken), ensure_ascii=False, separators=(",", ":"))

    def _obeys(self, rule: str, understood: Prompting, mood: Mood, drawn: tuple[str, str]) -> bool:
        page, prompt = drawn
        likely = self.probability(rule, understood, mood)
        if likely <= 0:  # most rules are none of the world's: nothing to draw
            return False
        habitual = chance(self.seed, "habit", rule, page) < self._values["habit"]
        draw = chance(self.seed, "draw", rule, page, "" if habitual else prompt)
        return draw < likely

    def mood(self, understood: Prompting, page: str) -> Mood:
        """What holds for all rules on a page: how careful it is, and how often stated rules slip."""
        z = _NORMAL.inv_cdf(min(max(chance(self.seed, "care", page), 1e-9), 1 - 1e-9))
        crowd = 1 + understood.instructions / self._values["room"]
        bulk = 1 + (understood.tokens / self._values["length"]) ** 2
        slip = self._values["slip"] * crowd * bulk
        if chance(self.seed, "lapse", page) < self._values["lapse"]:
            slip = max(slip, _LAPSE_SLIP)
        return Mood(self._values["care"] * z, min(_WORST_SLIP, slip))

    def probability(self, rule: str, understood: Prompting, mood: Mood) -> float:
        """Probability that a page obeys a rule under a prompt: the law."""
        stance = understood.stance.get(rule, Stance.NONE)
        if stance is Stance.CONTRARY:
            return self._values["defy"]
        if stance is Stance.STATED:
            return 1 - mood.slip
        usual = _logistic(self._bias[rule] + mood.care) if rule in self._bias else 0.0
        return max(usual, self._values["hint"]) if stance is Stance.HINT else usual

    def understand(self, prompt: str) -> Prompting:
        """What a prompt says about every rule."""
        return self._understood(prompt)

    def _understand(self, prompt: str) -> Prompting:
        claims: dict[str, list[tuple[Stance, str]]] = {}
        read = paragraphs(prompt)
        for sentence in chain.from_iterable(read):
            for rule, stance in stances(sentence):
                claims.setdefault(rule, []).append((stance, sentence))
        for pair in chain.from_iterable(pairwise(paragraph) for paragraph in read):
            for rule, stance in stances(" ".join(pair)):
                if rule not in claims and stance is Stance.STATED:
                    claims[rule] = [(stance, " ".join(pair))]
        won = {rule: self._winner(rule, made) for rule, made in claims.items()}
        return Prompting(won, sum(map(len, read)), tokens(prompt))

    def _winner(self, rule: str, made: Sequence[tuple[Stance, str]]) -> Stance:
        definite = [claim for claim in made if claim[0] is not Stance.HINT]
        if not definite:
            return Stance.HINT
        last = definite[-1][0]
        others = [claim for claim in definite if claim[0] is not last]
        if not others:
            return last
        later_wins = (
            chance(self.seed, "recency", rule, definite[-1][1], others[-1][1]) < self._values["recency"]
        )
        return last if later_wins else others[-1][0]

    def _biases(self, mean: float) -> dict[str, float]:
        drawn = {
            rule.id: self._values["spread"]
            * _NORMAL.inv_cdf(chance(self.seed, "bias", rule.id) * 0.98 + 0.01)
            for rule in self.rules
        }
        pages = [self._values["care"] * z for z in _PAGE_QUANTILES]
        low, high = -12.0, 12.0
        for _ in range(40):
            shift = (low + high) / 2
            share = (
                sum(_logistic(b + shift + z) for b in drawn.values() for z in pages) / len(drawn) / len(pages)
            )
            low, high = (shift, high) if share < mean else (low, shift)
        return {rule: b + shift for rule, b in drawn.items()}


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
