"""Whether an endpoint answers at all: what was lost since its last answer, and answers that never held a text.

A search may end while an endpoint is silent, long before so many calls have failed that each further one would be a storm. What
was lost since its last answer then says nothing about a prompt: the run stops before the sealed test, forgets it and can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.errors import ProviderError
from whet.models.callable import FUNCTION
from whet.types import Completion

LOST_ATTEMPTS = 3
"""Attempts of one request that failed until the end, for the endpoint to be the reason."""
_GONE = (None, 502, 503, 504)
BLANK_ALIKE = 6
"""Answers without a text, and no other answer: the model gives none."""


@dataclass
class EndpointHealth:
    """Of one model in one session. `known`: how many answers it gave in earlier sessions, or are in the cache; with any it is
    `trusted`. `suspects`: the requests that were lost when an earlier session ended, `unanswered`: those that failed in one.

    `lost` are the requests since its last answer that got none, by digest, and `attempts` the numbers of their calls that
    were not billed. `odd` are requests that failed before others were answered: they say nothing of the model. `blank` are
    answers that hold no usable text, by digest, as long as there was no other answer. `refusals` are the odd
    requests that failed until the end, by status and words.
    """

    known: int = 0
    suspects: frozenset[str] = frozenset()
    unanswered: frozenset[str] = frozenset()
    usable: bool = False
    lost: dict[str, ProviderError] = field(default_factory=dict)
    failures: int = 0
    attempts: list[int] = field(default_factory=list)
    odd: set[str] = field(default_factory=set)
    blank: dict[str, str] = field(default_factory=dict)
    refusals: dict[tuple[int | None, str], set[str]] = field(default_factory=dict)

    @property
    def trusted(self) -> bool:
        """Whether an answer of it is known from before."""
        return self.known > 0

    @property
    def _never(self) -> bool:
        return not (self.usable or self.trusted)

    def note_failure(self, digest: str, error: ProviderError) -> None:
        """Note a failed attempt."""
        self.lost[digest] = error
        self.failures += digest not in self.odd

    def note_lost(self, digest: str, error: ProviderError) -> None:
        """Note that a request is not asked again."""
        if digest in self.odd and error.status not in _GONE:
            self.refusals.setdefault((error.status, str(error)), set()).add(digest)

    def tells(self, digest: str, error: ProviderError) -> bool:
        """Whether a failed attempt says that the model may be gone: not where it answered others after this request had failed
        before, not where a server that is there fails again what an earlier session lost, and not where it failed others so."""
        again = digest in self.suspects and error.status is not None and error.status not in _GONE
        return not (again or self._is_fault_of_request(digest, error))

    def _is_fault_of_request(self, digest: str, error: ProviderError) -> bool:
        """Whether a server that answered others failed the request before, or failed as many others for good in the same words as
        it now does in a row."""
        if digest in self.odd:
            return True
        words = error.status, str(error)
        now = sum((e.status, str(e)) == words for d, e in self.lost.items() if d not in self.odd)
        return words in self.refusals and now <= len(self.refusals[words])

    def note_answer(self, digest: str, completions: Sequence[Completion]) -> bool:
        """Note an answer. Whether it holds a usable text."""
        self.failures = 0
        self.odd = (self.odd | self.lost.keys()) - {digest}
        self.lost.clear()
        self.attempts.clear()
        errors = [c.error for c in completions if c.error is not None]
        if len(errors) < len(completions):
            self.usable = True
            self.blank.clear()
            return True
        if self._never and errors:
            self.blank[digest] = errors[-1]
        return False

    def gives_no_text(self, address: str, most_in_flight: int) -> ProviderError | None:
        """The error of a model none of whose many answers held a text."""
        enough = len(self.blank) >= max(BLANK_ALIKE, most_in_flight)
        return self._blank_error(address) if self._never and enough else None

    def unresponsive_error(self, address: str) -> ProviderError | None:
        """Why nothing more is to be expected of the model, judged by what is known once it is not asked any more.

        What a server that is there loses again, after the run was stopped for it, is no reason to stop again: then it is the
        request that it cannot take. So it is where it failed other requests with the same words and answered more.
        """
        if self._never and self.blank:
            return self._blank_error(address)
        lost = {
            digest: error
            for digest, error in self.lost.items()
            if not self._is_fault_of_request(digest, error)
        }
        if not lost:
            return None
        last = list(lost.values())[-1]
        alike = {d for d, error in lost.items() if error.retryable and error.status != 429}
        often = len(alike) > 1 or (alike and self.failures >= LOST_ATTEMPTS)
        again = last.status not in _GONE and alike <= self.suspects
        if not self._never and (not often or again):
            return None
        whole = "" if self._never else "the last "
        return ProviderError(
            f"{address} has not answered {whole}{len(lost)} request(s); the last error: "
            f"{str(last).rstrip('.')}. Everything learned so far is kept. Run the same command again "
            "when the model answers.",
            fatal=True,
            status=last.status,
        )

    def _blank_error(self, address: str) -> ProviderError:
        reason = list(self.blank.values())[-1].partition(": ")[2]
        more = "" if address.startswith(FUNCTION) else " (`whet doctor` examines the endpoint)"
        return ProviderError(
            f"{address} answered {len(self.blank)} calls, but no answer contains text; the last: "
            f"{reason.rstrip('.')}. Solve this problem and run the same command again{more}.",
            fatal=True,
            status=200,
        )
