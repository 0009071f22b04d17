"""Workers on a Ray cluster: the results of one process, and what is killed, missing or open to others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import whet
from tests.crash.test_every_boundary import SETTINGS, endpoint, sweep
from tests.engine.test_workers import Counting, do_all, echo, folder, job, rows_of
from tests.engine.worker_jobs import die_once, hold, kill_parent_once, length, match_for_ever, own_id
from tests.models.test_model_workers import effects
from tests.programs import test_workers as programs
from tests.ray_cluster.conftest import Nodes, head_of, head_with_token, place_of
from whet._util.workers.automatic import make_executor
from whet._util.workers.ray_cluster import ON_LOOPBACK, RayCluster, check_access, demands_token
from whet.api.doctor import OK, DoctorReport
from whet.api.doctor.ray import examine_ray
from whet.errors import UsageError

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
__all__ = ["folder"]


def processes_of_actors() -> list[psutil.Process]:
    """Actors of the clusters of this test, and their children."""
    there = list[psutil.Process]()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "RayActor" in process.name():
                there += [process, *process.children(recursive=True)]
    return there


def lasting_actors() -> list[psutil.Process]:
    """Those that do not end by themselves: Ray ends an actor a moment after it was told to."""
    return psutil.wait_procs(processes_of_actors(), timeout=30)[1]


async def do(*jobs: Any, workers: int = 1) -> list[Any]:
    """Results and errors of jobs on the cluster."""
    return await do_all(make_executor("ray", workers, None, 1, lambda line: None), jobs)


def test_results_are_those_of_one_process_and_runs_change_engines(nodes: Nodes, folder: Path) -> None:
    nodes.add()
    model, run = Counting(), folder.parent / "run"

    def evaluate(engine: str, **options: Any) -> Any:
        options = {"lm": echo, "run": folder.parent / engine, "split": "train", **options}
        return rows_of(whet.evaluate(folder, engine=engine, progress=False, **options))

    there = evaluate("ray")
    assert there == evaluate("local") == evaluate("processes", workers=2)
    assert evaluate("ray", lm=model, run=run) == there
    paid = model.calls
    (run / "result.json").unlink()
    assert evaluate("local", lm=model, run=run) == there
    assert model.calls == paid > 0
    assert not lasting_actors()


def test_programs_on_a_cluster_ask_the_run(nodes: Nodes, tmp_path: Path) -> None:
    task, model = (
        programs.write_task(tmp_path, [*programs.ROWS[:6], "DIES", "TOOL", "BAD"]),
        programs.Counting(),
    )
    (task / "call").touch(), (task / "tool").touch()
    options: dict[str, Any] = {"split": "train", "progress": False}
    here = whet.evaluate(task, lm=programs.model, run=tmp_path / "here", engine="local", **options)
    (task / "call").unlink(), (task / "tool").unlink()
    there = whet.evaluate(task, lm=model, run=tmp_path / "there", engine="ray", **options)
    assert programs.facts(here) == programs.facts(there)
    assert model.calls == 3 * 9, "what a rollout that died had been answered was not asked again"


async def test_what_dies_is_done_again_and_what_is_late_is_ended(nodes: Nodes, tmp_path: Path) -> None:
    def marker(name: str) -> str:
        return str(tmp_path / name)

    child, actor = job(die_once, marker("child")), job(kill_parent_once, marker("actor"))
    late, plain = job(match_for_ever, seconds=0.2), job(length, "abc")
    done = await do(child, actor, plain, late, job(own_id))
    assert done[:3] == ["done", "done", 3] and str(done[3]) == "too late" and done[4] != os.getpid()


async def test_a_node_that_dies_costs_what_it_had_in_hand(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.add()
    jobs = [job(hold, str(tmp_path), 2) for _ in range(2)]
    working = asyncio.create_task(do(*jobs, workers=2))
    while len(list(tmp_path.glob("*.call"))) < 2:
        await asyncio.sleep(0.05)
        assert not working.done(), working.result()
    await asyncio.to_thread(nodes.kill, node)
    (tmp_path / "go").touch()
    assert await working == ["done", "done"]
    assert len(list(tmp_path.glob("*.call"))) == 3


def test_an_actor_that_dies_before_it_has_joined_is_replaced(nodes: Nodes, folder: Path) -> None:
    """The worker that reads the reward first ends its actor."""
    with (folder / "reward.py").open("a") as file:
        file.write(ENDS_ITS_ACTOR)
    here = rows_of(
        whet.evaluate(folder, lm=echo, split="train", engine="local", run=folder / "here", progress=False)
    )
    there = whet.evaluate(folder, lm=echo, split="train", engine="ray", run=folder / "there", progress=False)
    assert rows_of(there) == here and (folder / "died").exists()


ENDS_ITS_ACTOR = """
import pathlib
import psutil

marker, parent = pathlib.Path(__file__).with_name("died"), psutil.Process().parent()
if "RayActor" in parent.name() and not marker.exists():
    marker.touch()
    parent.kill()
"""


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with endpoint(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.mark.parametrize(
    "method",
    [
        "random_search",
        *(pytest.param(one, marks=pytest.mark.long) for one in SETTINGS if one != "random_search"),
    ],
)
def test_a_kill_of_the_driver_changes_nothing(
    nodes: Nodes, tmp_path: Path, served: tuple[str, Path], method: str
) -> None:
    """The reference is a run in one process that nobody killed. `make test-long` kills all methods, where Ray is installed."""
    sweep(tmp_path, served, method, {**SETTINGS[method], "engine": "ray"}, 60)
    assert not lasting_actors()


SCRIPT = """
import sys, whet
from tests.engine.test_workers import echo

