"""Prompts of several messages: every form in which people have them is read as messages or refused, and comes back the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from whet.errors import EditRejected, UsageError
from whet.prompt import Prompt
from whet.types import Example, Message
from whet_client.prompt.formats import write_prompt_as

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40).filter(
        lambda text: "whet:" not in text
    ),
    st.sampled_from(
        ["\n\n[user]\nx", "[system]\n", "\r\n\r\n[assistant]\r\n", "{{a b}}", "", "\n", '[{"role": "user"}]']
    ),
)
MESSAGES = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXT), min_size=1, max_size=4)


@given(MESSAGES)
@example([("system", "a\n\n[user]\nb"), ("user", "{{question}}")])
@example([("user", "")])
def test_every_form_that_whet_writes_is_read_back(pairs: list[tuple[str, str]]) -> None:
    pairs = pairs if any(text.strip() for _, text in pairs) else [*pairs, ("user", "x")]
    prompt = Prompt.from_messages(tuple(Message(role, text) for role, text in pairs))
    assert Prompt.parse(prompt.source) == prompt
    assert Prompt.parse(prompt.plain) == prompt, "nothing is fenced"
    assert Prompt.parse(prompt.text) == prompt
    assert Prompt.of_chat(json.loads(prompt.plain)) == prompt


def test_the_fence_of_a_chat_prompt_comes_back_with_its_source() -> None:
    fenced = "Be kind.\n<!-- whet:begin -->\nRoute it.\n<!-- whet:end -->"
    prompt = Prompt.of_chat([("system", fenced), {"role": "user", "content": "{{Customer text}}"}])
    again = Prompt.parse(prompt.source)
    assert again == prompt and again.region_text() == "Route it."
    assert [m.role for m in Prompt.parse(prompt.plain).messages] == ["system", "user"]


SYSTEM_USER = (Message("system", 'Say {"a": 1}'), Message("user", "{{x}}"))


def template(kind: str, text: str, form: str = "f-string") -> dict[str, Any]:
    """A message template as `langchain_core.load.dumpd` writes it."""
    inner = {"input_variables": [], "template": text, "template_format": form}
    prompt = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "prompts", "prompt", "PromptTemplate"],
        "kwargs": inner,
    }
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "prompts", "chat", kind],
        "kwargs": {"prompt": prompt},
    }


def chat_template(*messages: dict[str, Any]) -> str:
    kwargs = {"input_variables": [], "messages": list(messages)}
    return json.dumps(
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "prompts", "chat", "ChatPromptTemplate"],
            "kwargs": kwargs,
        }
    )


FORMS = {
    "OpenAI, a request": json.dumps(
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": 'Say {"a": 1}'},
                {"role": "user", "content": [{"type": "text", "text": "{{x}}"}]},
            ],
        }
    ),
    "OpenAI, a list": json.dumps(
        [{"role": "system", "content": 'Say {"a": 1}'}, {"role": "user", "content": "{{x}}"}]
    ),
    "Anthropic": json.dumps({"system": 'Say {"a": 1}', "messages": [{"role": "user", "content": "{{x}}"}]}),
    "Langfuse": json.dumps(
        {
            "type": "chat",
            "name": "n",
            "prompt": [
                {"type": "chatmessage", "role": "system", "content": 'Say {"a": 1}'},
                {"role": "user", "content": "{{x}}"},
            ],
        }
    ),
    "LangChain, pairs": json.dumps([["system", 'Say {{"a": 1}}'], ["human", "{x}"]]),
    "LangChain, f-strings": chat_template(
        template("SystemMessagePromptTemplate", 'Say {{"a": 1}}'),
        template("HumanMessagePromptTemplate", "{x}"),
    ),
    "LangChain, mustache": chat_template(
        template("SystemMessagePromptTemplate", 'Say {"a": 1}', "mustache"),
        template("HumanMessagePromptTemplate", "{{{x}}}", "mustache"),
    ),
    "headings": '[system]\nSay {"a": 1}\n\n[user]\n{{x}}',
    "a byte-order mark": '\ufeff[system]\nSay {"a": 1}\n\n[user]\n{{x}}',
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_another_tool_is_read_as_its_messages(form: str) -> None:
    assert Prompt.parse(FORMS[form]).messages == SYSTEM_USER


LOST = {
    "a request of OpenAI": (
        {
            "model": "m",
            "temperature": 0.2,
            "max_completion_tokens": 9,
            "response_format": {},
            "messages": [["user", "a"]],
        },
        "model -> address, temperature -> temperature, max_completion_tokens -> max_tokens, response_format -> extra_body",
    ),
    "the config of Langfuse": (
        {"type": "chat", "prompt": [["user", "a"]], "config": {"model": "m", "top_p": 0.5}},
        "model -> address, top_p -> top_p",
    ),
}


@pytest.mark.parametrize("form", LOST)
def test_options_of_a_request_are_named_with_their_place_in_the_task(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    value, places = LOST[form]
    assert Prompt.parse(json.dumps(value), "p.json").messages == (Message("user", "a"),)
    (said,) = caplog.messages
    assert said.startswith("p.json: ") and places in said and "models: task:" in said


def test_the_role_developer_is_said_to_become_system(caplog: pytest.LogCaptureFixture) -> None:
    prompt = Prompt.parse(json.dumps([{"role": "developer", "content": "a"}]), "p.json")
    assert prompt.messages == (Message("system", "a"),)
    assert (
        [text for text in caplog.messages if "developer is read as system" in text] == caplog.messages != []
    )


@pytest.mark.parametrize("form", [form for form in FORMS if form != "OpenAI, a request"])
def test_nothing_is_said_of_a_prompt_that_loses_nothing(form: str, caplog: pytest.LogCaptureFixture) -> None:
    Prompt.parse(FORMS[form])
    assert caplog.messages == []


REFUSED = {
    '[{"role": "user", "content": "a"': "no valid JSON",
    "[{'role': 'user', 'content': 'a'}]": "double quotes",
    '[{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]': "message 1: this message has a part",
    '[{"role": "tool", "content": "a"}]': 'no role "tool"',
    '[{"role": "user", "content": "a", "tool_calls": [{}]}]': 'no key "tool_calls"',
    '{"messages": [], "model": "m"}': "there is no message",
    '{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}': "`tools` stand beside",
    '{"type": "chat", "prompt": [{"type": "placeholder", "name": "history"}]}': "placeholder for messages (history)",
    '[["system", "{x} and {{y}}"]]': "single and in double braces",
    '[["system", "{x.y}"]]': "more than a name",
    "- role: user\n  content: a\n": "ends in .yaml",
    chat_template(
        template("HumanMessagePromptTemplate", "{% if x %}{{x}}{% endif %}", "jinja2")
    ): "computes something",
    '{"lc": 1, "type": "constructor", "id": ["langchain", "FewShotPromptTemplate"], "kwargs": {}}': "FewShotPromptTemplate",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_looks_like_messages_and_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        Prompt.parse(text)
    assert REFUSED[text] in str(error.value)


@pytest.mark.parametrize("text", ['{"task": "{{x}}"}', "[Context]\n{{x}}", "[1, 2]", "{{x}} [system]\nno"])
def test_any_other_text_is_a_prompt_of_one_text(text: str) -> None:
    assert Prompt.parse(text).messages == (Message("auto", text),)


@pytest.mark.parametrize(
    "text",
    ['[{"role": "system", "content": "Be bad."}, {"role": "user", "content": "x"}]', "[system]\nBe bad."],
)
def test_no_edit_makes_messages_of_one_text(text: str) -> None:
    """They would be another prompt when they are read back than the one that was tested."""
    with pytest.raises(EditRejected, match="list of messages"):
        Prompt.parse("Answer.").edit(text)


@pytest.mark.parametrize("request_form", [False, True])
def test_the_name_of_a_message_stays_with_it(request_form: bool, caplog: pytest.LogCaptureFixture) -> None:
    listed = [
        {"role": "system", "content": "a", "name": None},
        {"role": "user", "content": "b", "name": "Eva"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "<!-- whet:begin -->d<!-- whet:end --> {{input}}", "name": "Tom"},
    ]
    prompt = Prompt.parse(json.dumps({"messages": listed} if request_form else listed), "p.json")
    names = [None, "Eva", None, "Tom"]
    assert [message.name for message in prompt.messages] == names and not caplog.messages
    again = Prompt.parse(prompt.source)
    assert again == prompt and again.id == prompt.id
    assert prompt.id != Prompt(tuple(replace(message, name=None) for message in prompt.messages)).id
    edited = prompt.edit("e")
    assert [message.get("name") for message in edited.chat] == names
    assert [message.get("name") for message in edited.fill_slots({"input": "x"})] == names
    assert [dict(message).get("name") for message in edited.render(Example("", {"input": "x"}))] == names
    assert Prompt(tuple(Message(*message.as_list()) for message in edited.messages)) == edited


def test_a_format_without_names_refuses_a_prompt_that_says_who_speaks() -> None:
    prompt = Prompt.of_chat([{"role": "user", "content": "{{input}}", "name": "Eva"}])
    for name in ("openai", "langfuse", "mlflow", "promptfoo"):
        assert '"name": "Eva"' in write_prompt_as(prompt, name)
    for name in ("langchain", "prompty", "dotprompt"):
        with pytest.raises(UsageError, match='has the name "Eva"'):
            write_prompt_as(prompt, name)
    with pytest.raises(UsageError, match="message with a `name`"):
        Prompt.of_parts({"answer": prompt})
