"""Every wrong input of the tables: one message with place and remedy, exit code 2, nothing paid, no file; or a warning
before the first call."""

from __future__ import annotations

import shlex
import sys
import threading
import typing
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.wrong_inputs.case import FILES, Case
from tests.wrong_inputs.commands import COMMANDS
from tests.wrong_inputs.folders import DATA, FEEDBACK, PROMPTS, REWARDS, TASKS
from tests.wrong_inputs.starting import INIT, LOOKS, MORE
from whet._util.fields import bounds_of, check_bounds
from whet.cli.main import main
from whet.errors import UsageError
from whet.methods import METHODS, get_method
from whet.models.addresses import resolve
from whet.types import Completion, Request, Usage

GROUPS = {
    "command": COMMANDS,
    "task": TASKS,
    "prompt": PROMPTS,
    "data": DATA,
    "reward": REWARDS,
    "feedback": FEEDBACK,
    "init": INIT,
    "looks": LOOKS,
    "more": MORE,
}
ALL = {f"{group}: {name}": case for group, cases in GROUPS.items() for name, case in cases.items()}


class Counting:
    """Counts its calls, and keeps what stood on stderr before the first one."""

    can_generate, can_score, local, simulated, address = True, False, False, True, "openai/counting"

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.calls, self.before = capsys, 0, ""

    async def generate(self, request: Request) -> Sequence[Completion]:
        if not self.calls:
            self.before = self.capsys.readouterr().err
        self.calls += 1
        return [Completion("4", usage=Usage(3, 1))]

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        return None


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Counting:
    counting = Counting(capsys)

    def choose(address: str, **how: Any) -> Any:
        return counting if address == counting.address else resolve(address, **how)

    monkeypatch.setattr("whet.models.callable.resolve", choose)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return counting


