"""The sources of feedback, and the evidence that a change needs before it is learned.

What people write reaches one model as data, the reader; what it writes becomes an instruction only when enough independent
sources stand behind it, each of them confirmed by its own words alone, or when a person accepts it by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.search.copies import normalize_wording

ANONYMOUS = "anonymous"
EVALUATOR = "evaluator:"
"""The prefix of the name of an evaluator of live answers. Only whet itself sends rows under such a name."""
_HOUR = 3_600_000_000


@dataclass(frozen=True)
class LearningPolicy:
    """The evidence that a change needs before it is learned."""

    quorum: float = 3.0
    """Independent sources that must demand the same."""
    share: float = 0.06
    """The least share of all sources active lately that must demand the same, in [0, 1]."""
    per_source: int = 5
    """Requirements that one source can support at once."""
    probation: float = 0.0
    """Hours until the words of a new source count."""
    annotator: float = 1.0
    """Weight of a reviewer's word, in sources."""
    evaluator: float = 1.0
    """Weight of an evaluator's critiques of the answers to one user, in sources; 0: nothing is learned from them."""
    canaries: tuple[str, ...] = ()
    """Texts that must never stand in a prompt."""
    upkeep: int = 5
    """After so many new instructions, the learner looks which of them can be joined, shortened or left out. 0: it never looks,
    and no instruction gives way to its contrary."""
    tolerance: float = 0.1
    """The most of the reward that such upkeep may cost, by the interval of the gate, in [0, 1)."""

    def __post_init__(self) -> None:
        checks: Mapping[str, bool] = {
            "quorum": self.quorum >= 1,
            "share": 0 <= self.share <= 1,
            "per_source": self.per_source >= 1,
            "probation": self.probation >= 0,
            "annotator": self.annotator >= 0,
            "evaluator": self.evaluator >= 0,
            "upkeep": self.upkeep >= 0,
            "tolerance": 0 <= self.tolerance < 1,
            "canaries": all(len(text) >= 6 for text in self.canaries),
        }
        for name, good in checks.items():
            if not good:
                raise UsageError(
                    f"{name} cannot be {getattr(self, name)!r}; see `whet.feedback.sources.LearningPolicy`."
                )

    @classmethod
    def read(cls, values: Mapping[str, object], base: LearningPolicy | None = None) -> LearningPolicy:
        """A policy from JSON values, the rest as in `base`. Raises UsageError for an unknown or impossible one."""
        start = base or cls()
        known = {f.name: getattr(start, f.name) for f in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise UsageError(f'There is no rule "{name}".{did_you_mean(name, known)}')
            known[name] = _convert_type(name, value, known[name])
        return cls(**known)

    def as_json(self) -> dict[str, object]:
        """The policy as JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"canaries": list(self.canaries)}


PROPOSE = LearningPolicy()
"""The policy if a person decides about every proposal."""
AUTO = LearningPolicy(quorum=5.0, share=0.1, probation=24.0)
"""The policy if no person decides."""


def _convert_type(name: str, value: Any, standard: Any) -> object:
    if isinstance(standard, tuple):
        if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            return tuple(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        pass
    elif isinstance(standard, float) or float(value).is_integer():
        return type(standard)(value)
    raise UsageError(f"{name} cannot be {value!r}; write a value such as {standard!r}.")


def principal(source: str, user: str | None, asker: str | None = None) -> str:
    """The name under which a speaker counts: `user:ID`, `annotator:ID`, `model:NAME`, `code:NAME`, or `anonymous`. A user who
    gives no name is the `asker`, the user of the answer that it is about.

    Everybody who gives no name is one source together: names are free, so a missing one must not count more. Names that
    differ only in case, blanks, width or invisible characters are one. An evaluator (`evaluator:NAME`) is a source for each user
    whose answers it is about, `evaluator:NAME/USER`.
    """
    if source in ("model", "code") and user is not None and user.startswith(EVALUATOR):
        return f"{user}/{normalize_wording(asker or '')}"
    name = normalize_wording(user or (asker if source == "user" else None) or "")
    return f"{source}:{name}" if name else ANONYMOUS


def weight(who: str, policy: LearningPolicy, first: int, clock: int) -> float:
    """The weight of one source at the time `clock`; the source was first seen at `first` (microseconds)."""
    if clock - first < policy.probation * _HOUR:
        return 0.0
    if who.startswith(EVALUATOR):
        return policy.evaluator
    return policy.annotator if who.startswith("annotator:") else 1.0


def self_judged(writer: str, judge: str | None) -> str:
    """Why a verdict promotes nothing: the model that judged is the one that wrote the instructions. Empty where it is not.

    Both are addresses; `judge` is None where no model judged. What follows a `?` in them does not make another model.
    """
    if judge is None or writer.split("?", 1)[0] != judge.split("?", 1)[0]:
        return ""
    return f"the judge of the gate, {judge}, is the model that wrote the instructions"
