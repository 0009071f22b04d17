"""Attacks on the learning pipeline: our own search methods as attackers, goals with exact oracles, and a service to try them on.

Nothing here reaches a model or a network, and every goal is a harmless canary.
"""

from __future__ import annotations

from whet.testing.attack.attackers import Outcome, Power, read_strings, strings
from whet.testing.attack.goals import FLATTERY, HELD_OUT, TUNING, Goal
from whet.testing.attack.measure import Campaign, Rate, Target, campaign, curve, rate, reached, successes
from whet.testing.attack.searches import ATTACKERS, METHODS, by_method
from whet.testing.attack.service import AUTOMATIC, OFF, PROPOSING, Defences, Service
from whet.testing.attack.strategy import Row, Strategy

__all__ = [
    "ATTACKERS",
    "AUTOMATIC",
    "FLATTERY",
    "HELD_OUT",
    "METHODS",
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
    "by_method",
    "campaign",
    "curve",
    "rate",
    "reached",
    "read_strings",
    "strings",
    "successes",
]
