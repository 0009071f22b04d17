"""The registry: immutable versions, labels, rollback, protections, lists."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.task.test_media import png

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.prompt.events import Add
from whet.prompt.ledger import first_event
from whet.types import Message
from whet_client import media
from whet_client.live_prompts import LivePrompt, from_folder, read_content
from whet_live.database import Database
from whet_live.registry import Address, Registry, parse_address
from whet_live.registry.files import read_prompt_files, write_prompt
from whet_live.registry.names import check_actor, check_label, check_name

TEXT = "Answer {{question}}.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n"
START = Prompt.parse(TEXT)


@pytest.fixture
def registry(database: Database) -> Registry:
    """An empty registry."""
    return Registry(database)


@pytest.fixture(scope="module")
def with_one_version(database_to_read: Database) -> Registry:
    """A registry with version 1 of p, which no test changes."""
    found = Registry(database_to_read)
    found.create("p", START, author="ann")
    return found


def with_rules(*rules: str) -> Prompt:
    """The start prompt with other rules."""
    return START.edit("".join(f"- {rule}\n" for rule in rules))


def test_versions_count_from_one_and_keep_what_they_were_given(registry: Registry) -> None:
    first = registry.create(
        "shop/greeting",
        START,
        author="ann",
        message="first",
        config={"model": "m", "t": 0.5},
        label="production",
    )
    second = registry.create("shop/greeting", with_rules("Be polite.", "Use SI units."), author="bob")
    assert (first.version, first.parent, first.labels) == (1, None, ("latest", "production"))
    assert (second.version, second.parent, second.labels) == (2, 1, ("latest",))
    assert second.config == {"model": "m", "t": 0.5}
    assert registry.get("shop/greeting").prompt == START
    assert registry.get("prompts:/shop/greeting/2") == second
    assert registry.get("shop/greeting@latest") == second
    assert registry.get("shop/greeting:1").message == "first"
    rules = [(i.id, i.text, i.author) for _, i in second.instructions]
    assert rules == [("i1", "Be polite.", "ann"), ("i2", "Use SI units.", "bob")]
    assert [v.version for v in registry.versions("shop/greeting").items] == [2, 1]


def test_pictures_of_a_prompt_are_stored_with_it(registry: Registry, tmp_path: Path) -> None:
    legend = f"[[whet:image:data:image/png;base64,{base64.b64encode(png((1, 2, 3))).decode()}]]"
    prompt = Prompt.parse(f"<!-- whet:begin -->\nBe brief.\n<!-- whet:end -->\n{legend}\n{{{{q}}}}")
    registry.create("seen", prompt, author="ann", label="production")
    registry.create("seen", prompt.edit("Be kind."), author="ann")
    media._parts.clear()  # as in another process
    version = registry.get("seen@production")
    assert version.prompt == prompt and version.prompt.chat[0]["content"][1]["type"] == "image_url"
    assert "base64" not in registry.diff("seen/1", "seen/2").text and registry.verify_audit().whole
    write_prompt(tmp_path, [version], {"production": 1})
    sent = version.as_json()
    for source in ("server", "folder"):
        media._parts.clear()
        content = read_content(sent) if source == "server" else from_folder(tmp_path, "seen", "production")
        assert content is not None and content.prompt == prompt
        [message] = LivePrompt(content, "production", source).format(q="Which?")
        assert [part["type"] for part in message["content"]] == ["text", "image_url", "text"]
    assert read_prompt_files(tmp_path)[0].versions
    lost = Prompt.parse(f"[[whet:image:{'a' * 64}]]\n{{{{q}}}}")
    with pytest.raises(UsageError, match="no content with this hash"):
        registry.create("lost", lost, author="ann")


def test_chat_prompts_keep_their_messages(registry: Registry) -> None:
    chat = Prompt.from_messages((Message("system", "Be {{tone}}."), Message("user", "{{q}}\r\n\x00")))
    registry.create("chat", chat, author="ann")
    assert registry.get("chat/1").prompt.messages == chat.messages


def test_a_version_can_be_made_from_an_older_one_with_its_history(registry: Registry) -> None:
    registry.create("p", START, author="ann", config={"v": 1})
    registry.create("p", with_rules("Be rude."), author="ann", config={"v": 2})
    third = registry.create("p", with_rules("Be polite.", "Be brief."), author="ann", parent=1)
    assert (third.parent, third.config) == (1, {"v": 1})
    assert [i.id for _, i in third.instructions] == ["i1", "i2"]


def test_given_ledgers_must_lead_to_the_text(registry: Registry) -> None:
    events = (first_event(START), Add(id="i2", text="Be brief.", author="learner", sources=3))
    text = "Answer {{question}}.\n<!-- whet:begin -->\n- Be polite.\n- Be brief.\n<!-- whet:end -->\n"
    good = registry.create("p", Prompt.parse(text), author="ann", ledgers={"instructions": events})
    assert good.ledger("instructions")["i2"].sources == 3
    with pytest.raises(UsageError, match="do not lead to its text"):
        registry.create("p", START, author="ann", ledgers={"instructions": events})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "version 1 of p already"),
        ({"parent": 7}, "no version 7"),
        ({"prompt": with_rules("x"), "author": " "}, "cannot be who acts"),
        ({"prompt": with_rules("x"), "author": "a\u202eb"}, "U\\+202E"),
        ({"prompt": with_rules("x"), "message": "m" * 4001}, "4001 characters"),
        ({"prompt": with_rules("x"), "message": "a\x00b"}, "cannot be stored"),
        ({"prompt": with_rules("x"), "config": {"a": {1, 2}}}, "no JSON object"),
        ({"prompt": with_rules("x"), "config": {"a": "b" * 100_001}}, "at most 100,000"),
        ({"prompt": with_rules("x"), "config": {"a": json.loads("[" * 80 + "]" * 80)}}, "64 levels deep"),
        ({"prompt": with_rules("x" * 1_000_001)}, "at most 1,000,000"),
        ({"prompt": Prompt((Message("user", "\ud800"),))}, "surrogate"),
        ({"prompt": Prompt((Message("user", " "),))}, "is empty"),
        ({"prompt": with_rules("x"), "label": "latest"}, "is reserved"),
        ({"prompt": with_rules("x"), "label": "Prod"}, "cannot be a label"),
        ({"name": "new", "parent": 1}, "new is new"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_nothing(
    with_one_version: Registry, change: dict[str, Any], said: str
) -> None:
    registry = with_one_version
    given_: dict[str, Any] = {"name": "p", "prompt": START, "author": "ann"} | change
    with pytest.raises(UsageError, match=said):
        registry.create(**given_)
    assert registry.labels("p") == {"latest": 1}
    assert not registry.exists("new")
    assert len(registry.audit().items) == 1


def test_labels_move_and_roll_back_one_step_at_a_time(registry: Registry) -> None:
    for number in range(4):
        registry.create("p", with_rules(f"Rule {number}."), author="ann")
    for version in (1, 3, 4):
        registry.move_label("p", "production", version, actor="ann", reason=f"to {version}")
    assert registry.labels("p") == {"latest": 4, "production": 4}
    assert registry.rollback("p", "production", actor="bob", reason="broken").new == 3
    assert registry.rollback("p", "production", actor="bob").new == 1
    again = r"history p\. Move it with: whet prompts promote p VERSION --label production"
    with pytest.raises(UsageError, match=rf"stood on no other one before\. .*{again}\."):
        registry.rollback("p", "production", actor="bob")
    registry.protect("p", "production", actor="ann")
    with pytest.raises(UsageError, match=rf"{again} --request\."):
        registry.rollback("p", "production", actor="bob")
    registry.unprotect("p", "production", actor="ann")
    registry.move_label("p", "production", 2, actor="ann")
    assert registry.rollback("p", "production", actor="bob").new == 1
    kinds = [(m.kind, m.old, m.new) for m in registry.moves("p").items]
    assert kinds == [
        ("rollback", 2, 1), ("move", 1, 2), ("rollback", 3, 1), ("rollback", 4, 3), ("move", 3, 4), ("move", 1, 3),
        ("move", None, 1),
    ]  # fmt: skip
    assert [m.label for m in registry.moves("p", "staging").items] == []


def test_a_label_that_stands_there_already_is_left_alone(registry: Registry) -> None:
    registry.create("p", START, author="ann", label="production")
    before = len(registry.audit().items)
    assert registry.move_label("p", "production", 1, actor="bob").number == 0
    assert len(registry.audit().items) == before


def test_labels_are_removed_but_not_rolled_back_over_a_gap(registry: Registry) -> None:
    registry.create("p", START, author="ann", label="staging")
    registry.remove_label("p", "staging", actor="ann", reason="done")
    assert registry.labels("p") == {"latest": 1}
    with pytest.raises(UsageError, match="no label"):
        registry.remove_label("p", "staging", actor="ann")
    with pytest.raises(UsageError, match="could be rolled back"):
        registry.rollback("p", "staging", actor="ann")
    registry.create("p", with_rules("x"), author="ann", label="staging")
    with pytest.raises(UsageError, match="before it was removed"):
        registry.rollback("p", "staging", actor="ann")


@pytest.mark.parametrize("name", ["p", "*"])
def test_a_protected_label_does_not_move_by_itself(registry: Registry, name: str) -> None:
    registry.create("p", START, author="ann", label="production")
    registry.create("p", with_rules("x"), author="ann", label="production")
    registry.protect(name, "production", actor="root")
    registry.protect(name, "production", actor="root")
    assert registry.protections() == [(name, "production")]
    for attempt in (
        lambda: registry.move_label("p", "production", 1, actor="bob"),
        lambda: registry.remove_label("p", "production", actor="bob"),
        lambda: registry.create("p", with_rules("y"), author="bob", label="production"),
    ):
        with pytest.raises(UsageError, match="somebody else approves"):
            attempt()
    assert registry.labels("p") == {"latest": 2, "production": 2}
    assert registry.move_label("p", "staging", 1, actor="bob").new == 1
    assert registry.rollback("p", "production", actor="bob").new == 1
    registry.unprotect(name, "production", actor="root")
    assert registry.move_label("p", "production", 2, actor="bob").new == 2
    with pytest.raises(UsageError, match="is not protected"):
        registry.unprotect(name, "production", actor="root")


def test_unknown_things_are_told_with_near_names(registry: Registry) -> None:
    registry.create("shop/greeting", START, author="ann", label="production")
    with pytest.raises(UsageError, match='Did you mean "shop/greeting"'):
        registry.get("shop/greting")
    with pytest.raises(UsageError, match="no version 9; its newest is 1"):
        registry.get("shop/greeting/9")
    with pytest.raises(UsageError, match=r'no label "productoin".*Did you mean "production"'):
        registry.get("shop/greeting@productoin")
    with pytest.raises(UsageError, match="no version 3"):
        registry.move_label("shop/greeting", "production", 3, actor="ann")
    with pytest.raises(UsageError, match="whet prompts list"):
        registry.versions("zzz")


def test_pages_hold_everything_once_and_in_order(registry: Registry) -> None:
    names = sorted(f"team{k % 3}/p{k:02d}x" for k in range(25))
    for name in names:
        registry.create(name, START, author="ann", label="production" if name < "team1" else "staging")
    found, after = [], None
    while True:
        page = registry.prompts(limit=7, after=after)
        found += [row.name for row in page.items]
        after = page.after
        if after is None:
            break
    assert found == names
    assert [r.name for r in registry.prompts("P03X").items] == ["team0/p03x"]
    assert {r.name[:5] for r in registry.prompts(label="staging", limit=50).items} == {"team1", "team2"}
    assert [r.name for r in registry.prompts(label="latest", limit=50).items] == names
    assert registry.prompts("100%_").items == []
    for bad in (0, 501):
        with pytest.raises(UsageError, match="1 to 500"):
            registry.prompts(limit=bad)


def test_versions_and_moves_come_in_pages(registry: Registry) -> None:
    for number in range(7):
        registry.create("p", with_rules(f"{number}"), author="ann", label="production")
    page = registry.versions("p", limit=3)
    assert [v.version for v in page.items] == [7, 6, 5]
    assert [v.version for v in registry.versions("p", limit=10, before=int(page.after or 0)).items] == [
        4,
        3,
        2,
        1,
    ]
    moved = registry.moves("p", limit=4)
    rest = registry.moves("p", limit=4, before=int(moved.after or 0))
    assert [m.new for m in (*moved.items, *rest.items)] == [7, 6, 5, 4, 3, 2, 1]
    assert rest.after is None


def test_a_diff_shows_the_text_and_the_instructions(registry: Registry) -> None:
    registry.create("p", START, author="ann")
    registry.create("p", with_rules("Be brief."), author="bob")
    found = registry.diff("p/1", "p/2")
    assert "-- Be polite." in found.text.splitlines() and "+- Be brief." in found.text.splitlines()
    assert [(c.before, c.after) for c in found.changes["instructions"]] == [
        ("Be polite.", None),
        (None, "Be brief."),
    ]
    assert registry.diff("p/2", "p@latest").changes == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p", Address("p", label="production")),
        ("prompts:/a/b", Address("a/b", label="production")),
        ("prompts:/a/b@x-1", Address("a/b", label="x-1")),
        ("prompts:/a/b/12", Address("a/b", version=12)),
        ("a:latest", Address("a", label="latest")),
        ("a@7", Address("a", version=7)),
        ("größe/日本 x", Address("größe/日本 x", label="production")),
    ],
)
def test_addresses_are_read_in_every_form(text: str, expected: Address) -> None:
    assert parse_address(text) == expected
    assert parse_address(f"prompts:/{expected}") == expected


NO_ADDRESSES = ["", "/", "a//b", "a|b", "3", "a/b@", "a@B", "a@0", "a/../b", ".", "a\\b", "a@b:c", " a", "a\n", "a\u200bb",
                "e\u0301", "x" * 256, "\u05e9" * 128, "a/" + "\u05e9" * 128,
                "prompts:/", "a/0", "a*", "a?b#c", "a%2fb", "a:1234567890"]  # fmt: skip


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_addresses_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


@given(st.text(max_size=40))
def test_a_name_that_is_accepted_is_read_back_from_its_address(text: str) -> None:
    try:
        name = check_name(text)
    except UsageError:
        return
    assert parse_address(f"{name}@x") == Address(name, label="x")
    assert parse_address(f"prompts:/{name}/3") == Address(name, version=3)
    assert parse_address(f"prompts:/{name}") == Address(name, label="production")


def test_a_diff_shows_what_differs_in_the_config(registry: Registry) -> None:
    """Values of JSON that Python takes for equal, such as 1 and true, are two."""
    registry.create("p", START, author="ann", config={"stream": 1, "model": "a", "top_p": 1})
    registry.create("p", START, author="ann", config={"stream": True, "model": "a", "stop": None})
    found = registry.diff("p/1", "p/2")
    assert found.text == "" and found.as_json()["config"] == [
        {"key": "stream", "before": 1, "after": True}, {"key": "stop", "after": None}, {"key": "top_p", "before": 1},
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no JSON object"):
        registry.create("p", START, author="ann", config={"x": math.nan})


@pytest.mark.parametrize(
    "label", ["1.0", "-1", "_2", "", "latest", "A", "a b", "3", "..", "a" * 37, "ä", "a/b", "a@b"]
)
def test_labels_that_cannot_be_set_are_refused(label: str) -> None:
    with pytest.raises(UsageError):
        check_label(label)


def test_the_longest_names_fit(registry: Registry) -> None:
    name, label, actor = "n" * 255, "l" * 36, "é" * 200
    registry.create(check_name(name), START, author=check_actor(actor), label=check_label(label))
    assert registry.get(f"{name}@{label}").author == actor


def test_values_have_a_form_as_json(registry: Registry) -> None:
    made = registry.create("p", START, author="ann", label="production", run={"kind": "x"}, evidence={"n": 1})
    found = made.as_json()
    assert (found["address"], found["run"], found["evidence"]) == ("prompts:/p/1", {"kind": "x"}, {"n": 1})
    assert found["messages"] == [{"role": "auto", "content": TEXT}]
    assert found["instructions"][0]["text"] == "Be polite."
    assert registry.prompts().items[0].as_json()["labels"] == {"production": 1}
    assert registry.moves("p").items[0].as_json()["new"] == 1
    assert registry.diff("p/1", "p/1").as_json()["text"] == ""
