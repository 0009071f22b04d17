"""Drawing examples, comparing prompts on them, and showing to a model what went wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from whet.errors import show_size
from whet.rewards.targets import state_correction, targets_of
from whet.stats.paired import p_value
from whet.types import Example, Rollout, TraceStep, content_hash

_SHOWN = 1500
ANSWERED, UNANSWERED = "Examples of inputs, with the answers that are wanted:", "Examples of inputs:"


def minibatch(
    rng: random.Random, examples: Sequence[Example], k: int, *, balanced: bool = False
) -> list[Example]:
    """`k` different examples in random order; all of them, shuffled, when there are no more than `k`.

    `balanced` takes the targets in turn, so that each is there as often as `k` and the data allow. Of a task made of several
    the cases are taken in turn.
    """
    order = rng.sample(list(examples), len(examples))
    if not balanced and not any(example.case for example in examples):
        return order[:k]
    groups: dict[str, list[Example]] = {}
    for example in order:
        target = [content_hash(example.target)] if balanced else []
        groups.setdefault("|".join([example.case, *target]), []).append(example)
    turns = sorted(
        (turn, position) for position, group in enumerate(groups.values()) for turn in range(len(group))
    )
    dealt = list(groups.values())
    return [dealt[position][turn] for turn, position in turns[:k]]


def infinite_batches(rng: random.Random, examples: Sequence[Example]) -> Iterator[Example]:
    """Examples without end: each pass over them in an order of its own."""
    while True:
        yield from rng.sample(list(examples), len(examples))


def next_rows(rows: Iterator[Example], k: int) -> list[Example]:
    """The next k of the rows; one that comes again within them is there once."""
    return list({row.id: row for row in islice(rows, k)}.values())


def deal_twice(rng: random.Random, rows: Sequence[Example], k: int) -> list[list[Example]]:
    """`k` groups of rows (2 or more), each row in two different ones, about as many in each."""
    groups: list[list[Example]] = [[] for _ in range(k)]
    for turn, row in enumerate(rng.sample(list(rows), len(rows))):
        first = turn % k
        groups[first].append(row)
        groups[(first + 1 + turn // k % (k - 1)) % k].append(row)
    return groups


def mistakes(rollouts: Sequence[Rollout], high: float) -> list[Rollout]:
    """Rollouts that a critic can learn from: answered, below full reward, and not above the mean of all.

    For a 0/1 reward these are the errors. Worst first.
    """
    known = answered_rollouts(rollouts)
    mean = sum(r.reward for r in known) / max(1, len(known))
    wrong = [r for r in known if r.reward < high and r.reward <= mean + 1e-12]
    return sorted(wrong, key=lambda r: r.reward)


_ANSWERED_BADLY = ("model:", "parse:", "reward:", "program:")
"""The beginnings of the errors of rollouts that the model or the prompt caused."""


def answered_rollouts(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Rollouts that say something about the prompt: a refusal does, an answer that could not be parsed or graded, and one on
    which a program failed; a call that failed at the provider does not."""
    return [r for r in rollouts if r.error is None or r.error.startswith(_ANSWERED_BADLY)]


def gains(olds: Sequence[Rollout], news: Sequence[Rollout]) -> list[float]:
    """The gains in reward of new rollouts over old ones on the same examples, where both were answered."""
    both = [(a, b) for a, b in zip(olds, news, strict=True) if len(answered_rollouts([a, b])) == 2]
    return [b.reward - a.reward for a, b in both]


def better(olds: Sequence[Rollout], news: Sequence[Rollout], span: float, alpha: float) -> bool | None:
    """Whether new rollouts are better than old ones on the same examples, by a paired test at `alpha` (one-sided); None while
    they are ahead and it may be chance. `span` is the range of the rewards."""
    gaps = [gain / (span or 1.0) for gain in gains(olds, news)]
    if sum(gaps) <= 0:
        return False
    return True if p_value(gaps, draws=9_999) <= alpha else None


def show_example(example: Example, longest: int = _SHOWN) -> str:
    """An example's input and target as text for a meta-prompt; longer texts are cut."""
    target = "" if example.target is None else f"\nWanted: {shorten(_plain(example.target), longest)}"
    return f"Input: {shorten(example.user_text, longest)}{target}"


