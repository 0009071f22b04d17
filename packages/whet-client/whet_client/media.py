"""Images, sounds and files in texts: a mark stands for each in prompts, in their slots and in messages, and is sent as a part.

A text stays a text: its hash, its copies in journals and caches hold the mark, `[[whet:image:SHA-256]]`. A model's client puts
the part in the place of a mark that this process knows; any other text that looks like a mark stays text.

The author of a prompt names a source in the place of the hash: a file, an address of an image, or the content itself as a data
URL, which is also how a part leaves the process. What a part holds has the hash of its mark: bytes, or the JSON of a part that
has none (an address, a part with options).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet_client.errors import UsageError
from whet_client.storable import show_value

MARK = re.compile(r"\[\[whet:(image|audio|file):([0-9a-f]{64})\]\]")
TOKENS = 2_000
"""Tokens that an image, a sound or a file counts as before a provider has said what it counts."""
SOURCE = re.compile(r"\[\[whet:(image|audio|file):([^\]\n]*+(?:\](?!\])[^\]\n]*+)*+)\]\]")
"""A mark, or a part as its author names it; the groups are its kind and its hash or source."""
_HASH = re.compile(r"[0-9a-f]{64}")
_JSON = "application/json"
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/=\s]+)\Z")
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
)
_FORMATS = {"audio/mpeg": "mp3", "audio/wav": "wav"}
KINDS = ("image", "audio", "file")
KINDS_OF_FILES = frozenset(KINDS)
_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".wav", ".mp3", ".pdf")


@dataclass(frozen=True)
class MediaPart:
    """A part of a message: its kind, what people see of it, and how it is read when it is sent, in OpenAI's form."""

    kind: str
    name: str
    read: Callable[[], Mapping[str, Any]]


_parts: dict[str, MediaPart] = {}
_folders: dict[Path, None] = {}


def look_for_images_in(folder: Path) -> None:
    """Add a folder in which a part of an earlier process may lie, by its hash."""
    _folders[folder] = None


def keep_content(data: bytes, name: str = "") -> str | None:
    """Remember a part by its content: bytes of a known kind, or the JSON of a part. Returns its mark; None for other bytes."""
    digest, mime = hashlib.sha256(data).hexdigest(), read_mime(data)
    if mime is not None:
        name = name or f"{media_kind(mime)} {digest[:8]}"
        part = part_of(data, mime, name)
        return keep(media_kind(mime), digest, name, lambda: part)
    try:
        value = json.loads(data) if data[:1] == b"{" else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or _canonical(value) != data or value.get("type") not in _FORMS:
        return None
    return keep(_FORMS[value["type"]], digest, _name_of(value, digest), lambda: value)


def _name_of(value: Mapping[str, Any], digest: str) -> str:
    """The printed form of a part that is kept as JSON: its address or file name."""
    inner = value[value["type"]]
    url = str(inner.get("url", inner.get("filename", "")))
    return url if url and not url.startswith("data:") else f"{_FORMS[value['type']]} {digest[:8]}"


def _find(digest: str) -> MediaPart | None:
    """The part of a hash, also of one that an earlier process kept; None where there is none."""
    if digest not in _parts:
        for folder in _folders:
            try:
                data = (folder / digest).read_bytes()
            except OSError:
                continue
            if hashlib.sha256(data).hexdigest() == digest and keep_content(data) is not None:
                break
    return _parts.get(digest)


def lacks_image(text: str) -> bool:
    """Whether a text names an image that cannot be found."""
    return "[[whet:image:" in text and any(
        match[1] == "image" and _find(match[2]) is None for match in MARK.finditer(text)
    )


def is_named(kind: str, value: object) -> bool:
    """Whether a value names a file or an address of this kind: an image always, anything else by how its name ends."""
    return isinstance(value, str) and (kind == "image" or value.lower().endswith(_ENDINGS))


def keep(kind: str, digest: str, name: str, read: Callable[[], Mapping[str, Any]]) -> str:
    """Remember a part by the hash of its content. Returns its mark."""
    _parts[digest] = MediaPart(kind, name, read)
    return f"[[whet:{kind}:{digest}]]"


def keep_bytes(data: bytes, name: str, where: str) -> str:
    """Remember an image, a sound or a file by its bytes. Returns its mark. Raises UsageError for an unknown kind."""
    mime = mime_of(data, where)
    part = part_of(data, mime, name)
    return keep(media_kind(mime), hashlib.sha256(data).hexdigest(), name, lambda: part)


