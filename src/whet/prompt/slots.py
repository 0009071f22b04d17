"""Slots `{{name}}`: found and filled by one literal pass. Every other brace is ordinary text."""

from __future__ import annotations

import re
from collections.abc import Mapping

SLOT = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}")


def slots(text: str) -> frozenset[str]:
    """Names of the slots in a text.

    >>> sorted(slots('{{question}} {"a": {{ context }}} {{7*7}} {x}'))
    ['context', 'question']
    """
    return frozenset(SLOT.findall(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace known slots by their values in a single pass; values are never scanned again.

    >>> fill("{{a}} {{b}} {{unknown}}", {"a": "{{b}}", "b": "2"})
    '{{b}} 2 {{unknown}}'
    """
    return SLOT.sub(lambda match: values.get(match.group(1), match.group(0)), text)
