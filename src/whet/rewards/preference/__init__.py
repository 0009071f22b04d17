"""Reward models: strengths from pairwise preferences, their ensemble with a brake, and a prompt for each query."""

from whet.rewards.preference.bradley_terry import Duel, Strengths, hedged, preference, strengths
from whet.rewards.preference.calibration import Bin, Calibration, calibration, temperature
from whet.rewards.preference.ensemble import braked, ensemble
from whet.rewards.preference.logistic import Fit, logistic
from whet.rewards.preference.model import (
    EMBEDDINGS,
    Preference,
    PreferenceModel,
    PreferencePair,
    build_preference,
    fit_preferences,
    with_embeddings,
)
from whet.rewards.preference.offline import Chooser, Gain, Log, fit_log

__all__ = [
    "EMBEDDINGS",
    "Bin",
    "Calibration",
    "Chooser",
    "Duel",
    "Fit",
    "Gain",
    "Log",
    "Preference",
    "PreferenceModel",
    "PreferencePair",
    "Strengths",
    "braked",
    "build_preference",
    "calibration",
    "ensemble",
    "fit_log",
    "fit_preferences",
    "hedged",
    "logistic",
    "preference",
    "strengths",
    "temperature",
    "with_embeddings",
]
