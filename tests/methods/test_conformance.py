"""The methods of the table obey the public conformance suite, and the suite notices methods that do not."""

from __future__ import annotations

from types import MappingProxyType

from whet.testing.methods import MethodConformance


class TestRandomSearch(MethodConformance):
    method = "random_search"
    settings = MappingProxyType({"n": 24, "batch": 8, "finalists": 2})


class TestOPRO(MethodConformance):
    method = "opro"
    settings = MappingProxyType({"steps": 3, "samples": 4, "examples": 12})


class TestProTeGi(MethodConformance):
    method = "protegi"
    settings = MappingProxyType(
        {"rounds": 2, "beam": 2, "minibatch": 12, "gradients": 2, "successors": 4, "budget": 80}
    )


class TestGrIPS(MethodConformance):
    method = "grips"
    settings = MappingProxyType({"iterations": 4, "candidates": 3, "examples": 12})
