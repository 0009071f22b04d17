"""Policies: distributions over prompts given what has been seen. Their samples are called rewrites."""

from whet.policies.language import LanguagePolicy, setting
from whet.replies import texts_in

__all__ = ["LanguagePolicy", "setting", "texts_in"]
