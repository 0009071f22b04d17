"""Rewards that verify: by a schema, by the result of a query, by tests that run. Each is bounded and says what it refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from whet.rewards.asking import RewardOptions
from whet.rewards.reward import RewardFunction
from whet.rewards.verifiers.compiles import build_compiles
from whet.rewards.verifiers.json_schema import build_json_schema
from whet.rewards.verifiers.math_equal import build_math_equal
from whet.rewards.verifiers.python_tests import build_python_tests
from whet.rewards.verifiers.sql import build_sql

VERIFIERS: Mapping[str, Callable[[RewardOptions], RewardFunction]] = {
    "json_schema": build_json_schema,
    "math_equal": build_math_equal,
    "sql": build_sql,
    "python_tests": build_python_tests,
    "compiles": build_compiles,
}
