"""Prompts: immutable documents with slots and fenced, editable regions. Text is data, never a template program."""

from whet.prompt.diff import unified_diff
from whet.prompt.document import Prompt
from whet.prompt.fence import Region

__all__ = ["Prompt", "Region", "unified_diff"]