def write(root: Path, case: Case) -> None:
    files: dict[str, str | bytes | None] = {**FILES, **case.files}
    files["task/task.yaml"] = f"{files['task/task.yaml']}{case.yaml}"
    for name, content in files.items():
        if content is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["whet", *shlex.split(command)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", ALL)
def test_a_wrong_input_is_told_before_anything_is_paid(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: Counting,
) -> None:
    case = ALL[name]
    write(tmp_path, case)
    monkeypatch.chdir(tmp_path)
    for variable, value in case.env.items():
        monkeypatch.setenv(variable, value)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    code = run(case.command, monkeypatch)
    output = capsys.readouterr()
    warned = case.warned or case.code == 0
    message = model.before if warned else output.err
    assert code == case.code, message
    assert "Traceback" not in output.err + model.before
    missing = [piece for piece in case.says if piece not in message]
    assert not missing, f"{missing} not in {message}"
    if not warned:
        assert model.calls == 0 and output.out == ""
        assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before
    else:
        assert model.calls > 0


def test_every_number_of_every_method_has_bounds() -> None:
    for name in METHODS:
        config = get_method(name).config
        numbers = {
            field
            for field, hint in typing.get_type_hints(config).items()
            if {int, float} & {hint, *typing.get_args(hint)}
        }
        assert numbers == set(bounds_of(config)), name
        check_bounds(config())


ROWS = [{"input": f"q{n}", "target": str(n % 2)} for n in range(12)]
KEYWORDS: dict[str, tuple[dict[str, Any], str]] = {
    "no data": ({"data": None}, "Give data="),
    "data a number": ({"data": 5}, "data"),
    "data empty": ({"data": []}, "data"),
    "data of texts": ({"data": ["a", "b", "c"]}, "data"),
    "data nowhere": ({"data": Path("nowhere.jsonl")}, "nowhere.jsonl"),
    "split unknown": ({"data": {"train": ROWS, "tst": ROWS}}, "tst"),
    "no reward": ({"reward": None}, "Give reward="),
    "reward unknown": ({"reward": "exact_mach"}, '"exact_match"'),
    "reward a number": ({"reward": 5}, "reward"),
    "reward swapped": ({"reward": lambda output, example: 1.0}, "swapped"),
    "reward of one": ({"reward": lambda output: 1.0}, "two parameters"),
    "reward that returns a text": ({"reward": lambda example, output: "good"}, "'good'"),
    "method unknown": ({"method": "oppro"}, '"opro"'),
    "method a number": ({"method": 5}, "no method"),
    "config out of range": ({"method": whet.methods.opro.Config(steps=-1)}, "opro: steps must be 0 or more"),
    "settings out of range": ({"settings": {"n": -3}}, "n must be 1 or more"),
    "settings and a config": ({"method": whet.methods.opro.Config(), "settings": {"steps": 1}}, "settings="),
    "lm a number": ({"lm": 5}, "model"),
    "lm unknown": ({"lm": "watsonx/llama3"}, "base_url=URL"),
    "budget a number": ({"budget": 5}, "whet.Budget"),
    "budget below 0": ({"budget": whet.Budget(calls=-1)}, "budget.calls"),
    "seed a text": ({"seed": "1"}, "seed"),
    "concurrency 0": ({"concurrency": 0}, "concurrency"),
    "labels alone": ({"labels": ["a"]}, "two labels"),
    "alpha": ({"alpha": 7}, "alpha"),
    "group": ({"group": "user"}, '"user"'),
    "run a file": ({"run": "file"}, "run=DIR"),
    "fork nowhere": ({"fork": "nowhere"}, "nowhere"),
    "control unknown": ({"control": "oppro"}, '"opro"'),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_wrong_keyword_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    model = Counting(capsys)
    words: dict[str, Any] = {"data": ROWS, "reward": "exact_match", "lm": model, "method": "random_search"}
    wrong, says = KEYWORDS[name]
    with pytest.raises(UsageError) as caught:
        whet.optimize("Answer.\n{{input}}", **{**words, **wrong})
    assert says in str(caught.value)
    assert model.calls == 0 and [path.name for path in tmp_path.iterdir()] == ["file"]


class _Endpoint(BaseHTTPRequestHandler):
    status, body = 200, b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *words: Any) -> None:
        return None


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


PAGE = b"\n<!DOCTYPE html><html><body>Welcome</body></html>"
REFUSALS = {
    "a web page": (200, PAGE, "", ("web page", "/v1")),
    "no page there": (404, PAGE, "", ("web page", "/v1")),
    "a page for readers only": (405, PAGE, "", ("web page", "/v1")),
    "no key": (401, b"{}", "", ("set OPENAI_API_KEY",)),
    "a wrong key": (401, b"{}", "sk-x", ("check the key in OPENAI_API_KEY",)),
    "no such model": (404, b"{}", "", ("model's name", "base URL")),
    "no credit": (402, b"{}", "sk-x", ("credit",)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_endpoint_that_is_none_ends_the_run_at_once(
    name: str,
    endpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, body, key, says = REFUSALS[name]
    monkeypatch.setattr(_Endpoint, "status", status)
    monkeypatch.setattr(_Endpoint, "body", body)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.chdir(tmp_path)
    write(tmp_path, Case(()))
    command = f"optimize task --method random_search --lm openai/m --base-url {endpoint} --max-calls 60"
    assert run(command, monkeypatch) == 3
    message = capsys.readouterr().err
    assert "Traceback" not in message and not [piece for piece in says if piece not in message], message


def test_data_programs_import_their_neighbours_each_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(
            tmp_path / name,
            Case(
                (),
                files={
                    "task/task.yaml": "name: t\nprompt: prompt.md\ndata: data.py\nreward: exact_match\n",
                    "task/neighbour.py": f"NAME = '{name}'\n",
                    "task/data.py": "def rows():\n    from neighbour import NAME\n"
                    "    return [{'input': f'{NAME} {n}', 'target': '4'} for n in range(12)]\n",
                },
            ),
        )
        task = whet.Task.load(tmp_path / name / "task")
        assert all(example.text.startswith(name) for example in task.train if example.text is not None)
        assert "neighbour" not in sys.modules and not list((tmp_path / name).rglob("__pycache__"))
