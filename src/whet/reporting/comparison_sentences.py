"""The sentences of a comparison of methods: beside the start prompt, in pairs, and the warnings of its runs."""

from __future__ import annotations

from collections.abc import Sequence

import whet.reporting.number_format as number_format
from whet.engine.comparison_json import ComparisonJSON, MethodSummaryJSON
from whet.engine.result_json import PairJSON, RunJSON
from whet.stats.intervals import show_p

Methods = Sequence[MethodSummaryJSON]


def sentences(result: ComparisonJSON) -> list[str]:
    """The findings about the start prompt and the pairs of methods, one sentence for each significant difference."""
    return [*start_sentences(result), *_pair_sentences(result)]


def start_sentences(result: ComparisonJSON) -> list[str]:
    """Runs that are missing; which methods beat the start prompt; that it stays where none does, and which are worse. Nothing of
    the methods where no row says."""
    absent = result.get("missing") or []
    missing = [f"{number_format.plural(len(absent), 'run')} missing: {'; '.join(absent)}."] if absent else []
    pairs = [pair for pair in result.get("beside_start") or [] if pair["n"]]
    if not pairs:
        return missing
    better, worse = ([one for one in _beyond_chance(pairs) if (one[1] > 0) is sign] for sign in (True, False))
    kept = [] if better else ["No method beats the start prompt: keep it."]
    return (
        missing
        + kept
        + [
            f"{one['a']} is {word} than the start prompt by {number_format.reward_text(abs(difference), 3)} "
            f"({_p_value(one, pairs, 'method')})."
            for word, some in (("better", better), ("worse", worse))
            for one, difference in some
        ]
    )


def _pair_sentences(result: ComparisonJSON) -> list[str]:
    pairs = result.get("pairs") or []
    decided = _beyond_chance(pairs)
    if not pairs:
        return ["There is only one method, so the start prompt is the only comparison."]
    if not any(pair["n"] for pair in pairs):
        return ["No sealed row has answers of two methods, so nothing can be compared."]
    if not decided:
        n = max(pair["n"] for pair in pairs)
        return [f"On these {n:,} rows, no two methods differ by more than chance explains."]
    results = []
    for pair, difference in decided:
        better, worse = (pair["a"], pair["b"]) if difference > 0 else (pair["b"], pair["a"])
        size = number_format.reward_text(abs(difference), 3)
        results.append(f"{better} is better than {worse} by {size} ({_p_value(pair, pairs, 'pair')}).")
    return results


def _beyond_chance(pairs: Sequence[PairJSON]) -> list[tuple[PairJSON, float]]:
    """The pairs that differ by more than what chance explains, each with its difference."""
    decided = [pair for pair in pairs if pair["p_adjusted"] < pair["alpha"] * len(pairs)]
    return [(pair, pair["difference"]) for pair in decided if pair["difference"] is not None]


def _p_value(pair: PairJSON, pairs: Sequence[PairJSON], noun: str) -> str:
    p = show_p(pair["p_adjusted"], 2)
    return f"p {p if p.startswith('<') else f'= {p}'}, adjusted for {number_format.plural(len(pairs), noun)}"


FAMILIES = (
    "p is the chance of a difference at least as large as this one if both were equally good; a test of the paired rewards "
    "gives it. The pairs with the start prompt form one group, the pairs of methods another. Many pairs "
    'make chance findings more likely, so the intervals of a group hold for all its pairs at once, and "p adjusted" corrects '
    "for their number (Holm)."
)


def all_pairs(result: ComparisonJSON) -> list[PairJSON]:
    """Each method beside the start prompt, then the methods in pairs."""
    return [*(result.get("beside_start") or ()), *(result.get("pairs") or ())]


def warnings_of(runs: Sequence[RunJSON]) -> list[str]:
    """The warnings of all runs, each once: those of some runs only begin with their names."""
    whose: dict[str, list[str]] = {}
    for run in runs:
        for text in dict.fromkeys(run.get("warnings") or ()):
            whose.setdefault(str(text), []).append(f"{run['method']}, seed {run['seed']}")
    return [
        text if len(names) == len(runs) else f"{'; '.join(names)}: {text}" for text, names in whose.items()
    ]
