"""The probability of "yes" to a question about the answer as the reward.

Zero-shot reward models (ZYN, Gallego 2023, arXiv 2308.06385, section 3): p(yes) / (p(yes) + p(no)) from the
first token of a model's answer. A second, negated question counters a liking for either word: the two are
averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from whet._util.words import fold
from whet.rewards.asking import (
    MORE_ROOM,
    OF_EVERY_JUDGE,
    RULES,
    SAMPLING,
    RewardOptions,
    enclose_in_markers,
    find_verdict,
    first_of,
    why_unread,
    yes_or_no,
)
from whet.rewards.judge_reply import agree_on, read_reply
from whet.rewards.reward import JUDGE
from whet.run import Run
from whet.types import Completion, Example, Message, Request, Reward

TOP_LOGPROBS = 20
MAX_TOKENS = 16
_LEAST_MASS = 0.5
_MOST_MASS = 1.05


@dataclass(frozen=True)
class YesNo:
    """Probability in [0, 1] that the judge answers `question` with `expect`.

    Taken from the log-probabilities of the first token where the endpoint offers them, else the share of
    `samples` answers. `negated` asks the opposite: p(yes) becomes the mean of p(yes | question) and 1 - p(yes
    | negated). Below one half, `critique` is the critique, by default the question with the judge's answer.
    """

    question: str
    negated: str = ""
    expect: str = "yes"
    samples: int = 1
    critique: str = ""
    human: str | None = None
    human_output: str = "output"
    human_good: str | None = None
    name: str = "yes_no"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({JUDGE})

    @property
    def judge_calls(self) -> int:
        """Calls of the judge for one rollout at most: fewer where log-probabilities are offered."""
        return self.samples * (2 if self.negated else 1)

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        questions = [self.question, *([self.negated] if self.negated else [])]

        async def ask(branch: Run, question: str) -> float:
            return await self._probability(branch, question, example, completion.text)

        probabilities = await run.map(ask, questions)
        yes = fmean([probabilities[0], *(1.0 - p for p in probabilities[1:])])
        value = yes if self.expect == "yes" else 1.0 - yes
        if value >= 0.5:
            return Reward(value)
        wrong = "no" if self.expect == "yes" else "yes"
        default = f'{self.question} The answer is "{wrong}"; it must be "{self.expect}".'
        return Reward(value, critique=self.critique or default)

    async def _probability(self, run: Run, question: str, example: Example, answer: str) -> float:
        """p(yes), from one call or from `samples` of them. Raises RewardFailed when too few can be read."""
        shown = "\n\n".join(
            (enclose_in_markers("The input", example.user_text), enclose_in_markers("The answer", answer))
        )
        query = f"{shown}\n\nThe question: {question}"
        messages = (Message("system", f"{_TASK}\n\n{RULES}"), Message("user", query))
        temperature = SAMPLING if self.samples > 1 else 0.0
        votes: list[bool] = []
        retries, number, room = 1, 0, 1
        while len(votes) < self.samples:
            bound = MAX_TOKENS * room
            request = Request(messages, temperature, bound, top_logprobs=TOP_LOGPROBS, sample=number)
            completion = (await run.generate(JUDGE, request))[0]
            number += 1
            exact = probability_of_yes(completion.first_token)
            if exact is not None:
                return exact
            vote = _vote(completion.text)
            if vote is not None:
                votes.append(vote)
            elif retries == 0:
                raise why_unread(completion, "the judge's answer is neither yes nor no")
            else:
                retries, temperature = 0, SAMPLING
                room = MORE_ROOM if completion.finish == "length" else 1
        return fmean(votes)


def probability_of_yes(first_token: Mapping[str, float] | None) -> float | None:
    """p(yes) / (p(yes) + p(no)) over all spellings among the candidates for the first token.

    None if the likeliest candidate is neither word, or if both words together hold less than half of the probability: the
    answer then begins with a piece of a word, a mark or another word. None too if they hold more than 1, which no
    probabilities do.

    >>> round(probability_of_yes({"Yes": -0.1054, " no": -2.3026}), 3), probability_of_yes({"Y": -0.1054, "No": -2.3026})
    (0.9, None)
    """
    mass, likeliest = {"yes": 0.0, "no": 0.0}, (-math.inf, "")
    for token, logprob in (first_token or {}).items():
        word = fold(token).strip(" \t\n\"'*▁ġ")
        likeliest = max(likeliest, (logprob, word))
        if word in mass:
            mass[word] += math.exp(min(0.0, logprob))
    total = mass["yes"] + mass["no"]
    readable = likeliest[1] in mass and _LEAST_MASS <= total <= _MOST_MASS
    return mass["yes"] / total if readable else None


def _vote(reply: str) -> bool | None:
    answer = read_reply(reply)
    votes = [yes_or_no(first_of(value, "answer", "verdict", "result")) for value in answer.objects]
    votes.append(find_verdict(answer.own.text))
    return agree_on([vote for vote in votes if vote is not None], bool)


def build_yes_no(options: RewardOptions) -> YesNo:
    """A yes/no reward from its options in a task file. Raises UsageError with file and line."""
    options.only("question", "negated", "expect", "samples", "critique", *OF_EVERY_JUDGE)
    return YesNo(
        options.text("question").strip(),
        options.text("negated", "").strip(),
        options.choice("expect", ("yes", "no")),
        options.whole("samples", 1),
        options.text("critique", ""),
        **options.of_every_judge(),
    )


_TASK = """\
You are shown an answer of another system and a question about it. Answer the question with one word, yes or \
no."""
