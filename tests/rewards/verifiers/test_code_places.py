"""Which block of an answer is the code, and how its lines begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rewards.verifiers.grading import grade

import whet
from whet.replies.blocks import blocks_in, stretches_of
from whet.rewards.verifiers.python_code import python_in
from whet.rewards.verifiers.reading import SQL, code_in

SOLUTION = "def f():\n    return 1\n"
PY = f"```python\n{SOLUTION}```\n"
TESTS = "assert f() == 1"


@pytest.mark.parametrize(
    "answer",
    [
        f"{PY}Usage:\n```python\nprint(f())\n```",
        f"{PY}Run it:\n```bash\npython f.py\n```",
        f"{PY}Output:\n```\n1\n```",
        f"First I thought of\n```python\ndef f():\n    return 2\n```\nbut it is\n{PY}",
        f"{PY}Test it:\n```python\nassert f() == 2\n```\n```text\nAssertionError\n```",
        f"```\n{SOLUTION}```\nUsage:\n```\nprint(f())\n```",
    ],
)
def test_the_block_that_makes_what_the_tests_call_is_the_code(answer: str) -> None:
    assert python_in(answer, TESTS) == SOLUTION


@pytest.mark.parametrize("answer", [f"python\n{SOLUTION}", f"Python\n{SOLUTION}```\n", f"\npy\n{SOLUTION}"])
def test_a_name_of_the_language_before_code_without_a_fence_is_no_code(answer: str) -> None:
    assert python_in(answer, TESTS).strip() == SOLUTION.strip()
    assert code_in("sql\nSELECT 1", SQL) == "SELECT 1" and code_in("sql", SQL) == "sql"


def test_parts_of_a_solution_are_put_together() -> None:
    codes = ["import math\n", "x = 5\n", "A = math.pi\n", "def f(): return A\n"]
    parts = "Then\n".join(f"```python\n{code}```\n" for code in codes)
    assert python_in(parts, TESTS) == "import math\n\nA = math.pi\n\ndef f(): return A\n"
    assert python_in(parts, "def check(candidate): assert candidate()", "f").endswith("return A\n")


@pytest.mark.parametrize(
    "answer", ["```python\n1 +\n```\n```python\n2 +\n```", "```\na b\n```\n```\nc d\n```"]
)
def test_without_a_block_that_makes_it_the_last_one_is_the_code(answer: str) -> None:
    assert python_in(answer, TESTS) == code_in(answer) == blocks_in(answer)[-1]
    assert python_in("def f(): return 1", TESTS) == "def f(): return 1"


@pytest.mark.parametrize(
    "answer",
    [
        f"Here is the function:\n\n{SOLUTION}\nIt's simple: it returns one.",
        f"Solution\n\n{SOLUTION}Usage:\nprint(f())\nDone",
        f"{SOLUTION}This returns one.",
        f"<think>Hm.</think>Sure!\n{SOLUTION}",
    ],
)
def test_code_without_a_fence_is_found_between_the_prose(answer: str) -> None:
    assert python_in(answer, TESTS).rstrip() == SOLUTION.rstrip()


def test_code_of_an_indented_fence_at_the_beginning_is_not_indented() -> None:
    answer = "  ```python\n  def f():\n      return 1\n  ```"
    assert python_in(answer, TESTS).rstrip() == "def f():\n    return 1"


def test_statements_between_the_prose_are_put_together() -> None:
    answer = (
        "First:\nimport math\n\n@cached\ndef f(): return g()\nThen a helper:\ndef g(): return math.pi\nf()"
    )
    wanted = "import math\n@cached\ndef f(): return g()\ndef g(): return math.pi\n"
    assert python_in(answer, TESTS) == wanted
    broken = "Here:\ndef f(:\n    return 1"
    assert python_in(broken, TESTS) == broken, "nothing of it is code"


@pytest.mark.parametrize(
    ("reward", "answer", "value", "unreadable"),
    [
        ("python_tests", f"Here it is:\n{SOLUTION}Done.", 1.0, None),
        ("python_tests", "I cannot do that.", 0.0, 1.0),
        ("python_tests", "Here:\ndef f(:\n    return 1", 0.0, 1.0),
        ("python_tests", "def f():\n    return 2", 0.0, None),
        ("python_tests", "```python\ndef f(:\n```", 0.0, None),
        ("compiles", f"Here it is:\n{SOLUTION}Done.", 0.0, 1.0),
        ("compiles", SOLUTION, 1.0, None),
        ("compiles", "```python\ndef f(:\n```", 0.0, None),
    ],
)
async def test_an_answer_without_code_is_unreadable(
    reward: str, answer: str, value: float, unreadable: float | None
) -> None:
    graded = await grade(reward, answer, {"tests": TESTS})
    assert (graded.value, graded.parts.get("unreadable")) == (value, unreadable)
    assert unreadable is None or "fenced block" in str(graded.critique)


async def test_answers_without_code_are_warned_of(tmp_path: Path) -> None:
    result = await whet.aevaluate(
        "{{input}}",
        data=[{"input": f"q{n}", "tests": TESTS} for n in range(6)],
        reward="python_tests",
        lm=lambda messages: "I cannot do that.",
        split="validation",
        run=tmp_path / "run",
    )
    (text,) = [text for text in result.warnings if "no readable code" in text]
    assert 'such as "I cannot do that."' in text and result.parts["unreadable"] == 1.0


def test_an_indented_fence_moves_its_lines_to_the_left() -> None:
    listed = (
        f"1. Do:\n   ```python\n{''.join('   ' + line for line in SOLUTION.splitlines(True))}   ```\n2. Done."
    )
    assert blocks_in(listed) == [SOLUTION] and python_in(listed, TESTS) == SOLUTION
    assert blocks_in("  ```\n a\n\n    b\n  ```") == ["a\n\n  b\n"]
    assert code_in("Do:\n  ```python\n  x = 1") == "x = 1"


def test_a_deeper_fence_is_text_of_its_block_where_another_one_closes_it() -> None:
    code = 'def f():\n    """\n    ```\n    f()\n    ```\n    """\n    return 1\n'
    assert blocks_in(f"```python\n{code}```\n") == [code]
    assert blocks_in("```\na\n     ```\nb") == ["a\n"]
    names = [
        stretch.name
        for stretch in stretches_of("```{Python}\n1\n```\n~~~sql title=x\n1\n~~~")
        if stretch.fenced
    ]
    assert names == ["python", "sql"]


async def test_the_query_is_the_block_of_sql_and_its_columns_count_without_rows() -> None:
    answer = "```sql\nselect 1 where 0\n```\nResult:\n```\n(none)\n```"
    assert code_in(answer, SQL) == "select 1 where 0\n"
    reward = {"sql": {"setup": "create table s(n text)"}}
    assert (await grade(reward, answer, {}, "select 2 where 0")).value == 1.0
    graded = await grade(reward, answer, {}, "select 1, 2 where 0")
    assert graded.value == 0.0 and graded.critique == "The query returns 1 column; it should return 2."
