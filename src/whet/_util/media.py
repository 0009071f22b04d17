"""Images, sounds and files in texts: a mark stands for each in a prompt's slots and in messages, and is sent as a part.

A text stays a text: its hash, its copies in journals and caches hold the mark, `[[whet:image:SHA-256]]`. A model's client puts
the part in the place of a mark that this process knows; any other text that looks like a mark stays text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import StorageError, UsageError

MARK = re.compile(r"\[\[whet:(image|audio|file):([0-9a-f]{64})\]\]")
TOKENS = 2_000
"""Tokens that an image, a sound or a file counts as before a provider has said what it counts."""
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
_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".wav", ".mp3", ".pdf")


@dataclass(frozen=True)
class MediaPart:
    """A part of a message: its kind, what people see of it, and how it is read when it is sent, in OpenAI's form."""

    kind: str
    name: str
    read: Callable[[], Mapping[str, Any]]


_parts: dict[str, MediaPart] = {}
_folders: dict[Path, None] = {}
_FOLDER: ContextVar[Path | None] = ContextVar("images", default=None)


def keep_images_in(folder: Path) -> None:
    """From now on, this task keeps what models paint in a folder, which is made for the first picture, and looks there for it."""
    _FOLDER.set(folder)
    look_for_images_in(folder)


def look_for_images_in(folder: Path) -> None:
    """Where a picture of an earlier process may lie."""
    _folders[folder] = None


def keep_painted(data: bytes) -> str | None:
    """Remember a picture that a model painted, in the folder of the task by its hash. Returns its mark; None where it is no
    image. Raises StorageError."""
    digest = hashlib.sha256(data).hexdigest()
    mime = _mime(data)
    if mime is None or _kind(mime) != "image":
        return None
    folder = _FOLDER.get()
    if folder is not None and not (folder / digest).exists():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(data)
            os.replace(file.name, folder / digest)
        except OSError as error:
            raise StorageError(f"{folder}: a picture could not be written: {error}.") from error
    return _keep_picture(data, mime, digest)


def _keep_picture(data: bytes, mime: str, digest: str) -> str:
    part = part_of(data, mime, digest[:8])
    return keep("image", digest, f"picture {digest[:8]}", lambda: part)


def _find(digest: str) -> MediaPart | None:
    """The part of a hash, also of a picture that an earlier process kept; None where there is none."""
    if digest not in _parts:
        for folder in _folders:
            try:
                data = (folder / digest).read_bytes()
            except OSError:
                continue
            mime = _mime(data)
            if mime is not None and hashlib.sha256(data).hexdigest() == digest:
                _keep_picture(data, mime, digest)
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
    return keep(_kind(mime), hashlib.sha256(data).hexdigest(), name, lambda: part)


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

    return keep(_kind(mime), digest, path.name, read)


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
        if url.startswith("data:"):
            return keep_data_url(url, where)
        if not url.startswith(("https://", "http://")):
            raise UsageError(
                f'{where}: "{url}" is no address of an image. Write https://..., or {{"image": "FILE"}} for a file.'
            )
        detail = {"detail": value["detail"]} if isinstance(value, Mapping) and value.get("detail") else {}
        sent = {"type": "image_url", "image_url": {"url": url, **detail}}
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
    return keep(_kind(match[1]), hashlib.sha256(data).hexdigest(), match[1], lambda: part)


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
    mime = _mime(data)
    if mime is None:
        raise UsageError(
            f"{where} is no PNG, JPEG, GIF, WebP, WAV, MP3 or PDF. Convert it, or send its text."
        )
    return mime


def _mime(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] in (b"WEBP", b"WAVE"):
        return "image/webp" if data[8:12] == b"WEBP" else "audio/wav"
    return next((mime for start, mime in _SIGNATURES if data.startswith(start)), None)


def _kind(mime: str) -> str:
    return "image" if mime.startswith("image/") else "audio" if mime in _FORMATS else "file"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def count_marks(text: str) -> int:
    """How many known parts a text holds."""
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
