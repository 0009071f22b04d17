"""What is installed is what was locked: every version pinned, every file hashed, nothing that runs by being installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.distributions import PACKAGES, ROOT, SOURCES

from whet import __version__

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[\w,]+\])?==(?P<version>[\w.+!-]+)")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}(?![0-9a-f])")
GATEWAYS = {"litellm", "langchain", "langchain-core", "openai", "anthropic", "aisuite", "portkey-ai"}


def entries(lock: str) -> list[str]:
    """The requirements of a lock file, each on one line."""
    joined = lock.replace("\\\n", " ").splitlines()
    return [line.strip() for line in joined if line.strip() and not line.lstrip().startswith("#")]


def named(text: str) -> str:
    """A package's name as an index compares it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[=<>~! ;]", text.strip())[0]).lower()


def unlocked(lock: str) -> list[str]:
    """Requirements without an exact version or without a hash."""
    return [line for line in entries(lock) if not (PIN.match(line) and HASH.search(line))]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_and_hashed(lock: Path) -> None:
    assert entries(lock.read_text("utf-8")) and unlocked(lock.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "line", ["aiohttp>=3", "aiohttp==3.1", "aiohttp==3.1 --hash=md5:00", "--extra-index-url https://x.example", "x @ git+https://x.example"]
)  # fmt: skip
def test_what_is_not_locked_is_found(line: str) -> None:
    assert unlocked(f"# a comment\n{line}\n") == [line]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_has_what_was_asked_for(lock: Path) -> None:
    asked = entries(lock.with_suffix(".in").read_text("utf-8"))
    wanted = {named(line) for line in asked if not line.startswith("-c ")}
    assert wanted <= {named(line) for line in entries(lock.read_text("utf-8"))}


def test_every_install_of_the_makefile_is_by_hash_or_by_exact_version() -> None:
    installs = re.findall(r"\$\(PIP\) (.+)", (ROOT / "Makefile").read_text("utf-8"))
    (ours,) = re.findall(r"(?m)^OURS := (.+)", (ROOT / "Makefile").read_text("utf-8"))
    assert installs and re.fullmatch(r"--no-deps --no-build-isolation( -e [\w./-]+)+", ours)
    for line in installs:
        exact = PIN.search(line) and "-r " not in line
        assert "--require-hashes" in line or exact or line == "$(OURS)", line
        assert "index-url" not in line and ("find-links" not in line or "--no-index" in line)


def test_torch_is_installed_by_its_hash_before_anything_may_ask_for_it() -> None:
    lines = [line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if "$(PIP" in line]
    torch = [number for number, line in enumerate(lines) if "torch" in line]
    download, install, rest = (lines[number] for number in torch)
    assert "=download)) --no-deps" in download and "--no-index" in install
    assert "--require-hashes -r requirements/torch.txt" in install
    pin = PIN.findall((ROOT / "requirements" / "torch.in").read_text("utf-8"))
    assert PIN.findall(download) == PIN.findall(rest) == pin
    needed = [number for number, line in enumerate(lines) if "-nodeps.txt" in line or "train.txt" in line]
    assert max(torch) < min(needed)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_is_the_tree(package: str, tmp_path: Path) -> None:
    folder = PACKAGES[package]
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT if package == "whet" else folder.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as built:
        inside = {name: built.read(name) for name in built.namelist() if ".dist-info/" not in name}
    files = [path.relative_to(folder.parent) for path in folder.rglob("*") if path.is_file()]
    kept = [one for one in files if not any(p.startswith(".") or p == "__pycache__" for p in one.parts)]
    assert inside == {one.as_posix(): (folder.parent / one).read_bytes() for one in kept}


def test_nothing_runs_by_being_installed_and_no_gateway_stands_in_between_unless_a_user_asks_for_it() -> None:
    found = [path for path in SOURCES.values() if path.suffix == ".pth" or path.name == "setup.py"]
    assert found == [] and not list(ROOT.glob("setup.py")) + list(ROOT.glob("packages/*/setup.py"))
    for path in (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(path.read_text("utf-8"))
        assert project["build-system"]["build-backend"] == "hatchling.build"
        hooks = project["tool"]["hatch"].get("metadata", {}).get("hooks", {})
        assert hooks == ({"custom": {}} if path.parent == ROOT else {}), (
            "only hatch_build.py, which follows below"
        )
        assert "hooks" not in str(project["tool"]["hatch"]["build"])
        extras = dict(project["project"].get("optional-dependencies", {}))
        assert {named(one) for one in extras.pop("litellm", [])} <= {"litellm"}, (
            "the gateway that a user asks for"
        )
        groups = (project["project"]["dependencies"], *extras.values())
        assert not {named(one) for group in groups for one in group} & GATEWAYS


@pytest.mark.parametrize("release", [False, True])
def test_a_checkout_takes_its_other_distributions_from_itself_and_a_release_asks_for_them_by_version(
    release: bool, tmp_path: Path
) -> None:
    env = {**os.environ, **({"WHET_RELEASE": "1"} if release else {})}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as built:
        (metadata,) = (name for name in built.namelist() if name.endswith(".dist-info/METADATA"))
        lines = built.read(metadata).decode().splitlines()
    ours = {line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: whet-")}
    folders = {name: (ROOT / "packages" / name).as_uri() for name in ("whet-client", "whet-live")}
    if release:
        assert "whet-client~=0.1.0" in ours and not any("@" in line for line in ours)
    else:
        assert f"whet-client @ {folders['whet-client']}" in ours
        assert f"whet-live[server] @ {folders['whet-live']} ; extra == 'server'" in ours
        assert all("@" in line for line in ours), (
            "nothing of ours is looked for in an index, where others may have the name"
        )


def test_the_distributions_ask_for_the_version_that_they_have() -> None:
    for path in (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")):
        text = path.read_text("utf-8")
        assert set(re.findall(r"whet[a-z\[\]-]*~=([\d.]+)", text)) <= {__version__}


def test_the_list_of_versions_names_everything_that_is_locked() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "versions"], capture_output=True, text=True, check=True
    )
    shown = {tuple(line.split()[:2]) for line in done.stdout.splitlines()}
    pins = [PIN.match(entry) for lock in LOCKS for entry in entries(lock.read_text("utf-8"))]
    assert (
        shown == {(pin["name"].lower(), pin["version"]) for pin in pins if pin is not None}
        and len(shown) > 50
    )
