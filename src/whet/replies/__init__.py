"""From a model's reply to JSON values and to texts. A reply is data: read, never executed or formatted."""

from whet.replies.schemas import array, closed
from whet.replies.texts import TextReading, between, list_items, read_text, texts_in, unwrapped
from whet.replies.thoughts import joined, separated, split_thought, without_thought
from whet.replies.values import json_values, records

__all__ = [
    "TextReading",
    "array",
    "between",
    "closed",
    "joined",
    "json_values",
    "list_items",
    "read_text",
    "records",
    "separated",
    "split_thought",
    "texts_in",
    "unwrapped",
    "without_thought",
]
