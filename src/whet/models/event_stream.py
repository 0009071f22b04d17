"""A stream of server-sent events as the one answer that it adds up to.

Pure functions over the bytes of a whole body. Servers write such streams in many ways: events without a blank line between
them, comments, carriage returns, usage in the last chunk or in each, an error in the middle, no `[DONE]` at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.models.openai_wire import loads, unreadable_reply

_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")
_DONE = b"[DONE]"
_OTHERWISE = ("role", "content", "tool_calls", "function_call")
"""Fields of a message that are not put together from pieces, or in another way."""


def is_event_stream(raw: bytes) -> bool:
    """Whether a body is a stream of events; JSON never begins like one.

    >>> is_event_stream(b'data: {"choices": []}'), is_event_stream(b'{"choices": []}')
    (True, False)
    """
    if raw.startswith(b"{"):
        return False
    return raw.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_BEGINNINGS)


def read_event_stream(raw: bytes) -> dict[str, object]:
    """The body that the same answer has without a stream: `choices` with whole messages, and `usage`.

    An error among the events becomes the body of an error. Raises ProviderError for a stream that ended before its answer
    did, and for one that cannot be read.
    """
    answer = _Answer()
    for name, data in _events(raw):
        if data == _DONE:
            answer.done = True
            break
        event = _parse_event(data)
        if not isinstance(event, dict):
            raise unreadable_reply("the stream holds an event that is not a JSON object")
        if event.get("error") or name == b"error":
            return {"error": event.get("error") or event}
        answer.add(event)
    return answer.as_body()


def _events(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of each event. A line of data that is whole ends the event before it, blank line or not."""
    name, data = b"", b""
    text = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in (*text.split(b"\n"), b""):
        key, _, value = line.partition(b":")
        if not line:
            if data:
                yield name, data
            name, data = b"", b""
        elif key == b"event":
            name = value.strip()
        elif key == b"data":
            if data and _is_whole(data):
                yield name, data
                data = b""
            data = data + b"\n" + value.strip() if data else value.strip()


def _is_whole(data: bytes) -> bool:
    return data == _DONE or _parse_event(data) is not None


def _parse_event(data: bytes) -> object:
    try:
        return loads(data)
    except ValueError:
        return None


@dataclass
class _Choice:
    """The state of one choice."""

    content: list[object] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    tokens: list[object] = field(default_factory=list)
    calls_tool: bool = False
    finish: object = None
    error: Any = None

    def add(self, chunk: Mapping[str, object]) -> None:
        """Take in a piece. Some servers end with the whole message, which stands in the place of the pieces."""
        delta, message = chunk.get("delta"), chunk.get("message")
        if isinstance(message, dict) and message.get("content"):
            self.content, self.fields = [], {}
        for part in (delta, message):
            if isinstance(part, dict):
                self._add_message(part)
        logprobs = chunk.get("logprobs")
        if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
            self.tokens += logprobs["content"]
        self.finish = chunk.get("finish_reason") or self.finish
        self.error = chunk.get("error") or self.error

    def _add_message(self, part: Mapping[str, Any]) -> None:
        content = part.get("content")
        if content:
            self.content += content if isinstance(content, list) else [content]
        for name, piece in part.items():
            before = self.fields.get(name)
            if name not in _OTHERWISE and piece is not None:
                alike = type(before) is type(piece) and isinstance(piece, str | list)
                self.fields[name] = before + piece if alike else piece
        self.calls_tool = self.calls_tool or bool(part.get("tool_calls") or part.get("function_call"))

    def as_body(self, index: int) -> dict[str, object]:
        """The choice as it stands in an answer without a stream."""
        content: Any = self.content
        if all(isinstance(piece, str) for piece in content):
            content = "".join(content)
        else:
            content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in content]
        tools: dict[str, object] = {"tool_calls": [{}]} if self.calls_tool else {}
        message = {"role": "assistant", "content": content, **self.fields, **tools}
        body = {"index": index, "message": message, "finish_reason": self.finish}
        body |= {"error": self.error} if self.error else {}
        return body | ({"logprobs": {"content": self.tokens}} if self.tokens else {})


