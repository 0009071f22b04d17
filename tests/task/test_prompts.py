"""Prompt files are kept exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import UsageError
from whet.task import load_prompt
from whet.types import Message

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")).filter(
    lambda t: t.strip("\ufeff").strip()
)


@given(TEXT)
def test_a_text_is_kept_but_for_its_byte_order_mark(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompt.md"
    path.write_bytes(text.encode())
    assert load_prompt(path).source == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    "text",
    [
        "a\r\nb {{input}}\r\n",
        "{x} {{7*7}} {{ a.b }} {% if x %} {{{y}}} $z %s \\n",
        "a\r\n<!-- whet:begin -->\r\nb\r\n<!-- whet:end -->\r\n",
        "日本語 é \U0001f600 \u2028",
    ],
)
def test_braces_marks_and_line_ends_are_ordinary_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(text.encode())
    assert load_prompt(path).source == text


PRINTABLE = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_categories=["Cc"]), min_size=1
)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), PRINTABLE), min_size=1, max_size=4)
)
def test_messages_arrive_as_yaml_gives_them(tmp_path: Path, messages: list[tuple[str, str]]) -> None:
    if not any(text.strip() for _, text in messages):
        messages = [*messages, ("user", "x")]
    path = tmp_path / "prompt.yaml"
    path.write_text(
        yaml.safe_dump([{"role": r, "content": c} for r, c in messages], allow_unicode=True), "utf-8"
    )
    assert load_prompt(path).messages == tuple(Message(r, c) for r, c in messages)


def test_block_text_with_slots_and_a_fence(tmp_path: Path) -> None:
    path = tmp_path / "prompt.yml"
    path.write_text(
        "- role: system\n  content: |\n    <!-- whet:begin -->\n    Be kind: {yes}.\n    <!-- whet:end -->\n"
        '- {role: user, content: "Q: {{q}}"}\n- {role: assistant, content: yes}\n'
    )
    prompt = load_prompt(path)
    assert (prompt.region_text(), prompt.slots, prompt.fenced) == ("Be kind: {yes}.", {"q"}, True)
    assert prompt.messages[2] == Message("assistant", "yes")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("just words", r":1: the prompt must be a list"),
        ("name: user\n", r":1: this is no prompt of several messages; its keys: name"),
        ("[]", r":1: the prompt has no message"),
        ("- {role: user, content: ' '}", r":1: the prompt is empty"),
        ("- {role: user, content: ~}", r":1: `content` must be text; this is nothing"),
        (
            "- {role: user, content: [{type: image_url}]}",
            r":1: this message has a part: an image needs its address",
        ),
        (
            "- {role: user, contents: a}",
            r':1: this message has no `content`\. Did you mean "content" instead of "contents"',
        ),
        ("- user: a", r":1: this message has no `role`"),
    ],
)
def test_a_broken_list_of_messages_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "prompt.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        load_prompt(path)
