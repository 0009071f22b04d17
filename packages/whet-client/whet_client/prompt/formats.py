"""A prompt in the formats of other tools: what `Prompt.parse` reads, written.

Every format holds the messages without whet's markers. A prompt of one text without a role is one text where the format knows
such prompts, else one message: of the user where it has a slot, of the system where it has none.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from whet_client.errors import UsageError, did_you_mean
from whet_client.media import MARK, content_bytes, content_of, read_mime
from whet_client.prompt.document import Prompt
from whet_client.prompt.fence import front_matter_of
from whet_client.prompt.headed import AUTO, PROMPTY_HEADING
from whet_client.prompt.slots import SLOT
from whet_client.types import Message


def write_prompt_as(prompt: Prompt, name: str) -> str:
    """The prompt as the text of a file in the format `name` (a key of FORMATS).

    Raises UsageError for an unknown format, and for a prompt that the format cannot hold.
    """
    if name not in FORMATS:
        raise UsageError(f'There is no format "{name}".{did_you_mean(name, FORMATS)}')
    if prompt.marks and name not in WITH_PARTS:
        raise UsageError(
            f"The format {name} holds texts only, and the prompt holds an image, a sound or a file. "
            f"Take {' or '.join(WITH_PARTS)}."
        )
    named = next((message.name for message in prompt.messages if message.name is not None), None)
    if named is not None and name not in WITH_NAMES:
        raise UsageError(
            f'The format {name} has no place for who speaks, and a message has the name "{named}". '
            f"Take {' or '.join(WITH_NAMES)}."
        )
    if prompt.parts:
        raise UsageError("The prompts of a program have no format of another tool. Write each of them alone.")
    return FORMATS[name](prompt)


def _check_template(
    prompt: Prompt,
    tool: str,
    names: re.Pattern[str],
    blocks: Sequence[str],
    before_slot: tuple[str, ...] = ("{",),
    after_slot: tuple[str, ...] = (),
) -> None:
    """Raise UsageError where `tool` would take more of the prompt for a template than whet's slots, or could not fill a slot.

    `names`: the slots that the tool can fill; `blocks`: what begins a template there; `before_slot` and `after_slot`: what
    changes the meaning of a slot directly behind or before it.
    """
    for name in sorted(prompt.slots):
        if not names.fullmatch(name):
            raise UsageError(
                f"{tool} cannot read the slot {{{{{name}}}}}. Give it a name of letters, digits and underscores."
            )
    for message in prompt.clean:
        text, start = message.content, len(front_matter_of(message.content))
        while start < len(text):
            slot = SLOT.search(text, start)
            literal = text[start : slot.start()] if slot else text[start:]
            places = [place for block in blocks if (place := literal.find(block)) >= 0]
            places += [len(literal) - 1] if slot and literal.endswith(before_slot) else []
            if places:
                piece = json.dumps(text[start + min(places) :][:30], ensure_ascii=False)
                raise UsageError(
                    f"{tool} would take {piece} in the prompt for a template. Reword the prompt."
                )
            if slot and text.startswith(after_slot, slot.end()):
                raise UsageError(
                    f"{tool} cannot read {text[slot.start() : slot.end() + 1]}. Put a blank or a line break behind the slot."
                )
            start = slot.end() if slot else len(text)


def _messages(prompt: Prompt) -> list[Message]:
    role = "user" if prompt.slots else "system"
    return [replace(m, role=role if m.role == AUTO else m.role) for m in prompt.clean]


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _role_objects(messages: Sequence[Message]) -> list[dict[str, object]]:
    return [m.as_object(content_of(m.content)) for m in messages]


def _document(prompt: Prompt) -> str:
    return _front(prompt) + prompt.text


def _openai(prompt: Prompt) -> str:
    return _as_json({"messages": _role_objects(_messages(prompt))})


def _langfuse(prompt: Prompt) -> str:
    _check_template(prompt, "Langfuse", _ANY_NAME, ("{{",))
    if not prompt.chat:
        return _as_json({"type": "text", "prompt": prompt.text})
    return _as_json({"type": "chat", "prompt": _role_objects(prompt.clean)})


def _langchain(prompt: Prompt) -> str:
    """The JSON of `langchain_core.load.dumps`, as LangChain's hub keeps it: templates of format strings."""
    messages = [
        _constructor(
            ("prompts", "chat", f"{_LANGCHAIN[m.role]}MessagePromptTemplate"),
            prompt=_format_string(m.content),
        )
        for m in _messages(prompt)
    ]
    names = sorted(prompt.slots)
    return _as_json(
        _constructor(("prompts", "chat", "ChatPromptTemplate"), input_variables=names, messages=messages)
    )


def _format_string(text: str) -> dict[str, object]:
    pieces, names, at = list[str](), list[str](), 0
    for match in SLOT.finditer(text):
        name = match[1].strip()
        if "." in name:
            raise UsageError(
                f"LangChain reads the slot {{{{{name}}}}} as an attribute. Give the slot a name without a dot."
            )
        names.append(name)
        pieces += [_double_braces(text[at : match.start()]), f"{{{name}}}"]
        at = match.end()
    template = "".join([*pieces, _double_braces(text[at:])])
    fields = {"input_variables": sorted(set(names)), "template": template, "template_format": "f-string"}
    return _constructor(("prompts", "prompt", "PromptTemplate"), **fields)


