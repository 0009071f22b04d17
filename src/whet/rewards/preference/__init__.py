"""Reward models: an ensemble fitted to pairwise preferences, whose disagreement brakes the reward."""

from whet.rewards.preference.features import BUILT_IN, EMBEDDED
from whet.rewards.preference.fit import Calibration, conservative_mean
from whet.rewards.preference.judged import (
    FittedPreferences,
    HeldOut,
    JudgedAnswers,
    PersonAgreement,
    fit_judgements,
    information_gain,
)
from whet.rewards.preference.model import (
    EMBEDDINGS,
    Preference,
    PreferenceLabel,
    PreferenceModel,
    PreferencePair,
    Seen,
    build_preference,
    fit_preferences,
    strengths_of,
    with_embeddings,
)

FEATURES = (*BUILT_IN, EMBEDDED)
"""Names of the features of texts."""

__all__ = [
    "EMBEDDED",
    "EMBEDDINGS",
    "FEATURES",
    "Calibration",
    "FittedPreferences",
    "HeldOut",
    "JudgedAnswers",
    "PersonAgreement",
    "Preference",
    "PreferenceLabel",
    "PreferenceModel",
    "PreferencePair",
    "Seen",
    "build_preference",
    "conservative_mean",
    "fit_judgements",
    "fit_preferences",
    "information_gain",
    "strengths_of",
    "with_embeddings",
]
