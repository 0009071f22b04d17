"""Policies: distributions over prompts given what has been seen. Their samples are called rewrites."""

from whet.replies import texts_in
from whet.rl.language import LanguagePolicy, in_tags, setting, show_instruction

__all__ = ["LanguagePolicy", "in_tags", "setting", "show_instruction", "texts_in"]