def _double_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _constructor(names: Sequence[str], **fields: object) -> dict[str, object]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", *names], "kwargs": fields}


def _prompty(prompt: Prompt) -> str:
    """A .prompty file: `system:` or `user:` above each message."""
    _check_template(prompt, "Prompty", _IDENTIFIER, _JINJA)
    messages = _messages(prompt)
    for message in messages:
        if PROMPTY_HEADING.search(message.content):
            raise UsageError(
                "A line of the prompt is a role with a colon, which Prompty reads as a message. Reword this line."
            )
    inputs = [f"  {_yaml_name(name)}:\n    type: string\n" for name in sorted(prompt.slots)]
    front = _front(prompt) or "".join(
        ["---\n", *(["inputs:\n", *inputs] if inputs else ["name: prompt\n"]), "---\n"]
    )
    return front + "\n\n".join(f"{m.role}:\n{m.content}" for m in messages)


def _dotprompt(prompt: Prompt) -> str:
    """A .prompt file of Genkit: `{{role "system"}}` above each message, slots as Handlebars has them."""
    _check_template(prompt, "Handlebars", _HANDLEBARS_NAME, ("{{",), ("{", "\\"), ("}",))
    for name in sorted(prompt.slots):
        if name in _HANDLEBARS_WORDS:
            raise UsageError(
                f"In a .prompt file {{{{{name}}}}} is a word of the format, not a slot. Give the slot another name."
            )
    fields = [f"    {name}: string\n" for name in sorted(prompt.slots)]
    schema = ["input:\n  schema:\n", *fields] if fields else ["input: {}\n"]
    front = _front(prompt) or "".join(["---\n", *schema, "---\n"])
    roles = {"assistant": "model"}
    return front + "\n\n".join(
        f'{{{{role "{roles.get(m.role, m.role)}"}}}}\n{MARK.sub(_media_helper, m.content)}'
        for m in _messages(prompt)
    )


def _media_helper(match: re.Match[str]) -> str:
    """An image, a sound or a file as dotprompt's helper `media` names it."""
    content = content_of(match[0])
    part = content[0] if isinstance(content, list) else {}
    image = part.get("image_url", {})
    data = content_bytes(match[0])
    if "url" in image and "detail" not in image:
        return f'{{{{media url="{image["url"]}"}}}}'
    mime = None if data is None else read_mime(data)
    if data is None or mime is None:
        raise UsageError(
            f"In a .prompt file a part is its address or its content; the {match[1]} {match[2][:8]} has options beside. "
            "Take openai."
        )
    return f'{{{{media url="data:{mime};base64,{base64.b64encode(data).decode()}"}}}}'


def _front(prompt: Prompt) -> str:
    return front_matter_of(prompt.messages[0].content)


def _mlflow(prompt: Prompt) -> str:
    _check_template(prompt, "MLflow", _MLFLOW_NAME, _JINJA)
    return prompt.plain


def _promptfoo(prompt: Prompt) -> str:
    _check_template(prompt, "promptfoo", _IDENTIFIER, (*_JINJA, "#}"))
    if len(prompt.messages) == 1 and any(line.strip() == "---" for line in prompt.plain.splitlines()):
        raise UsageError(
            "promptfoo would divide the prompt at its line `---`. Reword the prompt, or divide it with `***`."
        )
    return prompt.plain


def _yaml_name(name: str) -> str:
    return name if _HANDLEBARS_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


_HANDLEBARS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HANDLEBARS_WORDS = frozenset((
    "each", "else", "false", "history", "if", "ifEquals", "json", "log", "lookup", "media", "null", "role", "section", "this",
    "true", "undefined", "unless", "unlessEquals", "with",
))  # fmt: skip
"""Helpers of Handlebars and dotprompt, and Handlebars' literals."""
_MLFLOW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.][A-Za-z_][A-Za-z0-9_]*)*")
_ANY_NAME = re.compile(r".+", re.DOTALL)
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_JINJA = ("{{", "{%", "{#")
"""The openings of variables, blocks and comments in the templates of Jinja and Nunjucks."""
_LANGCHAIN = {"system": "System", "user": "Human", "assistant": "AI"}
FORMATS: dict[str, Callable[[Prompt], str]] = {
    "document": _document,
    "openai": _openai,
    "langfuse": _langfuse,
    "langchain": _langchain,
    "prompty": _prompty,
    "dotprompt": _dotprompt,
    "mlflow": _mlflow,
    "promptfoo": _promptfoo,
}
"""The formats by name. `document`: the file without markers, its front matter kept. `mlflow` and `promptfoo`: one text, or
the list of messages as JSON."""
WITH_NAMES = ("openai", "langfuse", "mlflow", "promptfoo", "document")
"""The formats whose messages may have a `name`."""
WITH_PARTS = ("openai", "dotprompt", "promptfoo")
"""The formats that hold images, sounds and files."""
