"""Attacks on the learning pipeline: our own search methods as attackers, goals with exact oracles, and a service to try them on.

Every goal is a harmless canary, and nothing here reaches a model or a network, but for `outside` with an address that does.
"""

from __future__ import annotations

from whet.testing.attack.attackers import AttackOutcome, Power, read_strings, strings
from whet.testing.attack.fake_feedback import FORGERIES, Bent, Forgery, bend, honest, worst
from whet.testing.attack.goals import FLATTERY, HELD_OUT, TUNING, Goal
from whet.testing.attack.measure import Campaign, SuccessRate, Target, campaign, rate, reached, successes
from whet.testing.attack.outside import Outside, outside
from whet.testing.attack.readers import KINDS, Kind, Reader
from whet.testing.attack.reward_hacking import SEARCHES, BoastingWorld, Gamed, game
from whet.testing.attack.searches import ATTACKERS, METHODS, by_method
from whet.testing.attack.service import AUTOMATIC, OFF, PROPOSING, Defences, Service
from whet.testing.attack.strategy import HostileRow, Strategy

__all__ = [
    "ATTACKERS",
    "AUTOMATIC",
    "FLATTERY",
    "FORGERIES",
    "HELD_OUT",
    "KINDS",
    "METHODS",
    "OFF",
    "PROPOSING",
    "SEARCHES",
    "TUNING",
    "AttackOutcome",
    "Bent",
    "BoastingWorld",
    "Campaign",
    "Defences",
    "Forgery",
    "Gamed",
    "Goal",
    "HostileRow",
    "Kind",
    "Outside",
    "Power",
    "Reader",
    "Service",
    "Strategy",
    "SuccessRate",
    "Target",
    "bend",
    "by_method",
    "campaign",
    "game",
    "honest",
    "outside",
    "rate",
    "reached",
    "read_strings",
    "strings",
    "successes",
    "worst",
]
