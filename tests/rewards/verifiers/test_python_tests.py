# ruff: noqa: E501
"""Code against tests, and attacks of such code: each earns the lowest reward, is message, and the next answer is graded."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.verifiers.grading import grade

import whet
from whet._util.confined import is_enforced
from whet._util.confined.child import seccomp_rules
from whet.errors import UsageError
from whet.rewards import build_reward
from whet.rewards.verifiers.answer_process import Codec
from whet.types import Example

pytestmark = pytest.mark.skipif(not is_enforced(), reason="files and network cannot be denied here")

TESTS = "import math\nassert f(1, 2) == 3\nassert f(0, 5) == 5\nassert math.isclose(f(0.5, 0.25), 0.75)"
SHORT = {"python_tests": {"timeout": 1, "memory": 256}}


POINT = """class P:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return self.x == other.x
def x_of(p): return p.x
def both(points): return sum(p.x for p in points)
def turn(points): points.reverse()"""
VALUE = """import datetime, decimal, fractions
class V:
    def __init__(self, x): self.x = x
    def __mul__(self, other): return V(self.x * getattr(other, 'x', other))
    __rmul__ = __mul__
    def __eq__(self, other): return self.x == getattr(other, 'x', other)
    def __abs__(self): return V(abs(self.x))
    def __str__(self): return f"V{self.x}"
