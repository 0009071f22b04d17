"""Methods, model providers, rewards and environments of other packages, and packages that are broken."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.plugins.packages import install
from whet import api
from whet._util import plugins
from whet.cli.main import cli
from whet.errors import UsageError
from whet.methods import METHODS, configure, get_method
from whet.methods import table as method_table
from whet.models.addresses import check_base_url, resolve, split_address
from whet.rewards import build_reward
from whet.run import Budget
from whet.task import load_task

METHOD = """
from dataclasses import dataclass
from whet.methods import MethodEntry, Method
from whet.search import Archive, Candidate

@dataclass(frozen=True)
class Config:
    wording: str = "Sort it with care."
    rounds: int = 1

async def same(run, env, policy, start, config):
    archive = Archive()
    new = Candidate(start.edit(config.wording), (start.id,), "fixed")
    return await archive.validate(run, env, [Candidate(start), new])

METHOD = Method(MethodEntry("same", "One fixed wording", "Nobody, 2026"), same, Config)
WITHOUT_DEFAULT = Method(MethodEntry("same", ""), same, lambda wording: wording)
NEEDY = Method(MethodEntry("same", "", needs=("luck",)), same, Config)
OTHER_NAME = Method(MethodEntry("another", ""), same, Config)
VERSIONED = Method(MethodEntry("same", "", version=1), same, Config)
PLAIN = Method(MethodEntry("same", ""), lambda *arguments: None, Config)
"""
MODEL = """
from whet.errors import UsageError
from whet.types import Completion, Usage

ASKED = []

class Loud:
    simulated, local, can_generate, can_score = True, False, True, False
    def __init__(self, name, base_url, options):
        if name == "secret":
            raise ValueError("no such\\nmodel")
        if options.get("timeout") == 0:
            raise UsageError("loud: timeout must be above 0.")
        self.address, self.base_url, self.options = f"loud/{name}", base_url, options
    async def generate(self, request):
        ASKED.append(request)
        return [Completion("POSITIVE", usage=Usage(1, 1))]
    async def score(self, prompts, inputs, continuations):
        raise UsageError("loud/... only generates.")
    def count_tokens(self, text):
        return len(text)
    async def close(self):
        pass

def nothing(name, base_url, options):
    return None
"""
REWARD = """
from dataclasses import dataclass
from whet.types import Reward

@dataclass(frozen=True)
class Short:
    most: int = 20
    name: str = "short"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset = frozenset()

    async def grade(self, run, example, completion):
        return Reward(float(len(completion.text) <= self.most))

@dataclass(frozen=True)
class Endless(Short):
    high: float = float("inf")

@dataclass(frozen=True)
class Needy(Short):
    needs: frozenset = frozenset({"luck"})

@dataclass(frozen=True)
class Typed(Short):
    most: "Missing" = 1

class Plain:
    pass
"""
WORLD = """
from dataclasses import dataclass, replace
from whet.errors import UsageError
from whet.environments import WorldStep

class Knock:
    def __init__(self, opening, turns):
        self.opening, self.turns = opening, turns
    async def step(self, run, text):
        return WorldStep("Again.", reward=float(text == "POSITIVE"))

@dataclass(frozen=True)
class Door:
    turns: int
    prize: float = 1.0
    name: str = "door"
    graded: bool = False

    @property
    def range(self):
        return 0.0, self.prize * self.turns

    def check(self, example):
        if not example.text:
            raise UsageError("the row is empty.")

    def observe(self, example):
        return example

    def reset(self, example, opening):
        return Knock(opening, self.turns)

@dataclass(frozen=True)
class NoRange:
    turns: int
    name: str = "door"
    graded: bool = False
    check = observe = reset = Door.reset

@dataclass(frozen=True)
class Half:
    turns: int
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, on the path for one test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    known = set(sys.modules)
    yield folder
    for name in set(sys.modules) - known:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    importlib.invalidate_caches()