class Noting:
    version = "1"
    def __call__(self, messages):
        with open("calls", "a") as calls:
            calls.write("x")
        return echo(messages)

result = whet.evaluate("task", lm=Noting(), run="run", split="train", engine=sys.argv[1], progress=False)
print(result["score"]["mean"])
"""
WAITING = """
import os, time

def reward(example, output):
    while os.path.exists("wait") and os.path.exists("calls"):  # not before a model was asked
        time.sleep(0.01)
    return float(output == example["target"])
"""


def start_script(folder: Path, engine: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, engine]
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.Popen(
        command, cwd=folder, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_ends_takes_its_actors_with_it_and_the_run_goes_on(
    nodes: Nodes, folder: Path, kind: signal.Signals
) -> None:
    (folder / "reward.py").write_text(WAITING)
    (folder.parent / "wait").touch()
    with start_script(folder.parent, "ray") as driver:
        journal = folder.parent / "run" / "journal.sqlite"
        while not (journal.exists() and (folder.parent / "calls").exists()):
            assert driver.poll() is None
            time.sleep(0.1)
        waiting = processes_of_actors()
        assert waiting
        driver.send_signal(kind)
        driver.wait(60)
    _, alive = psutil.wait_procs(waiting, timeout=30)
    assert not alive
    (folder.parent / "wait").unlink()
    paid, recorded = len((folder.parent / "calls").read_text()), len(effects(folder.parent / "run"))
    with start_script(folder.parent, "local") as again:
        said, _ = again.communicate(timeout=300)
    assert again.returncode == 0 and float(said) >= 15 / 16
    assert len((folder.parent / "calls").read_text()) <= 16 + paid - recorded, (
        "what is recorded is not paid again"
    )


def test_a_node_without_a_package_is_found_before_anything_is_paid(nodes: Nodes, folder: Path) -> None:
    nodes.add(env_vars={"NODE_OF_TEST": "bare"})
    with (folder / "reward.py").open("a") as file:
        file.write("\nif os.environ.get('NODE_OF_TEST'):\n    import package_that_is_not_there\n")
    model = Counting()
    with pytest.raises(UsageError) as error:
        whet.evaluate(
            folder, lm=model, split="train", engine="ray", run=folder.parent / "run", progress=False
        )
    assert "of the Ray cluster cannot load the code of this task" in str(error.value)
    assert "package_that_is_not_there" in str(error.value)
    assert model.calls == 0 and not (folder.parent / "run").exists()


def test_a_node_without_whet_is_named_with_what_to_install(
    nodes: Nodes, folder: Path, tmp_path: Path
) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(HIDES)
    nodes.add(env_vars={"PYTHONPATH": str(hiding)})
    with pytest.raises(UsageError, match="No module named 'whet"):
        whet.evaluate(folder, lm=echo, split="train", engine="ray", run=tmp_path / "run", progress=False)


HIDES = """
import sys

class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "whet":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Hides())
"""


def described(address: str, nodes: Sequence[str]) -> RayCluster:
    import ray

    return RayCluster(ray, address, tuple(nodes), 1, False)


def test_a_cluster_in_the_network_must_demand_a_token(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_access(described(nodes.address, ["127.0.0.1", "::1"]))
    with pytest.raises(UsageError, match=r"answers without a token, and its node 192\.0\.2\.7"):
        check_access(described(nodes.address, ["127.0.0.1", "192.0.2.7"]))
    checkup = DoctorReport()
    examine_ray(checkup)
    (finding,) = checkup.symptoms
    assert finding.status == OK and "1 node, 1 processor, all on loopback" in finding.text


def test_the_command_that_whet_names_starts_a_cluster_on_loopback(tmp_path: Path) -> None:
    """As a user starts it, in whose environment nothing says how Ray takes an address."""
    pytest.importorskip("ray", reason="`make test-ray` installs Ray")
    plain = {name: value for name, value in os.environ.items() if "WINDOWS_OR_OSX" not in name}
    with head_of(ON_LOOPBACK, tmp_path, plain) as head:
        assert place_of(head).rpartition(":")[0] == "127.0.0.1"


def test_a_cluster_with_a_token_is_used_from_outside_by_who_has_it(
    nodes: Nodes, tmp_path: Path, folder: Path
) -> None:
    token = "secret-of-this-test" * 2
    with head_with_token(tmp_path, token) as (address, outside):
        assert demands_token(address) and not demands_token(nodes.address)
        check_access(described(address, ["192.0.2.7"]))
        with start_script(folder.parent, f"ray://{outside}", RAY_AUTH_MODE="disabled") as refused:
            _, why = refused.communicate(timeout=300)
        assert refused.returncode and "UsageError" in why and "RAY_AUTH_MODE=token" in why
        assert token not in why and not (folder.parent / "calls").exists()
        holder = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        with start_script(folder.parent, f"ray://{outside}", **holder) as there:
            mean, errors = there.communicate(timeout=300)
        assert not there.returncode and token not in errors, errors
        shutil.rmtree(folder.parent / "run")
        with start_script(folder.parent, "local") as here:
            assert here.communicate(timeout=300)[0] == mean


def test_a_cluster_that_is_not_there_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    pytest.importorskip("ray", reason="`make test-ray` installs Ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(UsageError, match=r"nobody answers at 127\.0\.0\.1:9"):
        whet.evaluate(folder, lm=echo, engine="ray", run=folder.parent / "run", progress=False)
