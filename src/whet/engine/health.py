"""Whether an endpoint answers at all: what was lost since its last answer, and answers that never held a text.

A search may end while an endpoint is silent, long before so many calls have failed that each further one would be a storm. What
was lost since its last answer then says nothing about a prompt: the run stops before the sealed test, forgets it and can go on.

A request is in one or more of these states; what is not named is asked as usual.

    state                        enters it when                                      leaves it when
    lost                         an attempt failed                                   the model answers anything
    odd                          it was lost, or overtaken, and others are answered  it is answered itself
    given up                     each attempt was turned away                        it is answered, or the session ends
    faulty (`refusals`)          it failed for good: odd, or known to fail           never in this session
    gone                         only a gateway answered it                          it is answered
    blank                        its answer holds no text, and no other answer does  an answer holds a text
    suspect, in a later session  it was lost at the end of a session, or faulty      never
    proven, in a later session   it was given up, and the session went on            never

The model is, by these:

    never answered  no usable answer, now or before: one lost or blank request at the end is enough to stop
    answering       nothing is lost, or all that is lost is the fault of its request: odd, known to fail, or failed in words with
                    which others failed for good, as many as now in a row
    silent          several requests are lost, or one in LOST_ATTEMPTS attempts, that no request explains; or the last
                    REFUSED_ALIKE requests were refused for good in the same words, as by an account without credit: the run stops
    behind a gateway that answers in its place (502, 503, 504): silent too, unless later calls than those were answered
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from whet.errors import ProviderError
from whet.models.callable import FUNCTION
from whet.types import Completion

LOST_ATTEMPTS = 3
"""Attempts of one request that failed until the end, for the endpoint to be the reason."""
REFUSED_ALIKE = 10
"""Requests that a server refused for good, all in the same words and with no answer since, for the account to be the reason."""
_GONE = (502, 503, 504)
OVERTAKEN = 3
"""Calls that began later and were answered, for a call without an answer to be lost by its request."""
BLANK_ALIKE = 6
"""Answers without a text, and no other answer: the model gives none."""


@dataclass
class EndpointHealth:
    """The health of one model in one session. Requests are named by their digests."""

    known: int = 0
    """Answers that it gave in earlier sessions or that are in the cache; with any, the model is `trusted`."""
    suspects: frozenset[str] = frozenset()
    """Requests that earlier sessions lost at their end, or gave up although the model was there."""
    unanswered: frozenset[str] = frozenset()
    """Requests that failed in an earlier session."""
    proven: frozenset[str] = frozenset()
    """Requests that an earlier session gave up, each attempt refused, without ending for them."""
    usable: bool = False
    lost: dict[str, ProviderError] = field(default_factory=dict)
    """Requests without an answer since the model's last answer, each with its error."""
    failures: int = 0
    attempts: list[int] = field(default_factory=list)
    """The numbers of the calls for `lost` that were not billed."""
    odd: set[str] = field(default_factory=set)
    """Requests that failed before others were answered, which says nothing about the model."""
    blank: dict[str, str] = field(default_factory=dict)
    """Answers without usable text, as long as there was no other answer."""
    refusals: dict[tuple[int | None, str], set[str]] = field(default_factory=dict)
    """Requests among `odd` and `suspects` that failed until the end, by status and message."""
    newest: list[float] = field(default_factory=list)
    """The times at which the latest answered calls began."""
    gone: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Requests that only a gateway answered: when the first such call began, and the gateway's message."""
    given_up: set[str] = field(default_factory=set)
    """Requests that are not sent again in this session."""

    @property
    def trusted(self) -> bool:
        """Whether an answer of it is known from before."""
        return self.known > 0

    @property
    def _never(self) -> bool:
        return not (self.usable or self.trusted)

    @property
    def faulty(self) -> set[str]:
        """The requests that were given up although the model is there."""
        return set().union(*self.refusals.values())

    def note_late(self, digest: str, began: float) -> None:
        """Note that a server took the call that began at `began` and did not answer it. Where it answered several that began
        later, that says nothing of the model."""
        if self._is_overtaken(began):
            self.odd.add(digest)

    def _is_overtaken(self, began: float) -> bool:
        return len(self.newest) == OVERTAKEN and self.newest[0] > began

    def note_gone(self, digest: str, error: ProviderError, began: float) -> None:
        """Note that a gateway answered the call that began at `began` in place of its server."""
        self.gone.setdefault(digest, (began, str(error)))

    def given_up_at_end(self) -> set[str]:
        """The requests whose further failures say nothing of the model, where it ended the session: of those that it lost since
        its last answer only what a gateway said while it answered later calls, and as many others in the same words."""
        shown = {d for d, error in self.lost.items() if is_gone(error) and self._is_of_gateway(d, error)}
        return (self.given_up - self.lost.keys()) | (self.proven & self.lost.keys()) | shown

    def _is_of_gateway(self, digest: str, error: ProviderError) -> bool:
        """Whether a gateway answered later calls than that of a request that it failed, or than those of as many others that it
        failed in the same words as it now does in a row."""
        alike = {d for d, (_, words) in self.gone.items() if words == str(error)}
        proof = {d for d in alike if self._is_overtaken(self.gone[d][0])}
        now = (alike & self.lost.keys()) - proof - self.odd
        return digest in proof or 0 < len(proof) >= len(now)

    def note_failure(self, digest: str, error: ProviderError) -> None:
        """Note a failed attempt."""
        self.lost[digest] = error
        self.failures += digest not in self.odd

    def note_lost(self, digest: str, error: ProviderError) -> None:
        """Note that a request is not asked again."""
        own = digest in self.odd or self._fails_again(digest, error)
        if own and _is_reached(error):
            self.refusals.setdefault((error.status, str(error)), set()).add(digest)

    def tells(self, digest: str, error: ProviderError) -> bool:
        """Whether a failed attempt says that the model may be gone: not where it answered others after this request had failed
        before, not where a server that is there fails again what an earlier session lost, and not where it failed others so."""
        return not (self._fails_again(digest, error) or self._is_fault_of_request(digest, error))

    def remembers(self, digest: str) -> bool:
        """Whether an earlier session had no answer to a request."""
        return digest in self.suspects or digest in self.proven

    def _fails_again(self, digest: str, error: ProviderError) -> bool:
        """Whether a server that is there fails what an earlier session lost, or a gateway what one gave up and went on."""
        lost = self.remembers(digest) and _is_reached(error)
        return not self._never and (lost or self.is_proven(digest, error))

    def is_proven(self, digest: str, error: ProviderError) -> bool:
        """Whether a gateway fails, in place of its server, what was given up before, where others were answered after that or an
        earlier session went on."""
        known = digest in self.proven or digest in self.given_up & self.odd
        return known and is_gone(error) and not self._never

    def _is_fault_of_request(self, digest: str, error: ProviderError) -> bool:
        """Whether a server that answered others failed the request before, or failed as many others for good in the same words as
        it now does in a row."""
        if digest in self.odd:
            return True
        if is_gone(error):
            return self._is_of_gateway(digest, error)
        words = error.status, str(error)
        now = sum((e.status, str(e)) == words for d, e in self.lost.items() if d not in self.odd)
        return words in self.refusals and now <= len(self.refusals[words])

    def note_answer(self, digest: str, completions: Sequence[Completion], began: float = 0.0) -> bool:
        """Note an answer to a call that began at `began`. Whether it holds a usable text."""
        self.failures = 0
        self.newest = sorted([*self.newest, began])[-OVERTAKEN:]
        if self.lost:
            self.odd |= self.lost.keys()
            self.lost.clear()
        self.odd.discard(digest)
        self.gone.pop(digest, None)
        self.given_up.discard(digest)
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
        lost = self._find_unexplained()
        if not lost:
            return None
        last = list(lost.values())[-1]
        refused = _refused_as(last, lost) - self.unanswered
        alike = {d for d, error in lost.items() if error.retryable and error.status != 429}
        if len(refused) >= REFUSED_ALIKE:
            alike |= refused
        often = len(alike) > 1 or (alike and self.failures >= LOST_ATTEMPTS)
        again = _is_reached(last) and alike <= self.suspects
        if not self._never and (not often or again):
            return None
        whole = "" if self._never else "the last "
        more = " Requests that it refuses again then count as refused." if refused else ""
        return ProviderError(
            f"{address} has not answered {whole}{len(lost)} request(s); the last error: "
            f"{str(last).rstrip('.')}. Everything learned so far is kept. Run the same command again "
            f"when the model answers.{more}",
            fatal=True,
            status=last.status,
        )

    @property
    def refuses_alike(self) -> bool:
        """Whether the server refused the last `REFUSED_ALIKE` requests or more for good, in the same words; what it refused in an
        earlier session too does not count."""
        lost = {d: error for d, error in self._find_unexplained().items() if d not in self.unanswered}
        return bool(lost) and len(_refused_as(list(lost.values())[-1], lost)) >= REFUSED_ALIKE

    def _find_unexplained(self) -> dict[str, ProviderError]:
        """The requests without an answer since the model's last answer that are not at fault themselves."""
        return {
            digest: error
            for digest, error in self.lost.items()
            if not self._is_fault_of_request(digest, error)
            and not (digest in self.proven and self._fails_again(digest, error))
        }

    def _blank_error(self, address: str) -> ProviderError:
        reason = list(self.blank.values())[-1].partition(": ")[2]
        more = "" if address.startswith(FUNCTION) else " (`whet doctor` examines the endpoint)"
        return ProviderError(
            f"{address} answered {len(self.blank)} calls, but no answer contains text; the last: "
            f"{reason.rstrip('.')}. Solve this problem and run the same command again{more}.",
            fatal=True,
            status=200,
        )


def _refused_as(last: ProviderError, lost: Mapping[str, ProviderError]) -> set[str]:
    """The requests that a server refused for good with the words of `last`."""
    return {
        d for d, error in lost.items() if error.status and not error.retryable and str(error) == str(last)
    }


def is_gone(error: ProviderError) -> bool:
    """Whether a gateway answered whose server may be gone."""
    return error.status in _GONE


def _is_reached(error: ProviderError) -> bool:
    """Whether a server took the request that failed, and was no gateway whose server is gone."""
    return not is_gone(error) and not (error.status is None and error.refused)