def refusal(function: Any, *arguments: Any) -> str:
    """What a UsageError says: one line."""
    with pytest.raises(UsageError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write_task(folder: Path, extra: str, reward: str = "reward: exact_match\n") -> Path:
    """A small task folder."""
    folder.mkdir(exist_ok=True)
    (folder / "task.yaml").write_text(f"name: small\nprompt: prompt.md\ndata: data.jsonl\n{reward}{extra}")
    (folder / "prompt.md").write_text(
        "Sort.\n<!-- whet:begin -->\nSay what it is.\n<!-- whet:end -->\n{{input}}"
    )
    rows = [f'{{"id": "r{i}", "input": "text {i}", "target": "POSITIVE"}}\n' for i in range(60)]
    (folder / "data.jsonl").write_text("".join(rows))
    return folder


def test_a_method_of_a_package_is_listed_and_configured(site: Path) -> None:
    install(site, "same-tools", {plugins.METHODS: {"same": "same_tools:METHOD"}}, METHOD)
    rows = method_table()[0]
    assert [row["name"] for row in rows] == [*METHODS, "same"]
    assert [row["package"] for row in rows] == ["whet"] * len(METHODS) + ["same-tools"]
    assert rows[-1]["title"] == "One fixed wording" and method_table()[1] == []
    assert configure(get_method("same"), {"rounds": "3"}).rounds == 3
    assert 'Did you mean "same"?' in refusal(get_method, "sam")
    assert 'Did you mean "rounds"?' in refusal(configure, get_method("same"), {"round": "3"})
    table = CliRunner().invoke(cli, ["methods"], env={"COLUMNS": "300"})
    assert "One fixed wording (package same-tools)" in table.output


def test_entry_points_are_read_only_for_names_that_are_not_built_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plugins, "_entries", lambda group: pytest.fail("entry points were read"))
    get_method("opro")
    split_address("scripted/echo")
    build_reward("exact_match", tmp_path, "here")
    build_reward({"yes_no": {"question": "Is it short?"}}, tmp_path, "here")
    (tmp_path / "tools.py").write_text(
        'def add(a: int, b: int) -> int:\n    """The sum."""\n    return a + b\n'
    )
    load_task(write_task(tmp_path, "environment: {tools: tools.py, turns: 2}\n"))


