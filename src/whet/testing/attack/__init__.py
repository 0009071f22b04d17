"""Attacks on the learning pipeline: adaptive attackers, goals with exact oracles, and a service to try them on.

Nothing here reaches a model or a network, and every goal is a harmless canary.
"""

from __future__ import annotations

from whet.testing.attack.attackers import ATTACKERS, Outcome, Power, read_strings, strings
from whet.testing.attack.goals import HELD_OUT, TUNING, Goal
from whet.testing.attack.measure import Campaign, Rate, Target, campaign, curve, rate, successes
from whet.testing.attack.service import AUTOMATIC, OFF, PROPOSING, Defences, Service
from whet.testing.attack.strategy import Row, Strategy

__all__ = [
    "ATTACKERS",
    "AUTOMATIC",
    "HELD_OUT",
    "OFF",
    "PROPOSING",
    "TUNING",
    "Campaign",
    "Defences",
    "Goal",
    "Outcome",
    "Power",
    "Rate",
    "Row",
    "Service",
    "Strategy",
    "Target",
    "campaign",
    "curve",
    "rate",
    "read_strings",
    "strings",
    "successes",
]
