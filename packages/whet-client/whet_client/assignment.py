"""The assignment of a version to a unit: a pure function of the experiment's salt and the unit's id.

Nothing is stored and no server is called: every process that holds the definition gives the same answer. Each
arm draws an exponential waiting time with its weight as the rate, from a hash of salt, unit and version, and
the first one wins, so an arm wins with a probability proportional to its weight. When one weight changes, or
there are two arms, no more units move than must. When several change, the share that moves is at most
2d/(1 + d), where d is the total variation between the old and the new weights: no rule that keeps no record
does better (correlated sampling: Holenstein, Theory of Computing 5, 2009, Lemma 4; Bavarian et al., Theory of
Computing 16(12), 2020, Theorem 1).

Imports only the standard library and the tree of errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from whet_client.errors import UsageError

UNITS = ("user", "session", "episode")
"""The unit of assignment: everything that one user, one session or one episode sees comes from one arm."""

_BITS = 53


def waiting(salt: str, unit: str, version: int) -> float:
    """An exponential waiting time with rate 1 for one unit and one version: > 0, the same everywhere."""
    from hashlib import blake2b

    text = f"{len(salt)}:{salt}{version}:{unit}".encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> (64 - _BITS)
    return -math.log((drawn + 0.5) / (1 << _BITS))


def assign(salt: str, unit: str, arms: Sequence[tuple[int, float]]) -> int:
    """The version of one unit, given (version, weight) pairs.

    Weights are not negative and need not add up to 1; an arm with weight 0 gets nobody. Raises UsageError for
    an empty unit, no positive weight, or a weight that is negative or not finite.
    """
    if not unit:
        raise UsageError("The unit of an experiment is empty; give the id of the user, session or episode.")
    best, first = None, math.inf
    for version, weight in arms:
        if not 0.0 <= weight < math.inf:
            raise UsageError(f"The weight of version {version} is {weight}; it must be a number from 0 up.")
        if weight == 0.0:
            continue
        arrival = waiting(salt, unit, version) / weight
        if best is None or arrival < first:
            best, first = version, arrival
    if best is None:
        raise UsageError("No version of the experiment has a positive weight.")
    return best


def version_for(definition: Mapping[str, Any], unit: str) -> int:
    """The version of one unit under a definition as JSON: {"salt", "arms": [{"version", "weight"}], ...}.

    Raises UsageError like `assign`, and for a definition without these keys.
    """
    try:
        salt = definition["salt"]
        arms = [(int(arm["version"]), float(arm["weight"])) for arm in definition["arms"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"The definition of the experiment cannot be read ({type(error).__name__}: {error}); fetch it again."
        ) from None
    return assign(str(salt), unit, arms)