def wanted_answers_known(examples: Sequence[Example]) -> bool:
    """Whether any of the examples has a target, so that a request may speak of the answers that are wanted."""
    return any(example.target is not None for example in examples)


def head_examples(examples: Sequence[Example]) -> str:
    """The sentence of a meta-prompt before such examples.

    >>> head_examples([Example("1", {"input": "2 + 3"}, None)]), head_examples([Example("1", {"input": "2 + 3"}, "5")])
    ('Examples of inputs:', 'Examples of inputs, with the answers that are wanted:')
    """
    return ANSWERED if wanted_answers_known(examples) else UNANSWERED


def show_rollout(
    example: Example,
    rollout: Rollout,
    longest: int = _SHOWN,
    *,
    whole: bool = False,
    low: float | None = None,
) -> str:
    """An example with what the model answered, how it was graded and why, for a meta-prompt; of a program each step.

    A critique that says no more than the answer and the target beside it is left out, unless the `whole` rollout is wanted. So is
    the lowest reward, `low`, of an answer beside its target.
    """
    steps = [show_step(step, longest) for step in rollout.steps]
    repeats = (
        not whole
        and example.target is not None
        and rollout.critique == state_correction(rollout.output, targets_of(example)[0])
    )
    shown = replace(rollout, critique=None, addressed={}) if repeats else rollout
    graded = low is None or example.target is None or rollout.reward > low
    return "\n".join([show_example(example, longest), *steps, show_answer(shown, longest, graded)])


def show_answer(rollout: Rollout, longest: int = _SHOWN, graded: bool = True) -> str:
    """A rollout as text for a meta-prompt: the model's answer, its grade (`graded`) and the reason for it."""
    cut = " (cut off at the token limit)" if rollout.cut else ""
    lines = [f"Answered{cut}: {shorten(rollout.output, longest)}"]
    lines += [f"Reward: {show_size(rollout.reward, 3)}"] if graded else []
    if rollout.error:
        lines.append(f"Problem: {shorten(rollout.error, longest)}")
    if rollout.addressed:
        lines += [
            f"Critique{f' of {name}' if name else ''}: {shorten(text, longest)}"
            for name, text in rollout.addressed.items()
        ]
    elif rollout.critique:
        lines.append(f"Critique: {shorten(rollout.critique, longest)}")
    return "\n".join(lines)


def say_cut(rollouts: Sequence[Rollout]) -> str:
    """Say how many answers were cut off, and the number of their tokens if it is the same for all; empty if none was cut off.

    >>> from whet.types import Usage
    >>> short = Rollout("p", "1", "The capital of", 0.0, usage=Usage(output_tokens=3), cut=True)
    >>> say_cut([short, Rollout("p", "2", "Oslo", 1.0)])
    'An answer may have 3 tokens at most: of these answers, 1 was cut off there.'
    >>> say_cut([replace(short, usage=Usage(estimated=True))])
    'The length of an answer is limited: of these answers, 1 was cut off.'
    """
    cut = [rollout for rollout in rollouts if rollout.cut]
    if not cut:
        return ""
    lengths = {rollout.usage.output_tokens for rollout in cut}
    counted = not any(r.steps or r.usage.estimated or r.usage.reasoning_tokens for r in cut)
    known = counted and len(lengths) == 1 and min(lengths) > 0
    most = (
        f"An answer may have {min(lengths)} tokens at most" if known else "The length of an answer is limited"
    )
    were = f"{len(cut)} {'was' if len(cut) == 1 else 'were'} cut off"
    return f"{most}: of these answers, {were}{' there' if known else ''}."


def show_step(step: TraceStep, longest: int = _SHOWN) -> str:
    """A step of a program as text for a meta-prompt: what went in, and what came back."""
    inputs = "; ".join(f"{key}: {value}" for key, value in step.inputs.items())
    named = f"Tool {step.prompt}" if step.role == "tool" else f"Prompt {step.prompt or '(none)'}"
    return f"{named} <- {shorten(inputs, longest)}\n{named} -> {shorten(step.output, longest)}"


def _plain(target: object) -> str:
    return target if isinstance(target, str) else str(target)


def shorten(text: str, longest: int) -> str:
    """A text of at most `longest` characters, with a mark where it was cut."""
    text = text.strip()
    return text if len(text) <= longest else f"{text[:longest]} [...]"
