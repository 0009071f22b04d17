"""Policies: distributions over prompts given what has been seen. Their samples are called rewrites."""

from whet.replies import texts_in
from whet.rl.language import LanguagePolicy, in_tags, setting, show_instruction
from whet.rl.open_points import OpenPoint, write_question

__all__ = [
    "LanguagePolicy",
    "OpenPoint",
    "in_tags",
    "setting",
    "show_instruction",
    "texts_in",
    "write_question",
]
