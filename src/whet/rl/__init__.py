"""Policies: distributions over prompts given what has been seen. Their samples are called rewrites."""

from whet.replies import texts_in
from whet.rl.language import LanguagePolicy, setting

__all__ = ["LanguagePolicy", "setting", "texts_in"]
