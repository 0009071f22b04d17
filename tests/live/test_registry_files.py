"""Prompts as files and back, and versions that come from a run or a learned file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from benchmarks.latent_rules.build import build
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.live.tasks import LM, write_reviews

from whet import api
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.prompt.events import Add
from whet.prompt.ledger import first_event
from whet.run import Budget
from whet.testing.simulated_task import SOURCE
from whet.types import Message
from whet_live.database import Database, open_database
from whet_live.registry import Registry
from whet_live.registry.files import from_run, read_prompt_files, write_prompt
from whet_live.registry.values import Version

TEXT = "Answer {{question}}.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n"
CHAT = Prompt.from_messages(
    (Message("system", "Be {{tone}}.\r\n"), Message("user", "{{q}}"), Message("assistant", "Ok"))
)


@pytest.fixture
def registry(database: Database) -> Registry:
    """Two prompts, one of them with several messages."""
    return filled(Registry(database))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as files."""
    folder = tmp_path_factory.mktemp("exported")
    database = open_database(f"sqlite:///{folder / 'whet.db'}")
    filled(Registry(database)).export(folder / "out")
    database.close()
    return folder / "out"


def filled(found: Registry) -> Registry:
    found.create("shop/greeting", Prompt.parse(TEXT), author="ann", message="first\nline", config={"t": 0.5})
    longer = TEXT.replace("- Be polite.\n", "- Be polite.\n- Be brief.\n")
    events = (
        first_event(Prompt.parse(TEXT)),
        Add(id="i2", text="Be brief.", author="learner", evidence=("f1",)),
    )
    found.create(
        "shop/greeting", Prompt.parse(longer), author="bob", label="production", run={"kind": "run"},
        evidence={"n": [1, 2.5, None]}, ledgers={"instructions": events},
    )  # fmt: skip
    found.create("chat", CHAT, author="ann", label="staging")
    return found


def plain(registry: Registry, name: str) -> list[dict[str, Any]]:
    return [version.as_json() for version in registry.versions(name).items]


def other(tmp_path: Path) -> Registry:
    return Registry(open_database(f"sqlite:///{tmp_path / 'other.db'}"))


def test_what_is_exported_is_imported_as_it_was(registry: Registry, tmp_path: Path) -> None:
    assert registry.export(tmp_path / "out") == ["chat", "shop/greeting"]
    files = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("@*"))
    assert files == [
        "chat/@1.1-system.md", "chat/@1.2-user.md", "chat/@1.3-assistant.md", "chat/@1.json", "chat/@labels.json",
        "shop/greeting/@1.json", "shop/greeting/@1.md", "shop/greeting/@2.json", "shop/greeting/@2.md",
        "shop/greeting/@labels.json",
    ]  # fmt: skip
    assert (tmp_path / "out/shop/greeting/@1.md").read_bytes() == TEXT.encode()
    copy = other(tmp_path)
    done = copy.import_folder(tmp_path / "out", actor="root")
    assert [row.as_json() for row in done] == [
        {"name": "chat", "added": 1, "known": 0, "labels": {"staging": 1}, "warnings": (), "protected": ()},
        {
            "name": "shop/greeting",
            "added": 2,
            "known": 0,
            "labels": {"production": 2},
            "warnings": (),
            "protected": (),
        },
    ]
    for name in ("chat", "shop/greeting"):
        assert plain(copy, name) == plain(registry, name)
        assert copy.labels(name) == registry.labels(name)
    again = copy.import_folder(tmp_path / "out", actor="root")
    assert [(row.added, row.known) for row in again] == [(0, 1), (0, 2)]
    assert copy.verify_audit().whole
    copy.database.close()


def test_an_older_copy_is_brought_up_to_date_and_its_labels_only_when_asked(
    registry: Registry, tmp_path: Path
) -> None:
    registry.export(tmp_path / "old", ["chat"])
    copy = other(tmp_path)
    copy.import_folder(tmp_path / "old", actor="root")
    registry.create("chat", Prompt.parse("Two."), author="ann", label="staging")
    registry.export(tmp_path / "old", ["chat"])
    assert copy.import_folder(tmp_path / "old", actor="root")[0].added == 1
    assert copy.labels("chat") == {"latest": 2, "staging": 1}
    copy.import_folder(tmp_path / "old", actor="root", labels=True)
    assert copy.labels("chat") == {"latest": 2, "staging": 2}
    copy.database.close()


def test_an_import_is_all_or_nothing(registry: Registry, tmp_path: Path) -> None:
    registry.export(tmp_path / "out")
    copy = other(tmp_path)
    copy.create("shop/greeting", Prompt.parse("Something else."), author="cem")
    with pytest.raises(UsageError, match="another version 1 here"):
        copy.import_folder(tmp_path / "out", actor="root")
    assert not copy.exists("chat")
    copy.protect("*", "staging", actor="root")
    shutil.rmtree(tmp_path / "out" / "shop")
    with pytest.raises(UsageError, match="somebody else approves"):
        copy.import_folder(tmp_path / "out", actor="root")
    assert not copy.exists("chat")
    copy.database.close()


