"""Prompts of other tools with images: a field, an input or a slot that is an image becomes a slot, and an image stays one."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.prompt.test_chat import chat_template, template

from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client.media import content_of

DATA = b"\x89PNG\r\n\x1a\n two"
PNG = base64.b64encode(DATA).decode()
URL = f"data:image/png;base64,{PNG}"


def langchain_part(kind: str, held: object, form: str = "f-string") -> dict[str, Any]:
    """A template of a part as `langchain_core.load.dumpd` writes it."""
    names = {
        "ImagePromptTemplate": ["langchain", "prompts", "image"],
        "DictPromptTemplate": ["langchain_core", "prompts", "dict"],
    }
    kwargs = {"input_variables": [], "template": held, "template_format": form}
    return {"lc": 1, "type": "constructor", "id": [*names[kind], kind], "kwargs": kwargs, "name": kind}


def langchain(*parts: dict[str, Any]) -> str:
    message = template("HumanMessagePromptTemplate", "")
    text = template("HumanMessagePromptTemplate", "What is in {q}?")["kwargs"]["prompt"]
    message["kwargs"]["prompt"] = [text, *parts]
    return chat_template(template("SystemMessagePromptTemplate", "Be brief."), message)


def prompty(body: str, front: str = "model:\n  api: chat\n") -> str:
    return f"---\nname: p\n{front}---\n{body}"


SLOTS = {
    "LangChain, an address": langchain(langchain_part("ImagePromptTemplate", {"url": "{photo}", "detail": "auto"})),
    "LangChain, base64": langchain(langchain_part("ImagePromptTemplate", {"url": "data:image/jpeg;base64,{photo}"})),
    "LangChain, mustache": langchain(langchain_part("ImagePromptTemplate", {"url": "{{photo}}"}, "mustache")),
    "LangChain, a block": langchain(langchain_part("DictPromptTemplate", {
        "type": "image", "base64": "{photo}", "mime_type": "{kind}"})),
    "LangChain, an older block": langchain(langchain_part("DictPromptTemplate", {
        "type": "image", "source_type": "base64", "mime_type": "image/png", "data": "{photo}"})),
    "LangChain, Anthropic's block": langchain(langchain_part("DictPromptTemplate", {
        "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "{photo}"}})),
    "LangChain, pairs": json.dumps([["system", "Be brief."], ["human", [
        {"type": "text", "text": "What is in {q}?"}, {"type": "image_url", "image_url": {"url": "{photo}"}}]]]),
    "OpenAI": json.dumps({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [
        {"type": "text", "text": "What is in {{q}}?"}, {"type": "image_url", "image_url": {"url": "{{ photo }}"}}]}]}),
    "Responses": json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [
        {"type": "input_text", "text": "What is in {{q}}?"},
        {"type": "input_image", "image_url": "data:image/png;base64,{{photo}}"}]}]),
    "Anthropic": json.dumps({"system": "Be brief.", "messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is in {{q}}?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "{{photo}}"}}]}]}),
    "whet": json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [
        "What is in {{q}}?", {"image": "{{photo}}"}]}]),
    "Prompty": prompty("system:\nBe brief.\n\nuser:\nWhat is in {{q}}?\n![the photo]({{ photo }} \"one\")"),
    "Prompty, base64": prompty("System:\nBe brief.\n\n# user:\nWhat is in {{q}}?\n![](data:image/png;base64,{{photo}})"),
    "Prompty 2": prompty(
        "system:\nBe brief.\n\nuser[name=\"Ann\"]:\nWhat is in {{q}}?\n{{photo}}", "inputs:\n  - name: photo\n    kind: image\n"),
    "dotprompt": prompty('{{role "system"}}\nBe brief.\n{{role "user"}}\nWhat is in {{q}}?\n{{media url=photo}}'),
    "dotprompt without front matter":
        "{{ role 'system' }}\nBe brief.\n{{role 'user'}}\nWhat is in {{q}}?\n{{ media url=photo contentType=kind }}",
}  # fmt: skip


@pytest.mark.parametrize("form", SLOTS)
def test_an_image_that_an_input_fills_becomes_a_slot(form: str, caplog: pytest.LogCaptureFixture) -> None:
    prompt = Prompt.parse(SLOTS[form])
    assert ("stands for an image" in caplog.text) == (form != "Prompty 2")
    assert prompt.slots == {"q", "photo"} and [m.role for m in prompt.messages] == ["system", "user"]
    assert prompt.messages[1].content.replace("{{ photo }}", "{{photo}}") == "What is in {{q}}?\n{{photo}}"
    assert prompt.messages[0].content.endswith("Be brief.")


IMAGES = {
    "LangChain": langchain(langchain_part("ImagePromptTemplate", {"url": URL})),
    "LangChain, a block": langchain(langchain_part("DictPromptTemplate", {
        "type": "image", "base64": PNG, "mime_type": "image/png"})),
    "LangChain, pairs": json.dumps([["system", "Be brief."], ["human", [
        "What is in {q}?", {"type": "image_url", "image_url": {"url": URL}}]]]),
    "Prompty": prompty(f"system:\nBe brief.\n\nuser:\nWhat is in {{{{q}}}}?\n![the photo]({URL})"),
    "Prompty, a file": prompty("system:\nBe brief.\n\nuser:\nWhat is in {{q}}?\n![the photo](photos/1.png)"),
    "dotprompt": prompty('{{role "system"}}Be brief.\n{{role "user"}}What is in {{q}}?\n'
        f'{{{{media url="{URL}" contentType="image/png"}}}}'),
}  # fmt: skip


@pytest.mark.parametrize("form", IMAGES)
def test_an_image_of_a_prompt_of_another_tool_stays_one(form: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.png").write_bytes(DATA)
    prompt = Prompt.parse(IMAGES[form], folder=tmp_path)
    assert len(prompt.marks) == 1 and prompt.slots == {"q"}
    text, image = content_of(prompt.messages[1].content)
    assert text == {"type": "text", "text": "What is in {{q}}?"}
    assert image == {"type": "image_url", "image_url": {"url": URL}}


def test_what_stands_before_the_first_role_of_dotprompt_is_the_users() -> None:
    prompt = Prompt.parse('Look: {{media url=photo}}\n{{role "model"}}\nA tree.\n{{role "user"}}\n{{q}}')
    assert [(m.role, m.content) for m in prompt.messages] == [
        ("user", "Look: {{photo}}"), ("assistant", "A tree."), ("user", "{{q}}"),
    ]  # fmt: skip
    (only,) = Prompt.parse("---\nmodel: m\n---\nLook: {{media url=photo}}").messages
    assert only.role == "auto" and only.content.endswith("---\nLook: {{photo}}")


def test_newer_prompty_has_no_images_in_its_text() -> None:
    body = "user:\n![x](a.png) {{q}}"
    assert Prompt.parse(prompty(body, "kind: prompt\n")).messages[0].content.endswith("![x](a.png) {{q}}")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (langchain(langchain_part("ImagePromptTemplate", {"url": "https://x.example/{id}.png"})), "{{id}}.png"),
        (langchain(langchain_part("ImagePromptTemplate", {"url": "{photo}", "detail": "low"})), "`detail`"),
        (langchain(langchain_part("ImagePromptTemplate", {"url": "https://x.example/a.png", "detail": "{d}"})), "{{d}}"),
        (langchain(langchain_part("DictPromptTemplate", {"type": "video", "url": "{v}"})), "'video'"),
        (prompty("user:\n![x](https://x.example/{{id}}.png)"), "{{id}}.png"),
        ("[user]\n[[whet:image:https://x.example/{{id}}.png]]", "has a slot in it"),
        (prompty("user:\n![x](../secret.png)"), "secret.png"),
        ('{{role "user"}}{{#each photos}}{{media url=this}}{{/each}}', "{{media url=this}}"),
        ('{{role "user"}}{{media url=photo width=3}}', "width=3"),
        ('{{role "user"}}{{media url="gs://bucket/a.png"}}', "gs://bucket"),
        ('{{role "user"}}{{media url="https://x.example/a.mp3" contentType="audio/mpeg"}}', "a.mp3"),
    ],
)  # fmt: skip
def test_an_image_that_no_slot_can_hold_is_refused_with_its_name(
    text: str, named: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        Prompt.parse(text, folder=tmp_path)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "text", ["![" * 40_000, "![a](" * 20_000, "{{media url=" * 20_000, "{{media " + "a" * 90_000 + "}}"]
)
def test_texts_of_many_beginnings_are_read_in_time(text: str) -> None:
    """Each of these takes minutes where a pattern goes back over what it has read."""
    for front in ("user:\n", '{{role "user"}}\n'):
        try:
            assert Prompt.parse(prompty(front + text)).messages
        except UsageError as error:
            assert "media" in str(error)
