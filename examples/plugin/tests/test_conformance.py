"""The public conformance suites judge what this package brings."""

from __future__ import annotations

from typing import ClassVar

from whet_example_plugin.sentences import METHOD

from whet import Method
from whet.testing import MethodConformance


class TestSentences(MethodConformance):
    settings: ClassVar[dict[str, object]] = {
        "sentences": "Work carefully.|Guess.|Look for evidence.",
        "examples": 12,
    }

    def load(self) -> Method:
        return METHOD
