"""Signals that an app did not send, derived from what is stored: another try, a further question, and how much of an answer was
changed.

Nothing is derived from silence: who leaves without a word may be pleased, so that `abandon` is only what an app sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from whet.types import content_hash
from whet_client.records import Inference

SOON = 1_800_000_000
"""An answer to the same session (or else user) within so many microseconds, half an hour, follows on the one before."""
LONGEST_COMPARED = 2_000
"""Characters of an answer that are compared with what was kept of it."""
KEPT = ("correction", "edit_distance")
"""Kinds of feedback whose text is the answer as it was kept."""


@dataclass
class SignalDeriver:
    """Derives signals from the answers of one prompt, which come newest first."""

    _next: dict[str, tuple[int, Mapping[str, object]]] = field(default_factory=dict)

    def derive(
        self, inference: Inference, kept: Sequence[str], sent: Mapping[str, float]
    ) -> dict[str, float]:
        """All signals of an answer: those that were sent, and of other kinds those that can be derived. `kept` are texts of the
        answer as people kept it, the newest last."""
        derived = dict(self._find_continuation(inference))
        if kept:
            derived["edit_distance"] = changed_share(inference.output or "", kept[-1])
        return {**derived, **sent}

    def _find_continuation(self, inference: Inference) -> dict[str, float]:
        if inference.session:
            who = f"session:{inference.session}"
        elif inference.user:
            who = f"user:{inference.user}"
        else:
            return {}
        if not inference.inputs:  # which request it was is not known
            return {}
        after = self._next.get(who)
        self._next[who] = (inference.time, inference.inputs)
        if (
            after is None or not 0 < after[0] - inference.time <= SOON
        ):  # at one instant: several answers to one request
            return {}
        same = content_hash(dict(after[1])) == content_hash(dict(inference.inputs))
        return {"regenerate" if same else "follow_up": 1.0}


def changed_share(answer: str, kept: str) -> float:
    """The share of an answer that was changed, from 0 (nothing) to 1: the share of the characters of both texts that do not
    match, in longest common blocks (Ratcliff and Obershelp); of long texts the beginning is compared.

    >>> round(changed_share("Send 12 euros.", "Send 15 euros."), 2), changed_share("yes", "no")
    (0.07, 1.0)
    """
    first, second = answer[:LONGEST_COMPARED], kept[:LONGEST_COMPARED]
    if first == second:
        return 0.0
    return 1.0 - SequenceMatcher(None, first, second, autojunk=False).ratio()
