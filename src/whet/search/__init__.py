"""Building blocks that several methods share: candidates and archives, bandits, edit operators, plans."""

from whet.search.archive import Archive, Candidate
from whet.search.front import Front
from whet.search.minibatch import minibatch, mistakes
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader

__all__ = [
    "Archive",
    "Candidate",
    "Front",
    "SearchPlan",
    "fit",
    "minibatch",
    "mistakes",
    "validate_finalists",
    "validate_leader",
]
