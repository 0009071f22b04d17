"""What speaks against a reward that was fitted to ratings: sentences for people, of the fit and of who rated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PLEASED = {"copy": 1, "share": 1, "external_check": 1, "regenerate": -1, "abandon": -1, "edit_distance": -1}
"""Signals that speak for an answer (1) or against it (-1), if people mean what they do."""
FEW = 20
"""With fewer raters, intervals that take a rater as one are not to be relied on."""
LOST = 0.05
"""From this share of all ratings on, a warning names what is lost because few users rate much."""


def of_fit(
    explained: float, effective: float, propensity: Array, rated: int, smallest: float
) -> Iterator[str]:
    """What the signals cannot tell. `explained` is a share of variance, `effective` a number of ratings out of `rated`,
    `propensity` (n,) the probability of each answer to be rated, `smallest` its bound."""
    if explained < 0.02:
        yield (
            f"The signals explain {max(explained, 0.0):.0%} of the ratings' variance: this reward says next to nothing."
        )
    if effective < rated / 3:
        yield (
            f"After the correction {rated} ratings are worth {effective:.0f}: some signals are hardly ever rated, or few "
            "users rate much."
        )
    few = float((propensity <= smallest).mean())
    if few > 0.1:
        yield (
            f"{few:.0%} of the answers have signals that are rated less than once in {1 / smallest:.0f} "
            "times; for them the correction is bounded."
        )


def of_people(
    weights: Mapping[str, tuple[float, float]], shrunk: Array, sources: NDArray[np.int64], most: float
) -> Iterator[str]:
    """What looks as if some people bent the weights, by rating much or the wrong way round.

    `weights` maps a feature to the ends of its interval. `shrunk` (n,) says how much of its weight each rating keeps, in
    (0, 1], `sources` (n,) whose it is, `most` what one source may weigh, in ratings.
    """
    loud, all_of_them = len(set(sources[shrunk < 1.0].tolist())), len(set(sources.tolist()))
    if all_of_them < FEW:
        yield f"The ratings are by {all_of_them} users only: the intervals may be too narrow."
    if 2 * loud < all_of_them and 1.0 - float(shrunk.mean()) > LOST:
        yield f"{loud} of {all_of_them} users rate so much that it counts less: as {most:g} ratings each."
    for name, (low, high) in weights.items():
        sign = PLEASED.get(name, 0)
        if sign and max(sign * low, sign * high) < 0:
            how = "worse" if sign > 0 else "better"
            yield (
                f"Answers with {name} are rated {how} than others, which is the wrong way round. Look at who rates them "
                "before you trust this reward."
            )
