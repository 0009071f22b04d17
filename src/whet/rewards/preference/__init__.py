"""Reward models: an ensemble fitted to pairwise preferences, whose disagreement brakes the reward."""

from whet.rewards.preference.fit import Calibration
from whet.rewards.preference.model import (
    EMBEDDINGS,
    Preference,
    PreferenceModel,
    PreferencePair,
    build_preference,
    fit_preferences,
    with_embeddings,
)

__all__ = [
    "EMBEDDINGS",
    "Calibration",
    "Preference",
    "PreferenceModel",
    "PreferencePair",
    "build_preference",
    "fit_preferences",
    "with_embeddings",
]
