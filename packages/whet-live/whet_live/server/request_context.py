"""One request as the handlers see it: the caller, what was sent, and the state of the application."""

from __future__ import annotations

import asyncio
import zlib
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, unquote_plus

import msgspec
import msgspec.inspect
from starlette.requests import Request
from starlette.types import Message, Receive

from whet_live.server.responses import Refused
from whet_live.server.roles import Principal, Role

if TYPE_CHECKING:
    from whet_live.server.app_state import AppState

T = TypeVar("T")

FORM = "application/x-www-form-urlencoded"
CSRF_FIELD = "csrf"


class RequestContext:
    """A request that passed the middleware. `body` is complete; `who` is None only for public endpoints."""

    def __init__(
        self,
        request: Request,
        headers: dict[bytes, bytes],
        state: AppState,
        who: Principal | None,
        body: bytes,
    ) -> None:
        self.request = request
        self.headers = headers
        self.state = state
        self.who = who
        self.body = body

    @property
    def principal(self) -> Principal:
        """The caller. Raises Refused (401) where nobody is known."""
        if self.who is None:
            raise Refused(401, "Sign in first.")
        return self.who

    @property
    def name(self) -> str:
        """The caller's name: the actor of whatever is written."""
        return self.principal.name

    def may(self, role: Role) -> bool:
        """Whether the caller has this role: decides which controls a page offers, never what a route allows."""
        return self.who is not None and self.who.may(role, False)

    def check_scope(self, prompt: str) -> None:
        """Raises Refused (403), whether there is such a prompt or not, where the caller's token is not for it."""
        if not self.principal.reaches(prompt):
            raise Refused(403, scope_error(self.principal, prompt))

    def path(self, name: str) -> str:
        """A part of the path. Raises Refused (400) when it holds a NUL character."""
        return refuse_nul(str(self.request.path_params[name]))

    @cached_property
    def query_params(self) -> dict[str, str]:
        """The query string: the last value of each name. Raises Refused (400) for more fields than a form may have."""
        text = self.request.scope["query_string"].decode("latin-1")
        return dict(_fields(text, self.state.limits.form_fields))

    def query(self, kind: type[T]) -> T:
        """The query string as a value of a struct. Raises Refused (400) for a name or value that does not fit."""
        structure: object = kind
        texts = _text_fields(structure)
        values = {k: v if k in texts else _simple(v) for k, v in self.query_params.items()}
        try:
            return msgspec.convert(values, kind)
        except (msgspec.ValidationError, ValueError) as error:
            raise Refused(400, f"The query does not fit: {error}.") from None

    @property
    def media(self) -> str:
        """The media type of the body, without parameters."""
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")

    def check_media(self, wanted: str) -> None:
        """Raises Refused (415) for a body of another media type."""
        if self.media != wanted:
            raise Refused(415, f"Send the body with the header Content-Type: {wanted}.")

    def json(self, kind: type[T]) -> T:
        """The body as a value of a struct. Raises Refused (400) with the place that does not fit, 415 for another
        media type."""
        self.check_media("application/json")
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(400, f"The body does not fit: {error}.") from None
        except RecursionError:
            raise Refused(400, "The body does not fit: its JSON is nested too deeply.") from None

    @cached_property
    def form(self) -> dict[str, str]:
        """The fields of the form: the last value of each name, line ends as `\\n`."""
        return {key: values[-1] for key, values in self.form_lists.items()}

    @cached_property
    def form_lists(self) -> dict[str, list[str]]:
        """All values of each field of the form."""
        self.check_media(FORM)
        lists: dict[str, list[str]] = {}
        for key, value in _fields(self.body.decode("latin-1"), self.state.limits.form_fields):
            lists.setdefault(key, []).append(value.replace("\r\n", "\n"))
        return lists


def scope_error(who: Principal, prompt: str) -> str:
    """The message to a program whose token is not for a prompt."""
    return f'This token is not for the prompt "{prompt[:200]}". An admin makes one: whet access token {who.name} --prompt NAME.'


@cache
def _text_fields(kind: object) -> frozenset[str]:
    """The fields of a struct whose values are texts: they are taken as they are, `null` and `1` too."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in info.fields if _is_text(field.type))


def _is_text(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_is_text(one) for one in kind.types)
    return isinstance(kind, msgspec.inspect.StrType | msgspec.inspect.LiteralType)


def _simple(value: str) -> object:
    """A whole number or a truth value where the text is one."""
    if value in ("true", "false"):
        return value == "true"
    digits = value.removeprefix("-")
    return int(value) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else value


def _fields(text: str, most: int) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=most, errors="strict")
    except ValueError:
        raise Refused(400, f"The fields are not UTF-8, or more than {most}.") from None
    return [(refuse_nul(key), refuse_nul(value)) for key, value in pairs]


def refuse_nul(text: str) -> str:
    """The text itself. Raises Refused (400) for a NUL character, which no database keeps."""
    if "\x00" in text:
        raise Refused(400, "A text holds a NUL character. Leave it out.")
    return text


def form_value(body: bytes, name: str) -> str:
    """One field of a form that is not parsed yet; empty when it is not there."""
    mark = f"{name}=".encode()
    for piece in body.split(b"&", 4096)[:4096]:
        if piece.startswith(mark):
            return unquote_plus(piece[len(mark) :].decode("latin-1"))
    return ""


async def read_body(receive: Receive, headers: dict[bytes, bytes], most: int, seconds: float) -> bytes:
    """The whole body, uncompressed. Raises Refused: 413 above `most` bytes (also once unpacked), 408 when it takes
    longer than `seconds`, 400 for a broken length or packing, 415 for a packing other than gzip and deflate."""
    announced = headers.get(b"content-length", b"0")
    if not announced.isdigit():
        raise Refused(400, "Content-Length is no number.")
    if int(announced) > most:
        raise too_large(most)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message: Message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "The connection ended before the body was complete.")
                piece: bytes = message.get("body", b"")
                size += len(piece)
                if size > most:
                    raise too_large(most)
                pieces.append(piece)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise Refused(
            408, f"The body was not complete after {seconds:g} s.", {"Connection": "close"}
        ) from None
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    packing = headers.get(b"content-encoding", b"identity").strip().lower()
    return body if packing in (b"identity", b"") else _decompress(body, packing, most)


_PACKINGS = {b"gzip": ("gzip", (31,)), b"deflate": ("deflate", (15, -15))}
"""Names of packings, and the window bits of zlib for their forms: `deflate` has the header of zlib, or none."""


def _decompress(body: bytes, packing: bytes, most: int) -> bytes:
    if packing not in _PACKINGS:
        raise Refused(415, "The body's Content-Encoding is none of gzip, deflate and identity.")
    name, forms = _PACKINGS[packing]
    for bits in forms:
        unpacker = zlib.decompressobj(wbits=bits)
        try:
            unpacked = unpacker.decompress(body, most + 1)
        except zlib.error:
            continue
        if len(unpacked) > most:
            raise too_large(most)
        if not unpacker.eof:
            raise Refused(400, f"The {name} stream is not complete.")
        return unpacked
    raise Refused(400, f"The body is no {name} stream.")


def too_large(most: int, remedy: str = "") -> Refused:
    """The refusal of a body of more than `most` bytes, and what to do."""
    return Refused(413, f"The body is larger than {most:,} bytes. {remedy}".rstrip())