class Odd(ValueError): pass
def refuse(): raise Odd("no")
def next_day(day): return day + datetime.timedelta(days=1)
def half(x): return [decimal.Decimal(x) / 2, fractions.Fraction(x, 2)]
def count(n): yield from range(n)
def apply(f, x): return f(x)"""
UNITTEST = """import unittest
class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.n = 2
    def setUp(self): self.zero = 0
    def test_a(self): self.assertEqual(f(self.zero), 0)
    def test_b(self): self.assertEqual(f(self.n), 2)"""


@pytest.mark.parametrize(
    ("answer", "tests", "value"),
    [
        ("def f(a, b): return a + b", TESTS, 1.0),
        ("Sure:\n```python\ndef f(a, b): return a + b\n```\nDone.", TESTS, 1.0),
        ("def f(a, b): return a + b if a else 0", TESTS, 2 / 3),
        ("def f(a, b):", TESTS, 0.0),
        ("def s(x): x.sort()",
         ["l = [3, 1]; s(l); assert l == [1, 3]", "d = {2}; assert d"], 1.0),
        ("def g(n): yield from range(n)", "assert list(g(3)) == [0, 1, 2]", 1.0),
        ("def f(x): raise KeyError(x)", "def test_a():\n    try:\n        f(1)\n    except KeyError:\n        return\n    assert 0", 1.0),
        ("class S:\n  def __init__(s): s.i = []\n  def push(s, x): s.i.append(x)\n  def __len__(s): return len(s.i)",
         "s = S()\ns.push('ä')\nassert len(s) == 1\nassert s.i == ['ä']", 1.0),
        ("def f(x): return 0", "assert f(0) == 0\nfor i in range(3):\n    assert f(i) == i", 1 / 2),
        ("def f(x): return x", "for i in range(3):\n    assert f(i) == i", 1.0),
        ("def f(x): return 0", "def near(a, b): assert a == b\ndef both(a): near(f(a), a)\nassert f(0) == 0\nboth(1)\nnear(f(2), 2)", 1 / 3),
        ("def f(x): return 0", "assert f(1) == 1\nif __name__ == '__main__':\n    assert f(2) == 2", 0.0),
        (POINT, ["assert P(1) == P(1)", "assert P(1) != P(2)", "assert x_of(P(3)) == 3", "assert P(1) != 1"], 1.0),
        (POINT, ["assert both([P(1), P(2)]) == 3", "l = [P(2), P(1)]\nturn(l)\nassert l == [P(1), P(2)]"], 1.0),
        ("def f(x): return 0", ["def test_a(): assert f(0) == 0", "def test_b(): assert f(2) == 2"], 1 / 2),
        ("def f(x): return 0", ["import math\ndef half(x): return x / 2", "assert f(half(2)) == 1"], 0.0),
        ("def f(x): return 0", "class TestF:\n  def test_a(self): assert f(0) == 0\n  def test_b(self): assert f(2) == 2", 1 / 2),
        ("def f(x): return 0", UNITTEST, 1 / 2),
        ("def h(n): return n + 1", "def check(candidate):\n    assert candidate(1) == 2", 1.0),
    ],
)  # fmt: skip
async def test_the_share_of_tests_that_pass(answer: str, tests: Any, value: float) -> None:
    graded = await grade("python_tests", answer, {"tests": tests, "entry_point": "h"})
    assert graded.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("test", "value", "beyond"),
    [
        ("assert V(2) * V(3) == V(6) and isinstance(V(1), V) and not isinstance(1, V) and f'{V(1)}' == 'V1'", 1.0, False),
        ("import datetime\nassert next_day(datetime.date(2024, 2, 28)) == datetime.date(2024, 2, 29)", 1.0, False),
        ("from fractions import Fraction\nfrom decimal import Decimal\nassert half(3) == [Decimal('1.5'), Fraction(3, 2)]", 1.0, False),
        ("try:\n    refuse()\nexcept ValueError as error:\n    assert str(error) == 'no'", 1.0, False),
        ("assert V(2) * V(3) == V(7)", 0.0, False),
        ("assert count(2) == [0, 1]", 0.0, False),
        ("assert V(2) == 3", 0.0, False),
        ("assert V(2) == 2", 0.0, True),
        ("assert V(2) * 3 == V(6)", 0.0, True),
        ("assert 3 * V(2) == V(6)", 0.0, True),
        ("assert abs(V(-2)) == V(2)", 0.0, True),
        ("assert apply(lambda x: x + 1, 1) == 2", 0.0, True),
    ],
)  # fmt: skip
async def test_a_test_of_objects_that_cannot_be_run_is_marked(test: str, value: float, beyond: bool) -> None:
    graded = await grade("python_tests", VALUE, {"tests": [test]})
    assert (graded.value, graded.parts.get("beyond_tests", 0.0)) == (value, float(beyond))
    assert "Proxy" not in (graded.critique or "")


RAISING = """import configparser, json, sys
class Odd(SystemExit): pass
def leave(): sys.exit(3)
def stop(): raise KeyboardInterrupt
def odd(): raise Odd("no")
def decode(): return b"\\xff".decode()
def parse(): return json.loads("{")
def section(): raise configparser.NoSectionError("shops")
def look(): return {}["a"]
def read(): return open("none.txt")"""


@pytest.mark.parametrize(
    "test",
    [
        "try:\n    leave()\n    assert False\nexcept SystemExit as error:\n    assert error.code == 3 and str(error) == '3'",
        "try:\n    stop()\n    assert False\nexcept KeyboardInterrupt:\n    assert True",
        "try:\n    odd()\n    assert False\nexcept SystemExit as error:\n    assert str(error) == 'no'",
        "try:\n    decode()\n    assert False\nexcept UnicodeDecodeError as error:\n    assert error.start == 0 and 'byte 0xff' in str(error)",
        "import json\ntry:\n    parse()\n    assert False\nexcept json.JSONDecodeError as error:\n    assert error.pos == 1",
        "import configparser\ntry:\n    section()\n    assert False\nexcept configparser.NoSectionError as error:\n    assert 'shops' in str(error)",
        "try:\n    look()\n    assert False\nexcept KeyError as error:\n    assert error.args == ('a',) and str(error) == \"'a'\"",
        "try:\n    read()\n    assert False\nexcept FileNotFoundError as error:\n    assert error.errno == 2 and error.filename == 'none.txt'",
        "import unittest\nclass TestIt(unittest.TestCase):\n    def test_it(self):\n        with self.assertRaises(SystemExit) as caught: leave()\n"
        "        self.assertEqual(caught.exception.code, 3)",
    ],
)  # fmt: skip
async def test_exceptions_arrive_as_they_were_raised(test: str) -> None:
    tests = test if "unittest" in test else [test]
    assert (await grade("python_tests", RAISING, {"tests": tests})).value == 1.0


@pytest.mark.parametrize(
    ("answer", "test"),
    [
        ("import sys\ndef f(): sys.exit(0)", "assert f() == 1"),
        ("import sys\ndef f(): sys.exit(0)", "try:\n    f()\n    assert False\nexcept Exception:\n    assert True"),
        ("class __main__: pass\nclass AnswerEnded(BaseException): __module__ = '__main__'\ndef f(): raise AnswerEnded", "assert f() == 1"),
        ("class Odd(ValueError):\n  def __reduce__(self): raise SystemExit\n  def __str__(self): raise SystemExit\ndef f(): raise Odd", "assert f() == 1"),
        ("def f(): raise ValueError('x' * 10 ** 7)", "assert f() == 1"),
        ("import unittest\ndef f(): raise unittest.SkipTest('later')", "assert f() == 1"),
    ],
)  # fmt: skip
async def test_an_exception_that_no_test_expects_fails_it(answer: str, test: str) -> None:
    assert (await grade("python_tests", answer, {"tests": [test, "assert f is not None"]})).value == 0.5


def test_a_run_says_how_many_answers_failed_such_tests(tmp_path: Path) -> None:
    rows = [
        {"input": f"{n}", "tests": ["assert V(2) * 3 == V(6)"] if n < 2 else ["assert V(1).x == 1"]}
        for n in range(6)
    ]
    run = whet.optimize(
        "<!-- whet:begin -->\nWrite it.\n<!-- whet:end -->\n{{input}}",
        data={"train": rows, "validation": [{**row, "input": "v" + row["input"]} for row in rows],
              "test": [{**row, "input": "t" + row["input"]} for row in rows]},
        reward="python_tests", lm=lambda messages: VALUE, method=whet.methods.random_search.Config(n=1),
        run=tmp_path / "run", progress=False,
    )  # fmt: skip
    assert any("2 of 6 rollouts of the baseline prompt failed a test" in warning for warning in run.warnings)


ATTACKS = {
    "processes": ("import os\ndef f(a, b): os.fork(); return a + b", "PermissionError"),
    "programs": ("import subprocess\nsubprocess.run(['true'])", "PermissionError"),
    "files": ("open('/etc/passwd').read()", "PermissionError"),
    "secrets": ("open('/proc/self/environ').read()", "PermissionError"),
    "writing": ("open('x', 'w')", "PermissionError"),
    "modes": ("import os, sys\nos.chmod(sys.executable, 0o755)", "PermissionError"),
    "sockets": ("import socket\nsocket.socket()", "PermissionError"),
    "endless": ("while True: pass", "refused: it had not ended|took too long"),
    "sleep": ("import time\ntime.sleep(60)", "refused: it had not ended"),
    "regular expression": ("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", "refused: it had not ended|took too long"),
    "memory": ("x = bytearray(10 ** 10)", "MemoryError"),
    "zip bomb": ("import zlib\nzlib.decompress(zlib.compress(bytes(10 ** 8)) , bufsize=10 ** 9)", "MemoryError"),
    "recursion": ("def f(a, b): return f(a, b)", "RecursionError"),
    "crash": ("import ctypes\nctypes.string_at(0)", "process of the answer ended"),
    "leaves": ("import os\nos._exit(0)", "process of the answer ended"),
    "leaves in a test": ("import os\ndef f(a, b): os._exit(0)", "process of the answer ended"),
    "huge result": ("def f(a, b): return 'x' * 10 ** 7", "more than 1 MiB"),
    "threads": ("import threading, time\nfor _ in range(9999): threading.Thread(target=time.sleep, args=(9,)).start()", "RuntimeError"),
    "limits": ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "Error"),
    "equal to all": ("class E:\n  def __eq__(s, o): return True\ndef f(a, b): return E()", "an object E"),
    "number that is equal to all": ("class E(int):\n  def __eq__(s, o): return True\ndef f(a, b): return E(9)", "returned 9"),
    "float by force": ("class E:\n  def __float__(s): return 0.75\n  def __sub__(s, o): return 0\ndef f(a, b): return E()", "an object E"),
    "patched assert": ("import builtins, sys\nbuiltins.AssertionError = KeyError\nsys.settrace(None)\ndef f(a, b): return 9", "returned 9"),
    "patched module": ("import math\nmath.isclose = lambda *a: True\ndef f(a, b): return 9", "returned 9"),
    "shadowed name": ("class math:\n  isclose = lambda *a: True\ndef f(a, b): return 9", "returned 9"),
    "reads the tests": (
        "import sys\ndef f(a, b):\n  frame, seen = sys._getframe(), ''\n  while frame:\n    seen += str(frame.f_locals)\n    frame = frame.f_back\n"
        "  return 'isclose' in seen",
        "returned False",
    ),
    "forged protocol": ("import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'{\"passed\": true, \"tests\": 1}\\n' * 9)\n  except OSError: pass",
                        "process of the answer ended"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attacks_earn_nothing_and_the_run_goes_on(attack: str) -> None:
    code, says = ATTACKS[attack]
    graded = await grade(SHORT, code, {"tests": TESTS})
    assert graded.value == 0.0 and graded.critique
    assert any(part in graded.critique for part in says.split("|")), graded.critique
    assert graded.parts["timed_out"] == (attack in ("endless", "sleep", "regular expression"))
    assert (await grade(SHORT, "def f(a, b): return a + b", {"tests": TESTS})).value == 1.0


@pytest.mark.parametrize(
    ("timeout", "code", "warnings"), [(0.2, "def f():\n    while True: pass", 1), (5, "def f(): return 2", 0)]
)
def test_answers_that_ran_out_of_time_are_told_of(
    timeout: float, code: str, warnings: int, tmp_path: Path
) -> None:
    data = [{"input": f"row {i}", "tests": "assert f() == 1"} for i in range(4)]
    result = whet.evaluate(
        "Say.",
        data=data,
        reward={"python_tests": {"timeout": timeout}},
        lm=lambda m: code,
        run=tmp_path / "run",
    )
    texts = [text for text in result.warnings if "ran out of time" in text]
    assert result.score.mean == 0.0 and len(texts) == warnings
    assert all(
        "1 of 1 rollouts of the validation prompt whose tests failed ran" in text
        and "{timeout: SECONDS}" in text
        for text in texts
    )


async def test_output_is_thrown_away() -> None:
    assert (
        await grade(SHORT, "print('x' * 10 ** 7)\ndef f(a, b): return a + b", {"tests": TESTS})
    ).value == 1.0


def test_no_signal_reaches_another_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            graded = asyncio.run(grade(SHORT, f"import os\nos.kill({other.pid}, 9)", {"tests": TESTS}))
            assert other.poll() is None and "PermissionError" in str(graded.critique)
        finally:
            other.kill()


async def test_the_environment_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "abc")
    code = "import os\ndef f(): return ['SECRET_KEY' in os.environ, os.listdir('.')]"
    assert (await grade(SHORT, code, {"tests": "assert f() == [False, []]"})).value == 1.0


async def test_nothing_is_left_behind() -> None:
    before = set(os.listdir("/proc/self/fd"))
    await grade(SHORT, "import os\nos._exit(0)", {"tests": TESTS})
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1


def test_the_filter_allows_no_call_that_makes_a_process_or_a_socket() -> None:
    denied = {41, 53, 57, 58, 59, 62, 101, 160, 165, 200, 272, 308, 310, 321, 322, 425, 435, 436}
    rules = seccomp_rules(1)
    allowed = {
        rule[3]
        for rule, after in itertools.pairwise(rules)
        if rule[0] == 0x15 and after == (6, 0, 0, 0x7FFF0000)
    }
    assert not denied & allowed


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (None, "no tests"),
        ("", "no tests"),
        ([], "no tests"),
        ([1], "no tests"),
        ("assert (", "no Python"),
        ("f(1)", "hold no assert"),
        (["import math", "def test(): assert 1"], ""),
        ("def test_a(a, b): assert f(a) == b", "arguments a, b"),
        (["def test_a(*, a, b=1): assert f(a) == b"], "arguments a,"),
        ("async def test_a(): assert await f(1) == 1", "not awaited"),
        ("class TestF:\n  def test_a(self, tmp_path): assert f(1) == 1", "TestF.test_a needs the arguments tmp_path,"),
        ("class TestF:\n  def setup_method(self): self.n = 1\n  def test_a(self): assert f(self.n) == 1", "setup_method is not run"),
    ],
)  # fmt: skip
def test_rows_whose_tests_cannot_be_run_are_refused_before_anything_is_paid(tests: Any, message: str) -> None:
    reward = build_reward("python_tests", Path(), "task.yaml:1")
    row = Example("one", {}, None, {"tests": tests})
    with pytest.raises(UsageError, match=f"row one.*{message}") if message else nullcontext():
        reward.check(row)


def test_a_machine_that_cannot_deny_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.rewards.verifiers.python_tests.is_enforced", lambda: False)
    with pytest.raises(UsageError, match="confined: false"):
        build_reward("python_tests", Path(), "task.yaml:1")
    assert build_reward({"python_tests": {"confined": False}}, Path(), "task.yaml:1")


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)  # fmt: skip


@given(_plain)
def test_plain_values_cross_between_the_processes_unchanged(value: Any) -> None:
    codec = Codec()
    read = codec.read(codec.write(value))
    assert read == value and type(read) is type(value) and not codec.kept
