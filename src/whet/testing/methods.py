"""Conformance suite for methods: subclass it, name a method, run it with pytest.

    class TestMine(MethodConformance):
        method = "opro"
        settings = {"steps": 3}

Every test is an ordinary function; no plugin is needed. The default world is small, simulated and has a
known optimum (`whet.testing.simulated_task`); override `environment`, `start` and `optimizer` to bring another one.
A method that is not in the table of methods is tested by overriding `load`.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from whet.environments.environment import Environment
from whet.errors import BudgetExceeded
from whet.methods import LABEL_SCORES, OPTIMIZER, OPTIMIZER_OPTIONAL, REGIONS, Method, configure, get_method
from whet.models.language_model import LanguageModel
from whet.models.scripted import load as simulator
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.runs import MeteredRun, ShuffledRun
from whet.testing.simulated_task import SOURCE, TWO_REGIONS, ConstantReward, garbage, review_world

BANNED_IMPORTS = frozenset(
    {"asyncio", "datetime", "logging", "os", "random", "secrets", "threading", "time", "uuid"}
)


class MethodConformance:
    """Conformance tests for every method. `settings` should make a search last under a second."""

    method: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]] = {}
    always: ClassVar[Mapping[str, Any]] = {}
    """Settings that stand beside the defaults too, where the method cannot run without them."""
    seeds: ClassVar[tuple[int, ...]] = (0, 1)
    limits: ClassVar[tuple[int, ...]] = (60, 150, 300, 1000)
    plans_ahead: ClassVar[bool] = True
    """Whether the method keeps within the limits it is told by itself, not only because the run stops it."""
    _ended: ClassVar[dict[int, tuple[Candidate, MeteredRun]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._ended = {}

    def load(self) -> Method:
        """The method under test."""
        return get_method(self.method)

    def environment(self) -> Environment:
        """A small task; it scores labels when the method needs that."""
        return review_world(scores=LABEL_SCORES in self.load().entry.needs)

    def start(self) -> Prompt:
        """The start prompt; a prompt with a fence and a slot tests the most. A method that needs several regions gets two."""
        return Prompt.parse(TWO_REGIONS if REGIONS in self.load().entry.needs else SOURCE)

    def optimizer(self) -> LanguageModel:
        """The optimizer model, for methods that need one."""
        return simulator("phrases")

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, object] | None = None
    ) -> Candidate:
        """Run the method once."""
        method = self.load()
        config = configure(method, {**self.always, **(self.settings if settings is None else settings)})
        policy = LanguagePolicy() if {OPTIMIZER, OPTIMIZER_OPTIONAL} & set(method.entry.needs) else None
        candidate: object = asyncio.run(
            _finish(method.coroutine(run, env or self.environment(), policy, self.start(), config))
        )
        assert isinstance(candidate, Candidate), (
            f"a method returns a Candidate, this one {type(candidate).__name__}"
        )
        return candidate

    def run_seed(self, seed: int) -> tuple[Candidate, MeteredRun]:
        """Result and run of a seed, which the tests that only read them share: the search runs once."""
        if seed not in self._ended:
            run = MeteredRun(self.models(), seed)
            self._ended[seed] = self.run(run), run
        return self._ended[seed]

    def models(self, optimizer: LanguageModel | None = None) -> dict[str, LanguageModel]:
        """The models of a run, by role."""
        return {"task": self.environment().model, "optimizer": optimizer or self.optimizer()}

    def check_prompt(self, prompt: Prompt) -> None:
        """Assert that only editable text differs from the start and that no slot came or went."""
        start = self.start()
        assert prompt.slots == start.slots, f"slots {sorted(start.slots)} became {sorted(prompt.slots)}"
        assert len(prompt.messages) == len(start.messages)
        if start.fenced:
            back = prompt
            for region in start.regions:
                assert prompt.region_text(region.name).strip(), f"the region {region.name} is empty"
                back = back.edit(start.region_text(region.name), region.name)
            assert back == start, "text outside the fence has changed"

    def test_returns_a_prompt_that_differs_only_inside_the_fence(self) -> None:
        for seed in self.seeds:
            best, _ = self.run_seed(seed)
            self.check_prompt(best.prompt)

    def test_returns_the_best_on_validation(self) -> None:
        for seed in self.seeds:
            best, run = self.run_seed(seed)
            validated: dict[str, float] = {v["id"]: v["validation"] for v in _logged_values(run, "validated")}
            assert best.id in validated, "the result was never measured on validation examples"
            assert validated[best.id] == max(validated.values()), "a prompt better on validation was known"

    def test_survives_an_optimizer_that_writes_garbage(self) -> None:
        for seed in self.seeds:
            self.check_prompt(self.run(MeteredRun(self.models(garbage()), seed)).prompt)

    def test_survives_constant_rewards(self) -> None:
        for value in (0.0, 0.5, 1.0):
            env = dataclasses.replace(self.environment(), reward=ConstantReward(value))
            self.check_prompt(self.run(MeteredRun(self.models()), env).prompt)

    def test_survives_very_little_data(self) -> None:
        env = self.environment()
        env = dataclasses.replace(env, train=env.train[:3], validation=env.validation[:2])
        self.check_prompt(self.run(MeteredRun(self.models()), env).prompt)

    def test_the_seed_decides(self) -> None:
        for seed in self.seeds:
            first, run = self.run_seed(seed)
            again = MeteredRun(self.models(), seed)
            second = self.run(again)
            assert first.prompt == second.prompt, f"two runs with seed {seed} end differently"
            assert run.spent == again.spent
            assert _logged_values(run, "candidate") == _logged_values(again, "candidate")

    def test_the_order_of_branches_does_not_matter(self) -> None:
        expected, plain = self.run_seed(self.seeds[0])
        for order in (1, 2):
            shuffled = ShuffledRun(self.models(), self.seeds[0])
            shuffled.order = order
            assert self.run(shuffled).prompt == expected.prompt, (
                "the result depends on which branch ends first"
            )
            assert shuffled.spent == plain.spent

    def test_keeps_within_the_limits_it_is_told(self) -> None:
        if not self.plans_ahead:
            return
        for most in self.limits:
            for limits in (Budget(task_calls=most), Budget(calls=most)):
                run = MeteredRun(self.models(), limits=limits)
                self.check_prompt(self.run(run, settings={}).prompt)
                spent = run.spent["task"] if limits.calls is None else run.spent.total()
                assert spent <= most, f"{spent} calls under {limits}"

    def test_does_not_catch_the_end_of_the_budget(self) -> None:
        roles = ["task"] + ["optimizer"] * (OPTIMIZER in self.load().entry.needs)
        for role in roles:
            cap = len(self.environment().validation) + 3 if role == "task" else 1
            run = MeteredRun(self.models(), caps={role: cap})
            try:
                self.run(run)
            except BudgetExceeded:
                assert run.refused[role] == 1, "the method went on after the budget had ended"
            else:
                raise AssertionError(
                    f"the method swallowed BudgetExceeded or used at most {cap} {role} calls"
                )

    def test_has_an_incumbent_before_the_budget_can_end(self) -> None:
        run = MeteredRun(self.models(), caps={"task": len(self.environment().validation)})
        with contextlib.suppress(BudgetExceeded):
            self.run(run)
        assert any(v["incumbent"] for v in _logged_values(run, "validated")), (
            "validate the start before anything else: a run that ends early falls back on the incumbent"
        )

    def test_config_is_frozen(self) -> None:
        config = self.load().config
        assert dataclasses.is_dataclass(config)
        assert config() == config(), "every setting needs a default"
        try:
            setattr(config(), dataclasses.fields(config)[0].name, None)
        except dataclasses.FrozenInstanceError:
            return
        raise AssertionError("the config must be frozen")

    def test_source_leaves_effects_to_the_run(self) -> None:
        module = sys.modules[self.load().coroutine.__module__]
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            assert not isinstance(node, ast.Try), f"line {node.lineno}: try belongs to the building blocks"
            for name in _imported_names(node):
                assert name.split(".")[0] not in BANNED_IMPORTS, (
                    f"imports {name}: chance, time and effects come from run"
                )
                assert not _another_method(name, module.__name__), (
                    f"imports {name}: methods do not import each other"
                )


async def _finish(awaitable: Any) -> object:
    return await awaitable


def _logged_values(run: MeteredRun, name: str) -> list[Any]:
    return [value for logged, value in run.logged if logged == name]


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _another_method(name: str, own: str) -> bool:
    return name.startswith("whet.methods.") and name not in (own, "whet.methods.method")
