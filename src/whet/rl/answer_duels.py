"""Duels of prompts: a model compares the answers that two prompts led to on the same inputs. No target and no reward is read.

The model sees two sets of answers under the names 1 and 2, and nothing of the prompts, of who came first, or of how an answer
fared. It is asked in both orders, and a set wins that it prefers in both: a liking for the first or the second place decides
nothing. Judged texts are data and stand between markers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards.asking import RULES, enclose_in_markers
from whet.rl.language import LanguagePolicy
from whet.run import Run
from whet.search.minibatch import shorten
from whet.types import Completion, Example, Reward, Rollout

Answered: TypeAlias = tuple[Sequence[Example], Sequence[Rollout], Sequence[Rollout]]
"""Rows, and two sets of answers to them."""
ASKS = 2
"""Calls of the model in a duel."""
_SHOWN = 3000


@dataclass(frozen=True)
class Ungraded:
    """The reward of answers that nobody grades."""

    name: str = "ungraded"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """The lowest reward, at no cost."""
        return Reward(self.low)


def without_reward(env: Environment) -> Environment:
    """The environment without its reward: answers in it cost their calls and nothing more."""
    return replace(env, reward=Ungraded())


async def duel(
    run: Run,
    answers: Answered,
    policy: LanguagePolicy,
    about: str,
    sample: int = 0,
) -> float:
    """1 where the first set of answers is preferred in both orders, 0 where the second is, else 0.5.

    `about` says what is wanted. Answers that are the same are not compared; a reply that names none of the two decides nothing.
    """
    won, _ = await _compare_in_both_orders(run, answers, policy, about, "BETTER", sample)
    return won


async def duel_with_advice(
    run: Run, answers: Answered, policy: LanguagePolicy, about: str, sample: int = 0
) -> tuple[float, str]:
    """The outcome of a duel, and what would make the answers better, as the model says with its verdicts; '' where it says
    nothing. Advice of verdicts that decide nothing is not given."""
    won, advice = await _compare_in_both_orders(run, answers, policy, about, "VERDICT", sample)
    return won, "" if won == 0.5 else "\n".join(dict.fromkeys(filter(None, advice)))


async def _compare_in_both_orders(
    run: Run, answers: Answered, policy: LanguagePolicy, about: str, tag: str, sample: int
) -> tuple[float, Sequence[str]]:
    """The outcome, and the advice that stands below each verdict; the tag says whether advice is asked for."""
    rows, first, second = answers
    if [one.output for one in first] == [other.output for other in second]:
        return 0.5, ()
    request, read = (REQUEST, names_first) if tag == "BETTER" else (REQUEST_ADVICE, read_verdict)

    async def prefers_former(branch: Run, pair: Sequence[Sequence[Rollout]]) -> tuple[bool | None, str]:
        former, latter = pair
        question = question_of(about, rows, former, latter, request)
        replies = await policy.write(branch, question, tag, sample=sample)
        return read("\n".join(replies))

    (forward, why), (backward, other) = await run.map(prefers_former, [(first, second), (second, first)])
    if None in (forward, backward) or forward is backward:
        return 0.5, (why, other)
    return (1.0 if forward else 0.0), (why, other)


def names_first(reply: str) -> tuple[bool | None, str]:
    """Whether a reply names the first system alone; None where it names both or neither."""
    named = set(re.findall(r"\d+", reply))
    return (None if len(named) != 1 or not named <= {"1", "2"} else named == {"1"}), ""


def read_verdict(reply: str) -> tuple[bool | None, str]:
    """Whether the first line of a reply names the first system alone, and the advice on the lines below it.

    >>> read_verdict("2\\nName the source."), read_verdict("Both, 1 and 2\\nShorter.")
    ((False, 'Name the source.'), (None, 'Shorter.'))
    """
    line, _, advice = reply.strip().partition("\n")
    return names_first(line)[0], advice.strip()


def question_of(
    about: str, rows: Sequence[Example], first: Sequence[Rollout], second: Sequence[Rollout], request: str
) -> str:
    """The question to the model: what is wanted, the inputs, the two sets of answers, the request."""
    shown = []
    for number, (row, one, other) in enumerate(zip(rows, first, second, strict=True), 1):
        shown.append(enclose_in_markers(f"Input {number}", shorten(row.user_text, _SHOWN)))
        for name, rollout in (("1", one), ("2", other)):
            text = shorten(rollout.output, _SHOWN)
            shown.append(enclose_in_markers(f"Answer of system {name} to input {number}", text))
    return "\n\n".join([PURPOSE, RULES, about, *shown, request])


def what_is_wanted(env: Environment, start: Prompt, requirements: str = "") -> str:
    """The task as a judge of answers sees it: its description, the start prompt, and further requirements."""
    parts = [env.description.strip(), requirements.strip()]
    prompt = f"{ASKED}\n<ASKED>\n{start.text.strip()}\n</ASKED>"
    return "\n\n".join([WANTED, *(part for part in parts if part), prompt])


PURPOSE = "You compare the answers of two systems to the same inputs."
WANTED = "What the systems are for:"
ASKED = "They were asked something like this:"
REQUEST = (
    "Which system answers better, all inputs taken together? Judge by what is wanted and by what is true; length, tone and the "
    "order in which the systems stand mean nothing by themselves. Reply with the number of the better system, 1 or 2, and "
    "nothing else."
)
REQUEST_ADVICE = (
    "Which system answers better, all inputs taken together? Judge by what is wanted and by what is true; length, tone and the "
    "order in which the systems stand mean nothing by themselves. Write the number of the better system, 1 or 2, alone on the "
    "first line. Below it write what is still missing in the answers to inputs of this kind and what would make them better, as "
    "advice to whoever writes the instruction. Do not name the systems in the advice."
)