def spoil_json(path: Path, **change: Any) -> None:
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), **change}))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: (f / "shop/greeting/@1.md").write_text("edited"), "not the one that was exported"),
        (lambda f: (f / "shop/greeting/@1.json").unlink(), "version 1 is missing"),
        (lambda f: (f / "shop/greeting/@2.md").unlink(), "@2.md cannot be read"),
        (lambda f: (f / "shop/greeting/@1.json").write_text("{"), "no JSON file"),
        (lambda f: (f / "shop/greeting/@1.json").write_text("[]"), "must be a JSON object"),
        (lambda f: (f / "shop/greeting/@labels.json").write_text('{"production": 9}'), "not there"),
        (lambda f: (f / "shop/greeting/@labels.json").write_text('{"latest": 1}'), "reserved"),
        (lambda f: spoil_json(f / "shop/greeting/@1.json", author=""), "cannot be who acts"),
        (lambda f: spoil_json(f / "shop/greeting/@1.json", created="never"), "no date"),
        (lambda f: spoil_json(f / "shop/greeting/@1.json", parent=1), "parent of version 1"),
        (lambda f: spoil_json(f / "shop/greeting/@1.json", ledger={"instructions": []}), "do not lead to"),
        (
            lambda f: spoil_json(f / "shop/greeting/@1.json", ledger={"x": [{"kind": "zzz"}]}),
            "no ledger event",
        ),
        (
            lambda f: spoil_json(f / "shop/greeting/@1.json", messages=[{"role": "auto", "file": "../../x"}]),
            "role and file",
        ),
        (
            lambda f: spoil_json(f / "shop/greeting/@1.json", messages=[{"role": "../x", "file": "x"}]),
            "role and file",
        ),
        (lambda f: spoil_json(f / "shop/greeting/@1.json", messages=7), "does not describe a version"),
        (lambda f: (f / "shop").rename(f / "a|b"), "cannot be the name"),
        (lambda f: (f / "shop").rename(f / "store"), "the file was moved"),
        (lambda f: [shutil.rmtree(f / "shop"), shutil.rmtree(f / "chat")], "no exported prompt"),
    ],
)
def test_files_that_were_spoilt_are_refused_by_name(
    exported: Path, tmp_path: Path, spoil: Any, said: str
) -> None:
    shutil.copytree(exported, tmp_path / "out")
    spoil(tmp_path / "out")
    with pytest.raises(UsageError, match=said):
        read_prompt_files(tmp_path / "out")


@pytest.mark.parametrize("role", ["../../up", "a/b", "auto", "", "System", "user\n", "a" * 21])
def test_a_role_never_names_a_file_elsewhere(database_to_read: Database, tmp_path: Path, role: str) -> None:
    prompt = Prompt.from_messages((Message("system", "Be brief."), Message(role, "{{q}}")))
    with pytest.raises(UsageError, match="cannot have the role"):
        Registry(database_to_read).create("p", prompt, author="eve")
    stored = Version("p", 1, prompt, {}, {}, None, "eve", "", 5)
    with pytest.raises(UsageError, match="cannot have the role"):
        write_prompt(tmp_path / "out", [stored], {})
    assert list(tmp_path.rglob("*.md")) == []


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80).filter(
    lambda t: t.strip() and "whet:" not in t.lower()
)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXTS), min_size=1, max_size=3),
    TEXTS,
)
def test_any_text_survives_the_files(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[str, str]], said: str
) -> None:
    folder = tmp_path_factory.mktemp("round")
    prompt = Prompt(tuple(Message(role, content) for role, content in messages))
    version = Version("a/b", 1, prompt, {}, {"said": said}, None, "ann", "m", 5, {"x": said}, {"y": [said]})
    write_prompt(folder, [version], {"latest": 1, "prod": 1})
    (found,) = read_prompt_files(folder)
    read_prompt, ledgers, columns = found.versions[0]
    assert (found.name, read_prompt, ledgers, found.labels) == ("a/b", prompt, {}, {"prod": 1})
    assert (columns["config"], columns["evidence"], columns["created"]) == ({"said": said}, {"y": [said]}, 5)


def test_a_file_that_learned_brings_its_history(database: Database, tmp_path: Path) -> None:
    registry = Registry(database)
    path = tmp_path / "prompt.md"
    path.write_text(TEXT)
    short = "Keep the answer short and to the point."
    api.learn(path, [{"id": "r1", "user": "u", "comment": "Way too chatty.", "instruction": short}])
    made = registry.create_from_file("p", path, author="ann", label="production")
    rule = made.instructions[1][1]
    assert (rule.text, rule.evidence) == ("Keep the answer short and to the point.", ("r1",))
    assert made.run is not None
    assert (made.run["kind"], made.run["steps"], made.run["feedback"]) == ("ledger", 1, 1)
    assert made.run["first"] == rule.created and rule.created.startswith("20")
    path.write_text(path.read_text().replace("- Be polite.\n", ""))
    by_hand = registry.create_from_file("p", path, author="bob")
    assert [(i.id, i.text) for _, i in by_hand.instructions] == [
        ("i2", "Keep the answer short and to the point.")
    ]
    (tmp_path / "plain.md").write_text("Just a text.")
    assert registry.create_from_file("q", tmp_path / "plain.md", author="ann").run == {
        "kind": "file",
        "file": "plain.md",
    }


