"""Prompts in the files of other tools, written and read; sections below headings as regions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.command_line import whet_here

import whet
from whet.errors import UsageError
from whet.prompt import FORMATS, Prompt, write_prompt_as
from whet_client.prompt.fence import front_matter_of
from whet_client.prompt.headings import fence_section, fence_sections, headings_of

CHAT = Prompt.of_chat(
    [
        {"role": "system", "content": "Be {kind}.\n<!-- whet:begin -->\n- Say 1} or {2.\n<!-- whet:end -->"},
        {"role": "user", "content": "Q: {{question}}"},
        {"role": "assistant", "content": "{}"},
        {"role": "user", "content": "Really?"},
    ]
)
SKILL = """---
name: shop
description: How to answer # in the shop
# a comment, and no heading
---

# Shop

Answer customers.

## Tone ##

- Be polite.

```sh
# no heading
```

### Words

Say hello.

## Prices

- With tax.
"""


def contents(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, message.content.strip()) for message in prompt.clean]


@pytest.mark.parametrize("name", FORMATS)
def test_a_chat_is_read_back_from_every_format(name: str) -> None:
    text = write_prompt_as(CHAT, name)
    assert "whet:" not in text
    assert contents(Prompt.parse(text)) == contents(CHAT)


@pytest.mark.parametrize("name", FORMATS)
def test_one_text_has_a_role_only_where_the_format_needs_one(name: str) -> None:
    [(role, text)] = contents(Prompt.parse(write_prompt_as(Prompt.parse('Answer {{q}} as {"a": 1}.'), name)))
    assert text == 'Answer {{q}} as {"a": 1}.'
    assert role == ("user" if name in ("openai", "langchain", "prompty", "dotprompt") else "auto")


_TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="{}<"), min_size=1)


_ROLES = st.sampled_from(["system", "user", "assistant"])


@given(
    st.lists(st.tuples(_ROLES, _TEXTS), min_size=1, max_size=4),
    st.sampled_from(["openai", "langfuse", "langchain", "mlflow"]),
)
def test_any_messages_are_read_back(messages: list[tuple[str, str]], name: str) -> None:
    prompt = Prompt.of_chat([{"role": role, "content": f"{text} {{{{slot}}}}"} for role, text in messages])
    assert Prompt.parse(write_prompt_as(prompt, name)).messages == prompt.messages


_ANY_TEXTS = st.text(st.sampled_from("ab :#\n\t{}[]'\"\\-<é今"), max_size=20)


@pytest.mark.parametrize("name", FORMATS)
@given(st.lists(st.tuples(_ROLES, _ANY_TEXTS, st.booleans()), min_size=1, max_size=3))
def test_what_a_format_takes_comes_back_to_the_character(
    name: str, messages: list[tuple[str, str, bool]]
) -> None:
    """Files of Prompty and dotprompt came back with one line break more, and without the blanks at the end of a message."""
    texts = [(role, f"{text}{{{{slot}}}}{text * more}") for role, text, more in messages]
    if name in ("prompty", "dotprompt"):  # empty lines below front matter belong to it
        texts[0] = (texts[0][0], texts[0][1].lstrip("\n"))
    prompt = Prompt.of_chat([{"role": role, "content": text} for role, text in texts])
    try:
        written = write_prompt_as(prompt, name)
    except UsageError:
        return
    read = Prompt.parse(written)
    assert [(m.role, m.content) for m in read.clean] == [(m.role, m.content) for m in prompt.clean]


def test_langchain_gets_format_strings_and_their_names() -> None:
    value = json.loads(write_prompt_as(CHAT, "langchain"))
    first = value["kwargs"]["messages"][0]["kwargs"]["prompt"]["kwargs"]
    assert first["template"] == "Be {{kind}}.\n- Say 1}} or {{2.\n"
    assert value["kwargs"]["input_variables"] == ["question"]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("{{ticket.body}}", "langchain", "without a dot"),
        ("{{customer text}}", "dotprompt", "underscores"),
        ("{{role}}", "dotprompt", "a word of the format"),
        ("Hello\nsystem:\nx", "prompty", "role with a colon"),
        ("Hello", "langfus", "langfuse"),
        (
            "Close {% if x %}",
            "promptfoo",
            r"promptfoo would take .\{% if x %\}. in the prompt for a template",
        ),
        ("{{q}} {# note #}", "promptfoo", "{# note #}"),
        ("{{7*7}} {{q}}", "promptfoo", "7\\*7"),
        ("Rows: {{{q}}}", "promptfoo", "{{{q}}}"),
        ("{{customer text}}", "promptfoo", "underscores"),
        ("One {{q}}\n---\nTwo", "promptfoo", "would divide the prompt at its line `---`"),
        ("{{a-b}}", "prompty", "underscores"),
        ("{{q}} {% raw %}", "prompty", "{% raw %}"),
        ("{{größe}}", "mlflow", "underscores"),
        ("{{q}} {{#if q}}x{{/if}}", "dotprompt", "{{#if q}}"),
        ("C:\\{{q}}", "dotprompt", "for a template"),
        ("{{q}} {{#if q}}x{{/if}}", "langfuse", "{{#if q}}"),
        ('{"a": {{q}}}', "dotprompt", r"Handlebars cannot read \{\{q\}\}\}. Put a blank"),
        ("{{q}}}}", "dotprompt", "Put a blank"),
        ("{{q}} and #}", "promptfoo", "promptfoo would take .#}"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(text: str, name: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        write_prompt_as(Prompt.parse(text), name)


@pytest.mark.parametrize("name", FORMATS)
def test_braces_that_no_tool_reads_stay_in_every_format(name: str) -> None:
    text = 'Answer {"a": {"b": "{{q}}"}} for 5% {of} C:\\temp, %}' + (
        " or #}." if name != "promptfoo" else "."
    )
    assert contents(Prompt.parse(write_prompt_as(Prompt.parse(text), name)))[0][1] == text


@pytest.mark.parametrize(
    "body",
    [
        "system:\nBe brief.\n\nuser:\n{{question}}\n",
        '{{role "system"}}\nBe brief.\n{{role "user"}}\n{{question}}\n',
        "[system]\nBe brief.\n\n[user]\n{{question}}\n",
    ],
)
def test_front_matter_above_messages_stays_through_an_edit_and_no_model_gets_it(body: str) -> None:
    front = "---\nname: Shop\nmodel: small\n---\n"
    prompt = Prompt.parse(front + body).edit("Be very brief.")
    assert contents(prompt) == [("system", "Be very brief."), ("user", "{{question}}")]
    assert Prompt.parse(prompt.source) == prompt
    for name in ("document", "prompty", "dotprompt"):
        written = write_prompt_as(prompt, name)
        assert front_matter_of(written) == front
        assert contents(Prompt.parse(written)) == contents(prompt)


def test_the_section_below_a_heading_is_a_region() -> None:
    text, name = fence_section(SKILL, "## Tone")
    prompt = Prompt.parse(text)
    assert (name, prompt.regions[0].name) == ("Tone", "Tone")
    assert prompt.region_text().startswith("- Be polite.") and prompt.region_text().endswith("Say hello.")
    edited = prompt.edit("- Be kind.")
    assert write_prompt_as(edited, "document") == SKILL.replace(prompt.region_text(), "- Be kind.")


def test_every_section_is_a_region_of_its_own() -> None:
    prompt = Prompt.parse(fence_sections(SKILL))
    assert [(r.name, prompt.region_text(r.name)[:9]) for r in prompt.regions] == [
        ("Shop", "Answer cu"), ("Tone", "- Be poli"), ("Words", "Say hello"), ("Prices", "- With ta"),
    ]  # fmt: skip
    assert write_prompt_as(prompt, "document") == SKILL


@given(
    st.lists(
        st.sampled_from(["# A", "## B", "##", "text", "", "```", "# A", "日本", "## 値段 €", "~~~~", "-"]),
        max_size=20,
    )
)
def test_fences_around_sections_change_nothing_that_a_model_reads(lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    if not any(text[h.stop : h.stop + 1] for h in headings_of(text)):
        return
    try:
        fenced = fence_sections(text)
    except UsageError as error:
        assert "no heading with text" in str(error)
        return
    prompt = Prompt.parse(fenced)
    assert prompt.text == text
    assert len({region.name for region in prompt.regions}) == len(prompt.regions)


def task(folder: Path, region: str, prompt: str = SKILL) -> Path:
    rows = "".join(
        json.dumps({"input": f"q{n}", "target": "yes" if n % 3 else "no"}) + "\n" for n in range(40)
    )
    (folder / "rows.jsonl").write_text(rows)
    (folder / "SKILL.md").write_text(prompt, "utf-8")
    lines = ["name: shop", "prompt: SKILL.md", "data: rows.jsonl", "reward: exact_match"]
    (folder / "task.yaml").write_text("\n".join([*lines, f"region: {json.dumps(region)}"]) + "\n", "utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("# A\n``` x ``` is code in a line\n## B\nmore\n", ["A", "B"]),
        ("# A\none\u2028# no line of its own\u2028two\x0c# nor here\n## B\nmore\n", ["A", "B"]),
        ("# A\r\n```\r\n# code\r\n```\r\n## B\r\nmore\r\n", ["A", "B"]),
        ("# A\n```` md\n```\n# code\n````\n## B\nmore", ["A", "B"]),
    ],
)
def test_headings_are_lines_of_markdown_outside_of_code(text: str, titles: list[str]) -> None:
    headings = headings_of(text)
    assert [heading.title for heading in headings] == titles
    assert all(text[h.start : h.stop].startswith("#" * h.level) for h in headings)


def test_a_task_names_a_heading_and_its_search_edits_only_this_section(tmp_path: Path) -> None:
    folder = task(tmp_path, "## Prices")

    def answers(messages: Any) -> str:
        return "maybe" if "With tax" in messages[0]["content"] else "yes"

    with pytest.warns(UserWarning, match="front matter"):
        result = whet.optimize(
            folder, lm=answers, optimizer_lm="scripted/phrases", method="opro", run=tmp_path / "run",
            budget=whet.Budget(calls=300), progress=False,
        )  # fmt: skip
    start = Prompt.parse((tmp_path / "SKILL.md").read_text())
    before, after = SKILL.split("- With tax.")
    found = write_prompt_as(result.best.prompt, "document")
    assert result.promoted and found.startswith(before) and found.endswith(after) and found != SKILL
    assert whet.Task.load(folder).prompt.text == start.text
    best = tmp_path / "run" / "best.md"
    (tmp_path / "SKILL.md").write_text(best.read_text())
    assert whet.Task.load(folder).region == "Prices"


def test_headings_are_all_regions(tmp_path: Path) -> None:
    loaded = whet.Task.load(task(tmp_path, "headings"))
    assert [region.name for region in loaded.prompt.regions] == ["Shop", "Tone", "Words", "Prices"]
    assert loaded.region == "round_robin"


@pytest.mark.parametrize(
    ("region", "prompt", "expected"),
    [
        ("## Ton", SKILL, 'task.yaml:5: prompt: there is no heading "## Ton". Did you mean "## Tone"?'),
        ("## Tone", "# A\n\ntext\n## Tone\n\n", "no text below"),
        ("# A", "# A\nx\n# A\ny\n", "2 times"),
        ("# A", "# A\n<!-- whet:begin -->\nx\n<!-- whet:end -->\n", "has fences"),
        ("headings", "no heading", "no heading with text"),
    ],
)
def test_a_heading_that_cannot_be_a_region_is_refused(
    region: str, prompt: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        whet.Task.load(task(tmp_path, region, prompt))
    assert expected in str(caught.value)


def test_show_writes_a_version_in_a_format(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'w.db'}"
    (tmp_path / "p.prompty").write_text("---\nname: Shop\n---\nsystem:\nBe brief.\n\nuser:\n{{q}}\n")
    whet_here(tmp_path, "prompts", "import", "p.prompty", "--name", "shop", "--database", database)
    shown = whet_here(
        tmp_path, "prompts", "show", "shop@latest", "--format", "langfuse", "--database", database
    )
    assert json.loads(shown.stdout)["prompt"][1] == {"role": "user", "content": "{{q}}\n"}
    both = whet_here(
        tmp_path, "prompts", "show", "shop@latest", "--format", "openai", "--json", "--database", database
    )
    assert both.returncode == 2 and "Use only one" in both.stderr
    assert shown.stderr == ""
    (tmp_path / "kind.md").write_text("You are kind.")
    whet_here(tmp_path, "prompts", "import", "kind.md", "--name", "kind", "--database", database)
    kind = whet_here(
        tmp_path, "prompts", "show", "kind@latest", "--format", "promptfoo", "--database", database
    )
    assert kind.stdout == "You are kind." and "no place for the input" in kind.stderr


def test_a_heading_in_a_prompt_of_a_program(tmp_path: Path) -> None:
    folder = task(tmp_path, "## Prices")
    lines = (
        (folder / "task.yaml")
        .read_text()
        .replace("prompt: SKILL.md", "prompts: {skill: SKILL.md, other: other.md}")
    )
    (folder / "other.md").write_text("Be brief.")
    (folder / "task.yaml").write_text(lines + "program: {command: echo yes}\n")
    loaded = whet.Task.load(folder)
    assert (loaded.region, loaded.prompt.region_text("skill")) == ("skill", "- With tax.")
    (folder / "task.yaml").write_text(
        lines.replace("## Prices", "## None") + "program: {command: echo yes}\n"
    )
    with pytest.raises(UsageError, match="in no prompt of the program"):
        whet.Task.load(folder)