@pytest.mark.parametrize(
    ("value", "source", "said"),
    [
        (
            "broken_tools:METHOD",
            "import nothing_like_it",
            "ModuleNotFoundError: No module named 'nothing_like_it'",
        ),
        ("broken_tools:METHOD", "raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("broken_tools:METHOD", "raise SystemExit(3)", "SystemExit: 3"),
        ("broken_tools:METHOD", "def (", "SyntaxError"),
        ("broken_tools:METHOD", "", "AttributeError: module 'broken_tools' has no attribute 'METHOD'"),
        ("broken_tools", "", "is of the type module, not a whet.Method"),
        ("broken_tools:OTHER_NAME", METHOD, "calls itself another"),
        ("broken_tools:NEEDY", METHOD, "needs luck"),
        ("broken_tools:PLAIN", METHOD, "has no coroutine"),
        ("broken_tools:WITHOUT_DEFAULT", METHOD, "has a config that is no dataclass"),
    ],
)
def test_a_broken_method_is_one_line_that_names_the_package(
    site: Path, value: str, source: str, said: str
) -> None:
    install(site, "broken-tools", {plugins.METHODS: {"same": value}}, source)
    message = refusal(get_method, "same")
    assert message.startswith("The package broken-tools brings the method same, which cannot be used: ")
    assert said in message and "pip uninstall broken-tools" in message
    assert [row["name"] for row in method_table()[0]] == list(METHODS)
    assert method_table()[1] == [{"name": "same", "package": "broken-tools", "error": message}]
    done = CliRunner().invoke(cli, ["methods", "--json"])
    assert done.exit_code == 0 and '"package":"broken-tools"' in done.output.replace(" ", "")
    assert get_method("opro").entry.name == "opro"


def test_a_built_in_name_stays_whets_own(site: Path) -> None:
    install(site, "evil-tools", {plugins.METHODS: {"opro": "evil_tools:METHOD"}}, METHOD)
    assert get_method("opro").coroutine.__module__ == "whet.methods.opro"
    assert [row["name"] for row in method_table()[0]] == list(METHODS)
    (row,) = method_table()[1]
    assert 'The package evil-tools brings a method "opro", a name that is built into whet' in row["error"]


def test_a_name_of_two_packages_is_refused_with_both(site: Path) -> None:
    install(site, "first-tools", {plugins.METHODS: {"same": "first_tools:METHOD"}}, METHOD)
    install(site, "second-tools", {plugins.METHODS: {"same": "second_tools:METHOD"}}, METHOD)
    said = 'The packages first-tools and second-tools both bring a method "same". Uninstall one of them.'
    assert refusal(get_method, "same") == said
    assert [row["error"] for row in method_table()[1]] == [said, said]


def test_metadata_that_cannot_be_read_hides_its_own_package_only(site: Path) -> None:
    install(site, "garbled-tools", {}, "")
    (site / "garbled_tools-1.0.dist-info" / "entry_points.txt").write_text("[whet.methods]\nno equals sign\n")
    install(site, "same-tools", {plugins.METHODS: {"same": "same_tools:METHOD"}}, METHOD)
    assert get_method("same").entry.name == "same"


def test_a_provider_of_a_package_makes_models(site: Path) -> None:
    install(site, "loud-tools", {plugins.MODELS: {"loud": "loud_tools:Loud"}}, MODEL)
    model: Any = resolve("loud:big/one", base_url="http://localhost:1", options={"timeout": 2})
    assert (model.address, model.base_url, model.options) == (
        "loud/big/one",
        "http://localhost:1",
        {"timeout": 2},
    )
    said = refusal(resolve, "loud/secret")
    assert "loud-tools brings the model provider loud" in said and "ValueError: no such model" in said
    with pytest.raises(UsageError, match=r"^loud: timeout must be above 0\.$"):
        resolve("loud/x", options={"timeout": 0})
    assert 'Did you mean "loud"?' in refusal(split_address, "lound/x")


def test_a_provider_that_makes_no_model_is_refused(site: Path) -> None:
    install(
        site,
        "loud-tools",
        {plugins.MODELS: {"loud": "loud_tools:nothing", "mute": "loud_tools:__name__"}},
        MODEL,
    )
    said = refusal(resolve, "loud/x")
    assert "for loud/x it returns a NoneType, which is not a whet.LanguageModel: it has no `address`" in said
    assert "cannot be called" in refusal(resolve, "mute/x")


def test_the_members_that_the_model_of_a_package_lacks_are_named(site: Path) -> None:
    half = "class Half:\n    address, simulated, local, can_generate, can_score = 'half/x', True, True, True, False\n"
    half += "    async def generate(self, request): ...\n    async def close(self): ...\n"
    half += "def load(name, base_url, options):\n    return Half()\n"
    install(site, "half-tools", {plugins.MODELS: {"half": "half_tools:load"}}, half)
    said = refusal(resolve, "half/x")
    assert "which is not a whet.LanguageModel: it has no `score` and `count_tokens`." in said


def test_an_endpoint_that_only_a_task_names_gets_no_key_of_a_package(site: Path) -> None:
    install(site, "loud-tools", {plugins.MODELS: {"loud": "loud_tools:Loud"}}, MODEL)
    assert "say so with base_url" in refusal(check_base_url, "loud/x", "http://elsewhere.example")
    check_base_url("scripted/echo", "http://elsewhere.example")
    task = write_task(
        site.parent / "task", "models: {task: {address: loud/x, base_url: 'http://elsewhere.example'}}\n"
    )
    with pytest.raises(UsageError, match="say so with base_url"):
        api.optimize(task, method="random_search", budget=Budget(calls=200), root=site.parent)


def test_a_reward_of_a_package_takes_options(site: Path, tmp_path: Path) -> None:
    install(site, "short-tools", {plugins.REWARDS: {"short": "short_tools:Short"}}, REWARD)
    reward: Any = build_reward({"short": {"most": 5}}, tmp_path, "task.yaml:4")
    assert (reward.name, reward.most) == ("short", 5)
    assert build_reward([{"short": 0.5}, {"f1": 0.5}], tmp_path, "here").needs == {"target"}
    said = refusal(build_reward, {"short": {"mots": 5}}, tmp_path, "task.yaml:4")
    assert said == 'task.yaml:4: the reward short has no option "mots". Did you mean "most"?'
    for value in ("5", True, 5.5):
        said = refusal(build_reward, {"short": {"most": value}}, tmp_path, "task.yaml:4")
        assert "the option most of short must be a whole number" in said
    assert 'Did you mean "short"?' in refusal(build_reward, "shrot", tmp_path, "here")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("Endless", "its range is [0.0, inf]"),
        ("Needy", "it needs luck"),
        ("Plain", "is no dataclass"),
        ("Typed", "NameError"),
    ],
)
def test_a_broken_reward_names_its_package(site: Path, tmp_path: Path, value: str, said: str) -> None:
    install(site, "short-tools", {plugins.REWARDS: {"short": f"short_tools:{value}"}}, REWARD)
    message = refusal(build_reward, "short", tmp_path, "here")
    assert "The package short-tools brings the reward short" in message and said in message


def test_the_code_of_a_reward_and_an_environment_is_part_of_the_task(site: Path) -> None:
    install(site, "short-tools", {plugins.REWARDS: {"short": "short_tools:Short"}}, REWARD)
    install(site, "door-tools", {plugins.ENVIRONMENTS: {"door": "door_tools:Door"}}, WORLD)
    with_reward = write_task(site.parent / "one", "", "reward: short\n")
    with_world = write_task(site.parent / "two", "environment: {door: , turns: 2}\n", "")
    before = [load_task(folder).fingerprint for folder in (with_reward, with_world)]
    assert before == [load_task(folder).fingerprint for folder in (with_reward, with_world)]
    for name in ("short_tools.py", "door_tools.py"):
        (site / name).write_text((site / name).read_text() + "\n# another version\n")
    after = [load_task(folder).fingerprint for folder in (with_reward, with_world)]
    assert before[0] != after[0] and before[1] != after[1]


