"""Attacks on the learning pipeline: our own search methods as attackers, goals with exact oracles, and a service to try them on.

Every goal is a harmless canary, and nothing here reaches a model or a network, but for `outside` with an address that does.
"""

from __future__ import annotations

from benchmarks.attack.attackers import AttackOutcome, Power, read_strings, strings
from benchmarks.attack.fake_feedback import FORGERIES, Bent, Forgery, bend, honest, worst
from benchmarks.attack.goals import FLATTERY, HELD_OUT, TUNING, Goal
from benchmarks.attack.measure import Campaign, SuccessRate, Target, campaign, rate, success_rate, successes
from benchmarks.attack.outside import Outside, outside
from benchmarks.attack.readers import KINDS, Kind, Reader
from benchmarks.attack.reward_hacking import SEARCHES, BoastingWorld, Gamed, game
from benchmarks.attack.searches import ATTACKERS, METHODS, by_method
from benchmarks.attack.service import AUTOMATIC, OFF, PROPOSING, Defences, Service
from benchmarks.attack.strategy import HostileRow, Strategy

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
    "read_strings",
    "strings",
    "success_rate",
    "successes",
    "worst",
]
