"""Traffic of one prompt over weeks, with a change in it where a test wants one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from whet.prompt import Prompt
from whet_client.ids import microseconds
from whet_client.records import Feedback, Inference
from whet_live import Live

NAME = "shop/help"
DAY = 86_400_000_000
HOUR = 3_600_000_000
BEGIN = microseconds("2026-01-05")
"""A Monday."""


@dataclass
class Weeks:
    """How the prompt does: days of traffic with `per_day` answers of `users` users, from `changed` on with other rates."""

    days: int = 30
    per_day: int = 40
    users: int = 25
    changed: int = 10_000
    thumbs: tuple[float, float] = (0.85, 0.85)
    seconds: tuple[float, float] = (1.0, 1.0)
    models: tuple[str, str] = ("gpt-x", "gpt-x")
    fingerprints: tuple[str, str] = ("fp_a", "fp_a")
    seed: int = 1
    countries: tuple[str, ...] = field(default=("de", "fr"))


def fill_weeks(live: Live, weeks: Weeks, begin: int = BEGIN) -> int:
    """Write the traffic; returns the end of the last day."""
    rng = np.random.default_rng(weeks.seed)
    answers, said = [], []
    for day in range(weeks.days):
        late = int(day >= weeks.changed)
        for n in range(weeks.per_day):
            at = begin + day * DAY + int(rng.integers(DAY))
            user, key = f"user-{rng.integers(weeks.users)}", f"{NAME}-{day}-{n}"
            country = weeks.countries[n % len(weeks.countries)]
            answers.append(
                Inference(
                    NAME, 1 + late, {"question": "When?"}, "" if rng.random() < 0.02 else "At six.", id=key,
                    model=weeks.models[late], user=user, latency=float(rng.lognormal(0, 0.4)) * weeks.seconds[late],
                    cost=0.001, input_tokens=100, output_tokens=int(rng.integers(20, 60)),
                    error="No answer." if rng.random() < 0.01 else None, time=at,
                    metadata={"system_fingerprint": weeks.fingerprints[late], "country": country},
                )
            )  # fmt: skip
            if rng.random() < 0.6:
                up = float(rng.random() < weeks.thumbs[late])
                said.append(Feedback("thumb", key, up, user=user, time=at + 60_000_000, id=f"t-{key}"))
            if rng.random() < 0.05:
                said.append(
                    Feedback("correction", key, text="At seven.", user=user, time=at + HOUR, id=f"c-{key}")
                )
    live.traffic.add(answers, said)
    return begin + weeks.days * DAY


def make_prompt(live: Live) -> None:
    """The prompt with its first version in production."""
    live.registry.create(NAME, Prompt.parse("Answer {{question}}\n"), author="eva", label="production")
