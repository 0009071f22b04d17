"""The messages of a prompt as fields of a form, and back."""

from __future__ import annotations

from whet.live.server.pages.parts import text_area
from whet.live.server.request_context import RequestContext
from whet.prompt import Prompt
from whet.reporting.markup import Html
from whet.types import Message

AUTO = "auto"
ROWS = 14


def message_fields(prompt: Prompt) -> list[Html]:
    """One box of text for each message."""
    return [
        text_area(
            f"message-{i}",
            "Text" if message.role == AUTO else f"Text of the {message.role} message",
            message.content,
            rows=ROWS,
        )
        for i, message in enumerate(prompt.messages)
    ]


def messages_given(call: RequestContext, base: Prompt) -> Prompt | None:
    """The prompt that the form holds, with the roles and line ends of `base`; None when the form holds none.

    Browsers send every line end as CR LF; where the base has only such, they stay. Raises UsageError for a broken fence.
    """
    messages: list[Message] = []
    for i, message in enumerate(base.messages):
        text = call.form.get(f"message-{i}")
        if text is None:
            return None
        if "\r\n" in message.content and message.content.count("\r\n") == message.content.count("\n"):
            text = text.replace("\n", "\r\n")
        messages.append(Message(message.role, text))
    return Prompt.from_messages(tuple(messages))
