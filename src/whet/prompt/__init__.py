"""Prompts: immutable documents with slots and fenced, editable regions. Text is data, never a template program."""

from whet.prompt.diff import text_diff, unified_diff
from whet.prompt.events import Effect
from whet.prompt.instructions import Instruction, reason_to_refuse
from whet.prompt.ledger import Change
from whet_client.prompt.document import MASK, Prompt
from whet_client.prompt.fence import Region
from whet_client.prompt.formats import FORMATS, write_prompt_as

__all__ = [
    "FORMATS",
    "MASK",
    "Change",
    "Effect",
    "Instruction",
    "Prompt",
    "Region",
    "reason_to_refuse",
    "text_diff",
    "unified_diff",
    "write_prompt_as",
]