ASKED = [{"role": "user", "content": "Q: {{q}}"}]


@pytest.mark.parametrize(
    ("value", "config"),
    [
        ({"type": "chat", "prompt": ASKED, "config": {"model": "m", "tools": ["t"]}}, {"model": "m", "tools": ["t"]}),
        ({"type": "text", "prompt": "Q: {{q}}", "config": {"temperature": 0.2}}, {"temperature": 0.2}),
        ({"messages": ASKED, "model": "m", "temperature": 0}, {"model": "m", "temperature": 0}),
        ({"type": "text", "prompt": "Q: {{q}}", "config": {}}, {}),
    ],
)  # fmt: skip
def test_what_stands_beside_the_messages_is_the_config_of_the_version(
    database: Database, tmp_path: Path, value: Any, config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The `config` of Langfuse and the options of a request were left out."""
    (tmp_path / "prompt.json").write_text(json.dumps(value))
    made = Registry(database).create_from_file("p", tmp_path / "prompt.json", author="ann")
    assert made.config == config and [m.content for m in made.prompt.messages] == ["Q: {{q}}"]
    assert "left out" not in caplog.text
    Registry(database).create("p", Prompt.parse("R: {{q}}"), author="ann")
    assert Registry(database).get("p@latest").config == config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run whose best prompt the gate promoted."""
    folder = tmp_path_factory.mktemp("runs")
    api.optimize(
        write_reviews(folder), method="opro", lm=LM, optimizer_lm="scripted/phrases", budget=Budget(calls=1200),
        run=folder / "out",
        settings={"steps": "4"},
    )  # fmt: skip
    return folder / "out"


def test_the_best_prompt_of_a_run_comes_with_run_and_evidence(database: Database, finished: Path) -> None:
    registry = Registry(database)
    registry.create("reviews", Prompt.parse(SOURCE), author="ann", label="production")
    registry.create("reviews", Prompt.parse("Something else. {{input}}"), author="ann")
    made = registry.create_from_run("reviews", finished, author="ann", label="production")
    result = json.loads((finished / "result.json").read_text())
    assert made.prompt.source == result["best"]["prompt"] and made.prompt.id == result["best"]["id"]
    assert (made.version, made.parent, made.labels) == (3, 1, ("latest", "production"))
    assert made.run is not None and made.evidence is not None
    kept = {k: made.run[k] for k in ("kind", "method", "seed", "task", "simulated", "models")}
    assert kept == {
        "kind": "run",
        **{k: result[k] for k in ("method", "seed", "task", "simulated", "models")},
    }
    assert len(made.run["journal"]) == 16 and made.run["finished"].startswith("20")
    assert made.evidence["improvement"] == result["improvement"]
    assert made.evidence["best"]["test"] == result["best"]["test"]
    with pytest.raises(UsageError, match="version 3 of reviews already"):
        registry.create_from_run("reviews", finished, author="ann")


def test_a_prompt_that_the_gate_refused_gets_no_label(
    database: Database, finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "refused"
    shutil.copytree(finished, folder)
    result = json.loads((folder / "result.json").read_text())
    result["improvement"] |= {"promoted": False, "reason": "Not promoted: too few examples."}
    (folder / "result.json").write_text(json.dumps(result))
    registry = Registry(database)
    with pytest.raises(UsageError, match=r"production is not set\. Not promoted: too few"):
        registry.create_from_run("p", folder, author="ann", label="production")
    assert registry.create_from_run("p", folder, author="ann").version == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "stopped"}, "no proven prompt"),
        ({"best": {"prompt": "x", "id": "0" * 12, "test": {}}}, "does not hold the best prompt"),
    ],
)
def test_folders_without_a_proven_prompt_are_refused(
    finished: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | change))
    with pytest.raises(UsageError, match=said):
        from_run(folder)
    with pytest.raises(UsageError, match="cannot be read"):
        from_run(tmp_path)


def test_a_run_that_learned_instructions_brings_their_history(database: Database, tmp_path: Path) -> None:
    task = build(tmp_path / "task", 10, 0, 5)
    result = api.optimize(
        task, method="prompt_learning", lm="simulated/rules-generator?rules=10", optimizer_lm="none", budget=Budget(calls=200),
        run=tmp_path / "out",
    )  # fmt: skip
    made = Registry(database).create_from_run("pages", tmp_path / "out", author="ann")
    assert made.run is not None and made.prompt.id == result["best"]["id"]
    learned = [i for _, i in made.instructions]
    # the simulated reader misnumbers the critiques of one entry in twenty: one numbered past the last names none
    assert sum(bool(i.evidence and i.critiques) for i in learned) >= len(learned) - 1 > 0
    assert {i.created for i in learned} == {made.run["finished"]}
