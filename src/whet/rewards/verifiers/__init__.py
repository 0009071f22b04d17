"""Rewards that verify: by a schema, by the result of a query, by tests that run. Each is bounded and says what it refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from whet.rewards.asking import RewardOptions
from whet.rewards.reward import RewardFunction
from whet.rewards.verifiers.command_check import build_command_check
from whet.rewards.verifiers.compiles import build_compiles
from whet.rewards.verifiers.json_schema import build_json_schema
from whet.rewards.verifiers.math_equal import build_math_equal
from whet.rewards.verifiers.python_tests import PythonTests, build_python_tests
from whet.rewards.verifiers.solver import build_solver
from whet.rewards.verifiers.sql import build_sql
from whet.rewards.verifiers.svg_scene import SvgScene, build_svg_scene
from whet.rewards.verifiers.tool_calls import ToolCalls, build_tool_calls
from whet.rewards.verifiers.verilog import Verilog, build_verilog

VERIFIERS: Mapping[str, Callable[[RewardOptions], RewardFunction]] = {
    "json_schema": build_json_schema,
    "math_equal": build_math_equal,
    "solver": build_solver,
    "sql": build_sql,
    "svg_scene": build_svg_scene,
    "tool_calls": build_tool_calls,
    "python_tests": build_python_tests,
    "compiles": build_compiles,
    "verilog": build_verilog,
    "command_check": build_command_check,
}
OWN_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "python_tests": (PythonTests.tests, PythonTests.entry),
    "svg_scene": (SvgScene.own_column,),
    "verilog": (Verilog.bench,),
    "tool_calls": (ToolCalls.calls,),
}
"""Columns that a verifier reads in place of the target, as they are called where its options say nothing."""