def keep_file(path: Path, where: str) -> str:
    """Remember a file, which is read again when it is sent. Returns its mark. Raises UsageError with the place."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{where}: {path} cannot be read: {error.strerror}. Name a file of the task."
        ) from None
    mime, digest = mime_of(data, f"{where}: {path}"), hashlib.sha256(data).hexdigest()

    def read() -> Mapping[str, Any]:
        again = path.read_bytes()
        if hashlib.sha256(again).hexdigest() != digest:
            raise UsageError(f"{path} has changed since the task was loaded. Load it again, as another task.")
        return part_of(again, mime, path.name)

    return keep(media_kind(mime), digest, path.name, read)


def keep_part(part: Mapping[str, Any], where: str) -> str:
    """Remember a part in OpenAI's form (`image_url`, `input_image`, `input_audio`, `file`). Returns its mark.

    Raises UsageError with the place.
    """
    kind = str(part.get("type") or next((key for key in _FORMS if key in part), ""))
    if kind not in _FORMS:
        raise UsageError(
            f"{where}: a part of the type {kind!r} cannot be sent. Known: {', '.join(_FORMS)}, text."
        )
    value = part.get(kind, part.get("image_url") if kind == "input_image" else None)
    if kind in ("image_url", "input_image"):
        url = value.get("url") if isinstance(value, Mapping) else value
        if not isinstance(url, str) or not url:
            raise UsageError(
                f'{where}: an image needs its address: {{"type": "image_url", "image_url": {{"url": ...}}}}.'
            )
        detail = part.get("detail") or (value.get("detail") if isinstance(value, Mapping) else None)
        sent = {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}
        if url.startswith("data:"):
            mark = keep_data_url(url, where)
            digest = _digest(sent)
            is_as_it_stands = not detail or not mark.startswith("[[whet:image:")
            return mark if is_as_it_stands else keep("image", digest, f"image {digest[:8]}", lambda: sent)
        if not url.startswith(("https://", "http://")):
            raise UsageError(
                f'{where}: "{url}" is no address of an image. Write https://..., or {{"image": "FILE"}} for a file.'
            )
        return keep("image", _digest(sent), url, lambda: sent)
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: the part {kind} must be an object.")
    sent = {"type": kind, kind: dict(value)}
    return keep(_FORMS[kind], _digest(sent), str(value.get("filename", kind)), lambda: sent)


def keep_data_url(url: str, where: str) -> str:
    """Remember what a data URL holds. Returns its mark. Raises UsageError with the place for one that cannot be read."""
    match = _DATA_URL.match(url.strip())
    try:
        data = base64.b64decode("".join(match[2].split()), validate=True) if match else b""
    except (binascii.Error, ValueError):
        data = b""
    if match is None or not data:
        raise UsageError(
            f"{where}: this data URL cannot be read. Write data:image/png;base64,... with the whole file."
        )
    part = part_of(data, match[1], match[1])
    return keep(media_kind(match[1]), hashlib.sha256(data).hexdigest(), match[1], lambda: part)


_FORMS = {"image_url": "image", "input_image": "image", "input_audio": "audio", "file": "file"}


def part_of(data: bytes, mime: str, name: str) -> dict[str, Any]:
    """Bytes as a part in OpenAI's form."""
    text = base64.b64encode(data).decode()
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{text}"}}
    if mime in _FORMATS:
        return {"type": "input_audio", "input_audio": {"data": text, "format": _FORMATS[mime]}}
    return {"type": "file", "file": {"filename": name, "file_data": f"data:{mime};base64,{text}"}}


def mime_of(data: bytes, where: str) -> str:
    """The kind of a file by its first bytes. Raises UsageError for an unknown one."""
    mime = read_mime(data)
    if mime is None:
        raise UsageError(
            f"{where} is no PNG, JPEG, GIF, WebP, WAV, MP3 or PDF. Convert it, or send its text."
        )
    return mime


def read_mime(data: bytes) -> str | None:
    """The kind of a file by its first bytes; None for an unknown one."""
    if data[:4] == b"RIFF" and data[8:12] in (b"WEBP", b"WAVE"):
        return "image/webp" if data[8:12] == b"WEBP" else "audio/wav"
    return next((mime for start, mime in _SIGNATURES if data.startswith(start)), None)


