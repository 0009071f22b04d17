"""What a worker on another machine must have in common with this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.engine.test_workers import echo, folder
from whet._util.workers import Work
from whet._util.workers.pool import Processes
from whet._util.workers.surroundings import Surroundings, compare_surroundings, make_inspection
from whet.errors import UsageError
from whet.rewards.program import program_of_file

__all__ = ["folder"]
REWARD = """
import helper_of_test

def reward(example, output):
    import package_of_test, only_here_of_test
    return 1.0
"""


async def inspect(work: Work, places: Sequence[Path]) -> Any:
    """What a worker process finds that imports from those places too."""
    processes = Processes(1, path=[*map(str, places), *sys.path])
    try:
        body = json.dumps(asdict(make_inspection([asdict(work)]))).encode()
        return json.loads(await processes.do(body, 60))
    finally:
        await processes.close()


def write_packages(place: Path, version: str) -> Path:
    """A folder of installed packages with one in it."""
    metadata = place / "site-packages" / f"package_of_test-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package-of-test\nVersion: {version}\n")
    (metadata / "top_level.txt").write_text("package_of_test\n")
    (metadata.parent / "package_of_test.py").touch()
    return metadata.parent


async def test_packages_and_files_that_differ_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, own = tmp_path / "task", tmp_path / "own"
    task.mkdir()
    own.mkdir()
    (task / "reward.py").write_text(REWARD)
    (own / "helper_of_test.py").touch()
    here, there = write_packages(tmp_path / "here", "2.1"), write_packages(tmp_path / "there", "1.9")
    (here / "only_here_of_test.py").touch()
    with monkeypatch.context() as patch:
        for place in (here, own):
            patch.syspath_prepend(place)
        work = program_of_file(task, "reward.py", "reward", 0.0, 1.0).make_work_to_load()
    ours, theirs = [(await inspect(work, [own, place]))["value"] for place in (here, there)]
    assert ours["packages"]["package-of-test"] == "2.1" and not ours["missing"]
    assert compare_surroundings(ours, ours) == []
    assert compare_surroundings(ours, theirs) == [
        "package-of-test 1.9 (here 2.1)",
        "no module only_here_of_test",
    ]
    refused = await inspect(work, [here])
    assert "No module named 'helper_of_test'" in refused["refused"]
    (own / "helper_of_test.py").write_text("# another one")
    assert "is another one on this machine" in (await inspect(work, [own, here]))["refused"]


def test_versions_of_python_and_whet_are_named_and_long_lists_cut() -> None:
    here = Surroundings(python="3.11", whet="1.0", packages=dict.fromkeys("abcdef", "1"), missing=[])
    there = Surroundings(python="3.12", whet="1.1", packages={}, missing=[])
    assert compare_surroundings(here, there) == [
        "Python 3.12 (here 3.11)",
        "whet 1.1 (here 1.0)",
        *[f"no package {name} (here 1)" for name in "abc"],
        "3 more",
    ]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"engine": "process"}, 'Did you mean "processes"'),
        ({"engine": "local", "workers": 2}, "contradict each other"),
        ({"engine": "ray", "workers": 0}, "contradict each other"),
        ({"engine": "spark"}, "one of local, processes, ray"),
    ],
)
def test_engines_that_are_none_are_refused(folder: Path, options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        whet.evaluate(folder, lm=echo, **options)


def test_without_ray_its_engine_names_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    run = folder.parent / "run"
    with pytest.raises(UsageError, match=r"pip install 'whet\[ray\]'"):
        whet.evaluate(folder, lm=echo, engine="ray", run=run, progress=False)
    assert not run.exists()


def test_ray_is_not_imported_where_nobody_asks_for_it() -> None:
    code = "import sys, whet, whet.cli.main, whet.api.functions, whet._util.workers.ray_pool; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_work_that_cannot_be_sent_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    held = object()
    asked = []

    def model(messages: Any) -> str:
        asked.append(messages)
        return "a"

    task = {"data": [{"input": f"w{i}", "target": "a"} for i in range(20)], "lm": model}
    with pytest.raises(UsageError, match="cannot be sent to a worker process"):
        whet.evaluate(
            "Say {{input}}",
            **task,
            reward=lambda example, output: float(held is not None),
            engine="ray",
            run=tmp_path / "run",
            progress=False,
        )
    assert not asked and isinstance(make_inspection([]), Work)
