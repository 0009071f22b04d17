"""From a model's reply to JSON values and to texts. A reply is data: read, never executed or formatted."""

from whet.replies.numbers import read_json_float
from whet.replies.schemas import array, closed_object
from whet.replies.texts import (
    TextReading,
    between,
    close_tag,
    indent_further_lines,
    list_items,
    read_tagged_text,
    texts_in,
    unwrap,
)
from whet.replies.thoughts import join_thought, separate_thought, split_thought, without_thought
from whet.replies.values import json_values, records

__all__ = [
    "TextReading",
    "array",
    "between",
    "close_tag",
    "closed_object",
    "indent_further_lines",
    "join_thought",
    "json_values",
    "list_items",
    "read_json_float",
    "read_tagged_text",
    "records",
    "separate_thought",
    "split_thought",
    "texts_in",
    "unwrap",
    "without_thought",
]
