"""From what was heard to what is demanded: complaints grouped, sources counted, contradictions and quorums told.

Everything here is a pure function of what was heard, of the prompt and of what people decided: no model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whet.online.learning.heard import Heard, Said
from whet.online.registry import Version
from whet.online.registry.ledgers import manageable
from whet.online.trust import Policy, support, vouched, weight
from whet.online.wishes import REPORTED, wish
from whet.policies.curator import Curator
from whet.policies.distiller import ranked
from whet.policies.tracks import counted_texts
from whet.prompt import Prompt
from whet.prompt.instructions import Ledger
from whet.prompt.ledger import opened
from whet.search.clustering import Group
from whet.search.contradictions import clash, same
from whet.search.critiques import Complaint
from whet.search.lexicon import content

READY, WAITING, CONTESTED = "ready", "waiting", "contested"
MOST_TEXTS = 5
_OVERWHELMING = 2.0
_COMPARED = 80


@dataclass(frozen=True)
class Facts:
    """What is known beside what was heard. `done` are rows that were learned from, `accepted` and `dismissed` the keys of
    rows and demands that a person decided about, `rejected` instructions that were rejected with the reasons, `behind` the
    rows that they rested on, `standing` the instructions that each version shows."""

    policy: Policy = field(default_factory=Policy)
    done: Collection[str] = ()
    accepted: Collection[str] = ()
    dismissed: Collection[str] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    behind: Mapping[str, Collection[str]] = field(default_factory=dict)
    standing: Mapping[int, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Demand:
    """Something that people want of a prompt.

    `key` names it (its first row), `text` says it in somebody's words, `vouched` in words that may reach a model (or is
    empty). `rows` are the feedback behind it, `sources` what those who demand it count together, `needed` how much it
    takes. `instruction` is the one that it is about already. `against` are contrary demands with what all who want them count,
    `opposing` the rows behind each of them, `rejected` is why the same was rejected before. `accepted` says that a person
    wants it whatever the count is.
    """

    key: str
    text: str
    vouched: str
    texts: tuple[str, ...]
    rows: tuple[str, ...]
    sources: float
    needed: float
    instruction: str = ""
    against: Mapping[str, float] = field(default_factory=dict)
    opposing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rejected: str = ""
    accepted: bool = False

    @property
    def state(self) -> str:
        """`ready`, `waiting` for more sources, or `contested`: too many want the contrary."""
        if self.accepted:
            return READY
        if self.sources < self.needed:
            return WAITING
        return CONTESTED if sum(self.against.values()) * _OVERWHELMING > self.sources else READY

    def as_json(self) -> dict[str, Any]:
        """The demand as JSON values."""
        return {
            "key": self.key, "state": self.state, "text": self.text, "vouched": self.vouched, "texts": list(self.texts),
            "rows": list(self.rows), "sources": self.sources, "needed": self.needed, "instruction": self.instruction,
            "against": dict(self.against), "opposing": {text: list(rows) for text, rows in self.opposing.items()},
            "rejected": self.rejected, "accepted": self.accepted,
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Demand:
        """The demand that `as_json` wrote."""
        given = {key: item for key, item in value.items() if key != "state"}
        opposing = {text: tuple(rows) for text, rows in given.get("opposing", {}).items()}
        lists = {name: tuple(given[name]) for name in ("texts", "rows")}
        return cls(**{**given, **lists, "opposing": opposing})


def quarantined(heard: Heard, facts: Facts) -> list[Said]:
    """Rows that wait for a person, because their text looks like an attack."""
    decided = {*facts.accepted, *facts.dismissed, *facts.done}
    return [row for row in heard.rows.values() if row.flags and row.id not in decided]


def find_demands(heard: Heard, clock: int, base: Version, region: str, facts: Facts) -> list[Demand]:
    """What is demanded of the version `base` and was not learned yet, the best supported first."""
    rows = _usable(heard, facts)
    if not any(row.complaints for row in rows.values()):
        return []
    prompt = manageable(base.prompt)
    events = list(base.ledgers.get(region, ())) or [opened(prompt, region)]
    curator = Curator(prompt, False, region=region, events=events)
    curator.hear([Complaint(as_wish(t), row.id) for row in rows.values() for t in row.complaints])
    weights = {who: weight(who, facts.policy, first, clock) for who, first in heard.first.items()}
    needed = max(facts.policy.quorum, facts.policy.share * sum(weights.values()))
    facts = replace(facts, policy=replace(facts.policy, quorum=needed))
    found = []
    for known in curator.board.groups:
        for group in sides(known):
            owner = curator.tracks[known.id].instruction or _said_by(curator.ledger, group.texts())
            mine = [rows[key] for key in group.sources if key in rows and _is_news(rows[key], owner, facts)]
            members = sorted(mine, key=lambda row: row.seq)
            if members:
                found.append(_demand(group, members, owner, prompt, weights, facts, heard))
    voices = _voices(found, rows, weights, facts.policy)
    lively = [
        replace(d, needed=max(needed, d.needed), sources=min(voices[d.key], d.sources))
        for d in found
        if f"demand {d.key}" not in facts.dismissed
    ]
    return _opposed(sorted(lively, key=lambda d: (-d.sources, d.key)), voices)


def sides(group: Group) -> list[Group]:
    """A group in its contrary parts: wordings that agree with the most frequent one, and those that want the contrary."""
    ordered = sorted(group.wordings, key=lambda wording: -wording.count)
    other = [wording for wording in ordered if contrary(ordered[0].text, wording.text)]
    if not other:
        return [group]
    return [Group(group.id, [w for w in ordered if w not in other]), Group(group.id, other)]


def contrary(a: str, b: str) -> bool:
    """Whether two demands cannot both be met.

    >>> contrary("Use emojis.", "Please don't use emojis"), contrary("Be brief.", "Use metres.")
    (True, False)
    """
    if clash(a, b) is not None or frozenset((a, b)) in _OPPOSITES:
        return True
    about = content(a) - _DENYING
    return (
        bool(about) and about == content(b) - _DENYING and bool(_DENIES.search(a)) != bool(_DENIES.search(b))
    )


_DENIES = re.compile(
    r"\b(?:never|not|no|without|avoid|stop|skip|omit|remove|leave out|drop)\b|n['’]t\b", re.IGNORECASE
)
_DENYING = content(
    "avoid stop skip omit remove leave drop never use using give giving write writing add adding include including mention "
    "mentioning put putting show showing state stating name naming tell telling say saying make making"
)
_SHORT, _LONG = "Keep the answer short and to the point.", "Give a longer, more detailed answer."
_LESS, _MORE = "Give less detail.", "Give more detail."
_OPPOSITES = frozenset(
    frozenset(pair)
    for pair in (
        (_SHORT, _LONG),
        (_SHORT, _MORE),
        (_LESS, _LONG),
        (_LESS, _MORE),
        ("Use a less formal tone.", "Use a more formal tone."),
    )
)


def _said_by(ledger: Ledger, texts: Sequence[str]) -> str:
    """The active instruction that says what one of the texts says, or nothing."""
    found = (i.id for i in ledger.active if any(i.text == text or same(i.text, text) for text in texts))
    return next(found, "")


def _usable(heard: Heard, facts: Facts) -> dict[str, Said]:
    out = {*facts.done, *facts.dismissed}
    return {
        row.id: row
        for row in heard.rows.values()
        if row.id not in out and (not row.flags or row.id in facts.accepted)
    }


def as_wish(text: str) -> str:
    """A complaint in the words of the idiom that it is, if it is one."""
    return (wish(text) or text).removeprefix("Take care of this wish: ")


def _is_news(row: Said, owner: str, facts: Facts) -> bool:
    """Whether a complaint is about an answer that the instruction had a part in; an older one is answered by it."""
    return not owner or owner in facts.standing.get(row.version, (owner,))


def _demand(
    group: Group,
    members: Sequence[Said],
    owner: str,
    prompt: Prompt,
    weights: Mapping[str, float],
    facts: Facts,
    heard: Heard,
) -> Demand:
    spoken: dict[str, list[str]] = {}
    wanted = set(group.texts())
    for row in members:
        texts = [t for raw in row.complaints if (plain := as_wish(raw)) in wanted for t in (raw, plain)]
        spoken.setdefault(row.who, []).extend(texts)
    drafts = [draft.text for draft in ranked(counted_texts(group), group.constants())]
    candidates = [*(text for text in drafts if not text.startswith(REPORTED)), *group.texts()]
    known = "\n".join(m.content for m in prompt.messages)
    clean = next((t for t in candidates if vouched(t, spoken, weights, known, facts.policy)), "")
    text = clean or max(candidates, key=lambda t: min(facts.policy.quorum, support(t, spoken, weights)))
    rejected = next((old for old in facts.rejected if old == text or same(old, text)), None)
    if rejected is not None:
        before = {heard.rows[row].who for row in facts.behind.get(rejected, ()) if row in heard.rows}
        spoken = {who: texts for who, texts in spoken.items() if who not in before}
    key = members[0].id
    return Demand(
        key=key,
        text=text,
        vouched=clean,
        texts=tuple(group.texts()[:MOST_TEXTS]),
        rows=tuple(row.id for row in members),
        sources=support(text, spoken, weights),
        needed=0.0 if rejected is None else 2 * facts.policy.quorum,
        instruction=owner,
        rejected="" if rejected is None else facts.rejected[rejected],
        accepted=f"demand {key}" in facts.accepted,
    )


def _voices(
    found: Sequence[Demand], rows: Mapping[str, Said], weights: Mapping[str, float], policy: Policy
) -> dict[str, float]:
    """What all who want a demand count together, in whatever words, by its key; each source is counted for the first few
    that it supports only."""
    used: dict[str, int] = {}
    voices: dict[str, float] = {}
    for demand in sorted(found, key=lambda d: rows[d.rows[0]].seq):
        voices[demand.key] = 0.0
        for who in dict.fromkeys(rows[key].who for key in demand.rows):
            used[who] = used.get(who, 0) + 1
            if used[who] <= policy.per_source:
                voices[demand.key] += weights[who]
    return voices


def _opposed(found: Sequence[Demand], voices: Mapping[str, float]) -> list[Demand]:
    """The demands with those that they contradict: all voices count, since nobody's words are taken over by them."""
    seen = found[:_COMPARED]
    against: dict[str, list[Demand]] = {}
    for n, first in enumerate(seen):
        for second in seen[n + 1 :]:
            if contrary(first.text, second.text):
                against.setdefault(first.key, []).append(second)
                against.setdefault(second.key, []).append(first)
    told = [(demand, against.get(demand.key, ())) for demand in found]
    return [
        replace(
            one, against={d.text: voices[d.key] for d in others}, opposing={d.text: d.rows for d in others}
        )
        for one, others in told
    ]