def media_kind(mime: str) -> str:
    """The kind of a part that bytes of this kind are."""
    return "image" if mime.startswith("image/") else "audio" if mime in _FORMATS else "file"


def _digest(value: object) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def content_bytes(mark: str) -> bytes | None:
    """The content of the part that a mark names, whose SHA-256 is the hash; None for an unknown part. Raises UsageError for
    a file that has changed."""
    match = MARK.fullmatch(mark)
    part = None if match is None else _find(match[2])
    if match is None or part is None:
        return None
    sent = dict(part.read())
    inner = sent[sent["type"]]
    coded = str(inner.get("url") or inner.get("file_data") or inner.get("data") or "")
    try:
        data = base64.b64decode(coded.rpartition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        data = b""
    return data if hashlib.sha256(data).hexdigest() == match[2] else _canonical(sent)


def read_sources(text: str, where: str, folder: Path | None = None) -> str:
    """A text of a prompt with a mark in the place of each part that its author names, all kept; a mark stays.

    Files are looked for in `folder`, and nowhere else. Raises UsageError with the line.
    """
    if "[[whet:" not in text:
        return text

    def read(match: re.Match[str]) -> str:
        if _HASH.fullmatch(match[2]):
            return match[0]
        place = f"{where}:{text.count(chr(10), 0, match.start()) + 1}"
        mark = _keep_source(match[1], match[2].strip(), place, folder)
        if not mark.startswith(f"[[whet:{match[1]}:"):
            kind = mark.split(":")[1]
            raise UsageError(
                f"{place}: {match[2][:80]} is of the kind {kind}, not {match[1]}. Write [[whet:{kind}:...]]."
            )
        return mark

    return SOURCE.sub(read, text)


def _keep_source(kind: str, source: str, where: str, folder: Path | None) -> str:
    if source.startswith("data:"):
        return keep_inline(source, where)
    if "{{" in source:
        raise UsageError(
            f"{where}: {source[:80]} has a slot in it. Rows hold whole images, sounds and files: write a slot alone, such as "
            "{{photo}}."
        )
    if source.startswith(("https://", "http://")):
        if kind != "image":
            raise UsageError(
                f'{where}: the address "{source}" cannot be sent: models read addresses of images only. Name a file.'
            )
        return keep_part({"type": "image_url", "image_url": {"url": source}}, where)
    if folder is None:
        raise UsageError(
            f"{where}: a file ({source[:80]}) can be named in a prompt that is a file itself. Give the content as a data URL: "
            f"[[whet:{kind}:data:image/png;base64,...]]."
        )
    path = folder / source
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{where}: {source} lies outside of the prompt's folder. Copy it into the folder.")
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{where}: {source} cannot be read: {reason}. Name a file of the prompt's folder."
        ) from None
    return keep_bytes(data, path.name, f"{where}: {source}")


def keep_inline(url: str, where: str) -> str:
    """Remember the part that a data URL of a prompt holds. Returns its mark. Raises UsageError for one that no later process
    could read."""
    match = _DATA_URL.match(url)
    if match is not None and match[1] == _JSON:
        try:
            mark = keep_content(base64.b64decode("".join(match[2].split()), validate=True))
        except (binascii.Error, ValueError):
            mark = None
        if mark is None:
            raise UsageError(f"{where}: this data URL holds no part of a message. Give a file or an address.")
        return mark
    keep_data_url(url, where)
    assert match is not None
    return keep_bytes(
        base64.b64decode("".join(match[2].split())), match[1], f"{where}: the content of this data URL"
    )


def keep_prompt_part(part: Mapping[str, Any], where: str) -> str:
    """Remember a part of a prompt's message, in the form of OpenAI, Anthropic or LangChain. Returns its mark, or for `{"image":
    FILE}` the mark with its source. Raises UsageError with the place."""
    kind = next(iter(part), "")
    if len(part) == 1 and kind in KINDS and isinstance(part[kind], str):
        return f"[[whet:{kind}:{part[kind]}]]"
    source = part.get("source")
    if part.get("type") in ("image", "document") and isinstance(source, Mapping):
        coded = f"data:{source.get('media_type')};base64,{source.get('data')}"
        if source.get("type") == "base64":
            return keep_inline(coded, where)
        if part["type"] == "document" or source.get("type") != "url":
            raise UsageError(
                f"{where}: the source of this {part['type']} is {show_value(dict(source))}. Give the content in base64, or for "
                "an image its address (url)."
            )
        part = {"type": "image_url", "image_url": {"url": source.get("url")}}
    elif part.get("type") in KINDS and isinstance(inline := part.get("base64") or part.get("data"), str):
        return keep_inline(f"data:{part.get('mime_type')};base64,{inline}", where)
    elif part.get("type") == "image" and isinstance(part.get("url"), str):
        part = {"type": "image_url", "image_url": {"url": part["url"]}}
    value = part.get("image_url")
    url = value.get("url") if isinstance(value, Mapping) else value
    detail = part.get("detail") or (value.get("detail") if isinstance(value, Mapping) else None)
    if isinstance(url, str) and url.startswith("data:"):
        mark = keep_inline(url, where)
        if detail is None:
            return mark
        sent = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
        return keep("image", _digest(sent), f"image {_digest(sent)[:8]}", lambda: sent)
    if detail is not None and isinstance(url, str):
        part = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    return keep_part(part, where)