def test_an_environment_of_a_package_is_played(site: Path) -> None:
    install(site, "loud-tools", {plugins.MODELS: {"loud": "loud_tools:Loud"}}, MODEL)
    install(site, "door-tools", {plugins.ENVIRONMENTS: {"door": "door_tools:Door"}}, WORLD)
    task = write_task(site.parent / "task", "environment: {door: {prize: 1}, turns: 3}\n", "")
    loaded = load_task(task)
    assert loaded.world is not None and (loaded.reward.low, loaded.reward.high) == (0.0, 3.0)
    found = api.evaluate(task, lm="loud/x", run=site.parent / "run")
    assert found["score"]["mean"] == 3.0


@pytest.mark.parametrize(
    ("value", "environment", "said"),
    [
        ("Door", "{door: }", "has no `turns`"),
        (
            "Door",
            "{door: {prize: much}, turns: 2}",
            "the option prize of door must be a finite number",
        ),
        ("Door", "{door: {price: 1}, turns: 2}", 'no option "price". Did you mean "prize"?'),
        ("Door", "{dor: , turns: 2}", 'Did you mean "door"?'),
        ("Door", "{door: , turns: 2, seed: 1}", 'has no key "seed"'),
        ("Half", "{door: , turns: 2}", "it lacks a part of whet.environments.World"),
        ("NoRange", "{door: , turns: 2}", "it has no `range`"),
        ("Knock", "{door: , turns: 2}", "is no dataclass"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused_with_its_line(
    site: Path, value: str, environment: str, said: str
) -> None:
    install(site, "door-tools", {plugins.ENVIRONMENTS: {"door": f"door_tools:{value}"}}, WORLD)
    task = write_task(site.parent / "task", f"environment: {environment}\n", "")
    message = refusal(load_task, task)
    assert f"{task / 'task.yaml'}:4: " in message and said in message


def test_a_method_with_a_version_is_pinned_to_it_and_not_to_its_bytes(site: Path) -> None:
    install(site, "loud-tools", {plugins.MODELS: {"loud": "loud_tools:Loud"}}, MODEL)
    install(site, "same-tools", {plugins.METHODS: {"same": "same_tools:VERSIONED"}}, METHOD)
    task, out = write_task(site.parent / "task", ""), site.parent / "run"
    options: dict[str, Any] = {"method": "same", "lm": "loud/x", "budget": Budget(calls=200)}
    first = api.optimize(task, run=out, **options)
    source = site / "same_tools.py"
    for edit, refused in (
        ("# a comment", False),
        ('VERSIONED = Method(MethodEntry("same", "", version=2), same, Config)', True),
    ):
        source.write_text(f"{source.read_text()}\n{edit}\n")
        del sys.modules["same_tools"]
        importlib.invalidate_caches()
        (out / "result.json").unlink()
        if refused:
            with pytest.raises(UsageError, match="differs in version"):
                api.optimize(task, run=out, **options)
        else:
            again = api.optimize(task, run=out, **options)
            assert again["best"] == first["best"] and again["usage"]["calls"] == first["usage"]["calls"]


def test_a_run_resumes_and_forks_with_the_code_of_its_method_pinned(site: Path) -> None:
    install(site, "loud-tools", {plugins.MODELS: {"loud": "loud_tools:Loud"}}, MODEL)
    install(site, "same-tools", {plugins.METHODS: {"same": "same_tools:METHOD"}}, METHOD)
    task, out = write_task(site.parent / "task", ""), site.parent / "run"
    options: dict[str, Any] = {
        "method": "same",
        "lm": "loud/x",
        "budget": Budget(calls=200),
        "settings": {"wording": "Sort."},
    }
    first = api.optimize(task, run=out, **options)
    assert first["method"] == "same" and first["usage"]["calls"]["task"] > 0
    assert api.optimize(task, run=out, **options).to_dict() == first.to_dict()
    (out / "result.json").unlink()
    again = api.optimize(task, run=out, **options)
    assert again["best"] == first["best"] and again["usage"]["calls"] == first["usage"]["calls"]
    asked: list[Any] = sys.modules["loud_tools"].ASKED
    paid = len(asked)
    assert paid == first["usage"]["calls"]["task"]
    source = site / "same_tools.py"
    source.write_text(source.read_text() + "\n# another version, of another length\n")
    del sys.modules["same_tools"]
    importlib.invalidate_caches()
    (out / "result.json").unlink()
    with pytest.raises(UsageError, match="differs in version"):
        api.optimize(task, run=out, **options)
    forked = api.optimize(task, run=site.parent / "forked", fork=out, **options)
    assert forked["best"]["id"] == first["best"]["id"] and len(asked) == paid
