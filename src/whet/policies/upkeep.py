"""Keeping a fence in order: duplicates, contradictions, its budget of tokens, what is not needed, and what was measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from whet.policies.curator import Curator
from whet.policies.tracks import FOREVER
from whet.prompt.events import Effect, Expire, Measure, Merge, Resolve, Rewrite
from whet.prompt.instructions import Instruction
from whet.prompt.ledger import surroundings
from whet.run import Run
from whet.search.clustering import Group
from whet.search.contradictions import Clash, clash, clashes, same, statements
from whet.search.lexicon import NUMBER, content, tokens
from whet.search.rates import newcombe

_SURE = 0.05
_ALIKE = 0.6
_SHARE_TRIED = 10
_BY_HAND = ("author", "hand")
_OUTWEIGHS = 3


async def learn(run: Run, curator: Curator, most: int | None, at: str = "") -> int:
    """One step after a roll-out: judge what was held out, ask about open groups within `most` optimizer calls, put the
    fence in order. Returns how many instructions changed."""
    expired = judge_trial(curator, at)
    changed = await curator.learn(run, most, at)
    tidy(curator, run, at)
    run.log(
        "learned",
        {"at": at, "groups": len(curator.board.groups), "changed": changed, "expired": len(expired)},
    )
    return changed + len(expired)


def tidy(curator: Curator, run: Run, at: str = "") -> None:
    """Merge duplicates, settle contradictions by evidence or put them before a person, and keep the budget."""
    settle_texts(curator, at)
    merge_twins(curator, at)
    settle_clashes(curator, run, at)
    fit(curator, run, at)


def merge_twins(curator: Curator, at: str = "") -> None:
    """Of instructions that say the same, keep the one written by hand, else the shortest."""
    active = curator.ledger.active
    gone: set[str] = set()
    for n, first in enumerate(active):
        if first.id in gone:
            continue
        twins = [i for i in active[n + 1 :] if i.id not in gone and same(first.text, i.text)]
        if twins:
            keep = min((first, *twins), key=lambda i: (i.author not in _BY_HAND, i.tokens))
            others = tuple(i.id for i in (first, *twins) if i.id != keep.id)
            gone |= set(others)
            curator.record(
                Merge(
                    id=keep.id, others=others, text=keep.text, tokens=keep.tokens, author=keep.author, at=at
                )
            )
            curator.reassign(others, keep.id)


def settle_texts(curator: Curator, at: str = "") -> None:
    """Return to the text that was violated least when several were tried and the present one is no better."""
    standing = curator.in_effect()
    for group in curator.board.groups:
        track, text = curator.tracks[group.id], standing.get(group.id)
        if text is None or not track.instruction or len(track.tried) < 2:
            continue
        counts = {tried: curator.rate(group, tried) for tried in dict.fromkeys(t for t, _ in track.tried)}
        if text not in counts or not counts[text][1]:
            continue
        best = min(
            (t for t, (_, n) in counts.items() if n), key=lambda t: (counts[t][0] + 0.5) / (counts[t][1] + 1)
        )
        if best != text:
            curator.record(
                Rewrite(
                    id=track.instruction, text=best, tokens=curator.count(best), at=at, reason="did better"
                )
            )


def settle_clashes(curator: Curator, run: Run, at: str = "") -> None:
    """Settle contradictions by evidence: where two instructions stood together and one of them was still violated, the
    one that rests on three times as many complaints stays. All others are for a person to decide: logged, once, as `conflict`.

    Text that a person wrote is never touched.
    """
    active = curator.ledger.active
    gone: set[str] = set()
    for n, first in enumerate(active):
        for second in active[n + 1 :]:
            found = None if {first.id, second.id} & gone else clash(first.text, second.text)
            if found is None:
                continue
            weak, strong = sorted((first, second), key=lambda i: i.sources)
            outweighed = weak.author not in _BY_HAND and strong.sources >= _OUTWEIGHS * max(1, weak.sources)
            settled = outweighed and (_fails(curator, weak.id) or _fails(curator, strong.id))
            _report(curator, run, found, settled)
            if settled:
                gone.add(weak.id)
                curator.record(Resolve(keep=strong.id, drop=weak.id, reason=found.why, at=at))
                curator.reassign((weak.id,), "", float(len(curator.sizes)))
    texts = [i.text for i in active if i.id not in gone]
    for statement in statements(surroundings(curator.start, curator.region)):
        for found in clashes(statement, texts):
            _report(curator, run, found, False)


def _fails(curator: Curator, key: str) -> bool:
    """Whether an instruction is still violated, as far as is known."""
    return any(curator.is_violated(group) for group in _groups_of(curator, key))


def _report(curator: Curator, run: Run, found: Clash, settled: bool) -> None:
    if settled or found not in curator.reported:
        curator.reported.add(found)
        run.log(
            "conflict", {"first": found.first, "second": found.second, "why": found.why, "settled": settled}
        )


def fit(curator: Curator, run: Run, at: str = "") -> None:
    """Leave out the learned instructions that earn least per token until the fence is within its budget.

    What one earns is the share of answers that complained before it stood there.
    """
    if curator.budget is None:
        return
    worth: dict[str, float] = {}
    for group in curator.board.groups:
        hits, n = curator.rate(group, None)
        key = curator.tracks[group.id].instruction
        worth[key] = worth.get(key, 0.0) + (hits + 0.5) / (n + 1)
    own = sorted(
        (i for i in curator.ledger.active if i.id in worth), key=lambda i: worth[i.id] / max(1, i.tokens)
    )
    for instruction in own:
        if curator.ledger.tokens <= curator.budget:
            return
        curator.record(Expire(id=instruction.id, reason="token budget", at=at))
        curator.reassign((instruction.id,), "", FOREVER)
        run.log("over_budget", {"left_out": instruction.text, "tokens": instruction.tokens})


def doubtful(curator: Curator) -> frozenset[str]:
    """Learned instructions that one roll-out should do without: another one speaks of much the same, and enough
    answers complained before that a silence would be telling. At most a tenth of all, the closest first."""
    size = curator.sizes[-1] if curator.sizes else 0
    active = curator.ledger.active
    words = {i.id: _speaks_of(i) for i in active}
    counts = Counter(word for found in words.values() for word in found)
    weigh = {word: math.log((1 + len(active)) / count) for word, count in counts.items()}
    pairs = []
    for n, first in enumerate(active):
        for second in active[n + 1 :]:
            close = _overlap(words[first.id], words[second.id], weigh)
            less = second if second.author not in _BY_HAND else first
            if (
                close >= _ALIKE
                and less.author not in _BY_HAND
                and _chance_of_silence(curator, less, size) < _SURE
            ):
                pairs.append((-close, first.id, second.id, less.id))
    chosen: set[str] = set()
    spared: set[str] = set()
    for _, one, two, less_id in sorted(pairs):
        if len(chosen) * _SHARE_TRIED < len(active) and less_id not in spared and not {one, two} & chosen:
            chosen.add(less_id)
            spared |= {one, two}
    return frozenset(chosen)


def _speaks_of(instruction: Instruction) -> frozenset[str]:
    texts = (instruction.text, *instruction.critiques)
    return frozenset().union(
        *(content(t) for t in texts), *({v.value for v in tokens(t) if v.kind == NUMBER} for t in texts)
    )


def _overlap(a: frozenset[str], b: frozenset[str], weigh: Mapping[str, float]) -> float:
    """Weight of the shared words as a share of that of the less talkative one, 0 to 1."""
    least = min(sum(weigh[w] for w in a), sum(weigh[w] for w in b))
    return sum(weigh[w] for w in a & b) / least if least > 0 else 0.0


def _chance_of_silence(curator: Curator, instruction: Instruction, n: int) -> float:
    """Probability that n answers do not complain although the instruction is needed."""
    groups = _groups_of(curator, instruction.id)
    hits, seen = (
        (sum(x) for x in zip(*(curator.rate(g, None) for g in groups), strict=True)) if groups else (0, 0)
    )
    return float((1 - hits / seen) ** n) if seen else 1.0


def _groups_of(curator: Curator, key: str) -> list[Group]:
    return [g for g in curator.board.groups if curator.tracks[g.id].instruction == key]


def judge_trial(curator: Curator, at: str = "") -> list[str]:
    """After a roll-out without the held-out instructions: those that nobody missed expire. Returns their ids."""
    tried, curator.held_out = curator.held_out, frozenset()
    expired = []
    for key in sorted(tried):
        groups = _groups_of(curator, key)
        n = curator.sizes[-1]
        if not any(curator.rounds(g)[-1] for g in groups):
            curator.record(Expire(id=key, reason=f"no complaint in {n} answers without it", at=at))
            curator.reassign((key,), "", float(len(curator.sizes)))
            expired.append(key)
    return expired


def measure(curator: Curator, at: str = "") -> None:
    """Write down the effect of each instruction on its complaints: before and after, with a 95 % interval."""
    standing = curator.in_effect()
    for instruction in curator.ledger.active:
        rows = [
            (curator.rate(g, None), curator.rate(g, standing[g.id]))
            for g in _groups_of(curator, instruction.id)
        ]
        before = max((n for (_, n), _ in rows), default=0)
        after = max((n for _, (_, n) in rows), default=0)
        if before and after:
            was = (min(before, sum(x for (x, _), _ in rows)), before)
            now = (min(after, sum(x for _, (x, _) in rows)), after)
            curator.record(Measure(id=instruction.id, effect=Effect(was, now, *newcombe(was, now)), at=at))