def with_contents(text: str) -> str:
    """A text that another process can read: each known mark with the content of its part as a data URL. Raises UsageError for a
    file that has changed."""
    if "[[whet:" not in text:
        return text

    def write(match: re.Match[str]) -> str:
        data = content_bytes(match[0])
        if data is None:
            return match[0]
        return f"[[whet:{match[1]}:data:{read_mime(data) or _JSON};base64,{base64.b64encode(data).decode()}]]"

    return MARK.sub(write, text)


def read_contents(text: str) -> str:
    """Read the result of `with_contents`, with marks again; other texts that look like a part stay texts."""
    if "[[whet:" not in text:
        return text

    def read(match: re.Match[str]) -> str:
        try:
            return keep_inline(match[2], "part") if match[2].startswith("data:") else match[0]
        except UsageError:
            return match[0]

    return SOURCE.sub(read, text)


def with_sources(text: str, author: str) -> str:
    """A text with the sources that its `author` wrote in the place of marks; itself where he named others, or more or fewer."""
    sources = [match[0] for match in SOURCE.finditer(author)]
    places = list(MARK.finditer(text))
    if not places or len(places) != len(sources):
        return text
    rest = iter(sources)
    return MARK.sub(lambda match: next(rest), text)


def marks_of(text: str) -> list[str]:
    """The marks in a text, in order and as often as they stand there, known or not."""
    return [match[0] for match in MARK.finditer(text)] if "[[whet:" in text else []


def is_known(mark: str) -> bool:
    """Whether the part of a mark can be sent."""
    match = MARK.fullmatch(mark)
    return match is not None and _find(match[2]) is not None


def contents_of(text: str) -> Iterator[tuple[str, bytes]]:
    """The hash and the content of each part of a text that is known. Raises UsageError for a file that has changed."""
    for mark in dict.fromkeys(marks_of(text)):
        data = content_bytes(mark)
        if data is not None:
            yield mark[:-2].rpartition(":")[2], data


def count_marks(text: str) -> int:
    """Count the known parts in a text."""
    return sum(_find(match[2]) is not None for match in MARK.finditer(text)) if "[[whet:" in text else 0


def content_of(text: str) -> str | list[dict[str, Any]]:
    """A text as the content of a message: itself, or its texts and parts in order where it holds a known mark."""
    if not count_marks(text):
        return text
    parts, at = list[dict[str, Any]](), 0
    for match in MARK.finditer(text):
        part = _find(match[2])
        if part is not None:
            _add_text(parts, text[at : match.start()])
            parts.append(dict(part.read()))
            at = match.end()
    _add_text(parts, text[at:])
    return parts


def _add_text(parts: list[dict[str, Any]], text: str) -> None:
    if text.strip():
        parts.append({"type": "text", "text": text.strip("\n")})


def without_parts(text: str) -> str:
    """A text for a model that reads texts only: a known mark as its kind and the beginning of its hash."""
    if not count_marks(text):
        return text
    return MARK.sub(lambda m: f"[{m[1]} {m[2][:8]}]" if _find(m[2]) else m[0], text)


def pieces_of(text: str) -> list[str | MediaPart]:
    """A text in pieces, with each part in its place; for a page. A part that this process does not know has no content."""
    pieces, at = list[str | MediaPart](), 0
    for match in MARK.finditer(text):
        part = _find(match[2]) or MediaPart(match[1], match[2][:8], dict)
        pieces += [text[at : match.start()], part]
        at = match.end()
    return [*pieces, text[at:]]