@dataclass
class _Answer:
    """The answer that the events so far make up."""

    choices: dict[int, _Choice] = field(default_factory=dict)
    chunks: list[dict[str, object]] = field(default_factory=list)
    usage: Any = None
    model: Any = None
    done: bool = False

    def add(self, event: Mapping[str, object]) -> None:
        """Take in an event; one without choices may hold the usage, or nothing of interest."""
        self.model = event.get("model") or self.model
        choices = event.get("choices")
        chunks = [chunk for chunk in choices if isinstance(chunk, dict)] if isinstance(choices, list) else []
        for holder in (event, event.get("x_groq"), *chunks):  # Moonshot's stands in a choice
            if isinstance(holder, dict) and holder.get("usage"):
                self.usage = _join_usages(self.usage, holder["usage"])
        self.chunks += chunks
        for chunk in chunks:
            index = chunk.get("index")
            self.choices.setdefault(index if isinstance(index, int) else 0, _Choice()).add(chunk)

    def as_body(self) -> dict[str, object]:
        """The whole answer. Raises ProviderError when it has no end."""
        if self._counts_tokens():
            self.choices = {0: _Choice()}
            for chunk in self.chunks:
                self.choices[0].add(chunk)
        ended = bool(self.choices) and all(choice.finish or choice.error for choice in self.choices.values())
        if not (ended or self.done):
            raise unreadable_reply("the stream ended before the answer did")
        choices = [self.choices[index].as_body(index) for index in sorted(self.choices)]
        body = {"object": "chat.completion", "model": self.model, "choices": choices}
        return body | ({"usage": self.usage} if self.usage else {})

    def _counts_tokens(self) -> bool:
        """Whether an index is that of a token and not of a choice, as in text-generation-inference before 1.4.4: each has one
        piece, and only the last an end."""
        ends = [bool(choice.finish) for choice in self.choices.values()]
        return len(self.chunks) == len(ends) > 1 and ends[-1] and not any(ends[:-1])


_INPUT, _OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
_ABOUT_INPUT = ("prompt", "input", "cache")
"""In the names of what a usage says of the input."""


def _join_usages(before: Any, now: Any) -> Any:
    """Two usages of one stream as one. Each counts from the beginning, and each may lack what the other has: some servers count
    the input in the first event only and the output in the last, others end with zeros. So the larger number holds.

    What is said of the input belongs together: `input_tokens` is all of it in a first event, and what no cache had in a later
    one that counts what was read from the cache. So an event that counts the input says all of what it names of it, zeros too.

    >>> _join_usages({"prompt_tokens": 9, "completion_tokens": 0}, {"prompt_tokens": 0, "completion_tokens": 4})
    {'prompt_tokens': 9, 'completion_tokens': 4}
    >>> _join_usages({"input_tokens": 9}, {"input_tokens": 2, "cache_read_input_tokens": 7})
    {'input_tokens': 2, 'cache_read_input_tokens': 7}
    """
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return _join_counts(before, now)
    reads, writes = (any(_is_number(now.get(n)) and now[n] > 0 for n in names) for names in (_INPUT, _OUTPUT))
    newest = {
        name
        for name in now
        if reads and (any(part in name for part in _ABOUT_INPUT) or (writes and name == "total_tokens"))
    }
    return {
        name: _join_counts(before.get(name), now.get(name), name in newest)
        for name in dict.fromkeys((*before, *now))
    }


def _join_counts(before: Any, now: Any, newest: bool = False) -> Any:
    """Two counts, or two mappings of counts, as one: the larger number of each, or the `newest`."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {
            name: _join_counts(before.get(name), now.get(name), newest)
            for name in dict.fromkeys((*before, *now))
        }
    if now is None:
        return before
    return max(before, now) if not newest and _is_number(before) and _is_number(now) else now


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
