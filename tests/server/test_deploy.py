"""The image, the compose file, the collector and the systemd unit, as far as they can be checked without Docker: what they copy,
start, ask and name is there, and the health check tells a server that is ready from one that is not."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.distributions import ROOT
from tests.server.conftest import Running, Start
from whet.cli.main import cli

DEPLOY = ROOT / "deploy"
PORT = "8321"


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of the Dockerfile, by stage."""
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"))
    lines = [line.split(maxsplit=1) for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]
    found: list[list[tuple[str, str]]] = []
    for word, rest in lines:
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def instructions(word: str, stage: int = -1) -> list[str]:
    return [rest for name, rest in stages()[stage] if name == word]


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8")))


def filled(text: str) -> str:
    """A text of the compose file with the defaults of its variables."""
    return re.sub(r"\$\{\w+(?::-([^}]*)|:\?[^}]*)?\}", lambda match: match[1] or "", text)


def accept(words: list[str]) -> click.Context:
    """The context of a command of whet; click raises for an option that it does not know."""
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    return command.make_context(words[0], words[1:], resilient_parsing=False)


def health_check() -> list[str]:
    """The command that Docker runs to see whether the server is ready."""
    (check,) = instructions("HEALTHCHECK")
    return list(yaml.safe_load(check.partition("CMD ")[2]))


def test_what_the_image_is_built_of_is_there_and_in_the_context() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert ignored[1] == "*", "everything that is not named stays out of the context"
    sources = {
        source for words in instructions("COPY", 0) for source in words.split()[:-1] if "--" not in source
    }
    assert sources and sources == kept
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_runs_as_a_user_without_rights_and_without_what_built_it() -> None:
    build, final = stages()
    user = instructions("USER")
    assert user == ["10001:10001"]
    after = [word for word, _ in final[[word for word, _ in final].index("USER") :]]
    assert "RUN" not in after and "COPY" not in after, "nothing is made as root behind that line"
    assert [rest for word, rest in final if word == "COPY"] == ["--from=build /opt/whet /opt/whet"]
    assert not any("pip" in rest for word, rest in final if word == "RUN")
    assert any("--require-hashes" in rest for word, rest in build if word == "RUN")


def test_the_locked_libraries_are_all_that_the_server_needs() -> None:
    locked = {
        name.lower().replace("_", "-")
        for name in re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements" / "server.txt").read_text("utf-8"))
    }
    wanted: set[str] = set()
    for folder, extras in (
        (".", ()),
        ("packages/whet-client", ()),
        ("packages/whet-live", ("server", "postgres", "otlp")),
    ):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))
        parts = [
            *project["project"]["dependencies"],
            *project["build-system"]["requires"],
            *(one for extra in extras for one in project["project"]["optional-dependencies"][extra]),
        ]
        wanted |= {re.split(r"[\[<>=~; ]", part)[0].lower().replace("_", "-") for part in parts}
    assert {name for name in wanted - locked if not name.startswith("whet")} == set()
    assert "torch" not in locked


def test_the_commands_of_image_compose_file_and_unit_are_commands_of_whet() -> None:
    (entry,), (command,) = instructions("ENTRYPOINT"), instructions("CMD")
    assert yaml.safe_load(entry) == ["whet"]
    of_image = accept(yaml.safe_load(command)).params
    of_compose = accept([filled(word) for word in compose()["services"]["server"]["command"]]).params
    unit = (DEPLOY / "whet.service").read_text("utf-8")
    (started,) = re.findall(r"(?m)^ExecStart=(.+)$", unit)
    of_unit = accept(shlex.split(started)[1:]).params
    assert {p["port"] for p in (of_image, of_compose, of_unit)} == {int(PORT)}
    assert instructions("EXPOSE") == [PORT]
    assert of_image["host"] == of_compose["host"] == "0.0.0.0" and of_unit["host"] == "127.0.0.1"
    assert of_image["url"] == of_compose["url"] == f"http://localhost:{PORT}"


def test_services_wait_for_each_other_and_hold_no_secret() -> None:
    services = compose()["services"]
    database, server, collector = services["database"], services["server"], services["collector"]
    assert server["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert collector["depends_on"] == {"server": {"condition": "service_healthy"}}
    user, name = database["environment"]["POSTGRES_USER"], database["environment"]["POSTGRES_DB"]
    assert server["environment"]["WHET_DATABASE_URL"] == f"postgresql://{user}@database/{name}"
    assert server["cap_drop"] == ["ALL"] and server["read_only"] and server["init"]
    assert all(
        re.fullmatch(r"127\.0\.0\.1(:\d+)+", filled(port))
        for s in services.values()
        for port in s.get("ports", ())
    )
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    known = set(re.findall(r"(?m)^(\w+)=", (DEPLOY / "example.env").read_text("utf-8")))
    asked = set(re.findall(r"\$\{(\w+)", text)) - {
        "POSTGRES_VERSION",
        "COLLECTOR_VERSION",
        "COLLECTOR_LISTEN",
    }
    assert asked == known
    secrets = [
        str(value)
        for service in services.values()
        for key, value in service.get("environment", {}).items()
        if key.endswith(("PASSWORD", "TOKEN", "KEY"))
    ]
    assert secrets and all(value.startswith("${") for value in secrets)


def test_the_collector_sends_what_it_takes_to_routes_of_the_server(server: Running) -> None:
    config = yaml.safe_load((DEPLOY / "collector.yaml").read_text("utf-8"))
    exporter = config["exporters"]["otlphttp"]
    host, path = re.fullmatch(r"http://(\w+):8321(/.+)", exporter["endpoint"]).groups()  # type: ignore[union-attr]
    command = compose()["services"]["server"]["command"]
    assert host in compose()["services"] and command[command.index("--allow-host") + 1] == host
    pipelines = config["service"]["pipelines"]
    assert set(pipelines) == {"traces", "logs"}
    for kind, pipeline in pipelines.items():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= set(config[part])
        empty = {"traces": b'{"resourceSpans": []}', "logs": b'{"resourceLogs": []}'}[kind]
        answer = server.client("app").ask("POST", f"{path}/v1/{kind}", empty, Content_Type="application/json")
        assert answer.status == 200, answer.body


def test_the_health_check_tells_a_server_that_is_ready_from_one_that_is_not(start: Start) -> None:
    python, option, program = health_check()
    assert (python, option) == ("python", "-c")

    def check(port: int) -> int:
        return subprocess.run(
            [sys.executable, "-c", program.replace(PORT, str(port))], capture_output=True
        ).returncode

    with start() as server:
        port = server.port
        assert check(port) == 0
        server.state.stopping.set()
        assert check(port) != 0, "it is about to stop"
    assert check(port) != 0, "nobody listens"


@pytest.mark.parametrize(
    "name", ["Dockerfile", "compose.yaml", "collector.yaml", "example.env", "whet.service"]
)
def test_the_page_names_each_file(name: str) -> None:
    assert f"deploy/{name}" in (ROOT / "docs" / "server.md").read_text("utf-8")
    assert isinstance(DEPLOY / name, Path) and (DEPLOY / name).is_file()
