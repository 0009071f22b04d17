"""Style sheets, scripts and the icon: files of the package, served under their content's hash."""

from __future__ import annotations

import hashlib
from importlib.resources import files

KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_SOURCES = {
    "report.css": ("whet.reporting", "style.css"),
    "page.css": ("whet.live.server", "static/page.css"),
    "page.js": ("whet.live.server", "static/page.js"),
    "icon.svg": ("whet.live.server", "static/icon.svg"),
}
_BYTES = {name: files(package).joinpath(path).read_bytes() for name, (package, path) in _SOURCES.items()}
ASSETS = {f"{hashlib.sha256(data).hexdigest()[:16]}-{name}": data for name, data in _BYTES.items()}
"""Content by public name. A name that is not in here does not exist: no request names a file."""
_NAMES = {key.partition("-")[2]: key for key in ASSETS}


def address(name: str) -> str:
    """The address of an asset; it changes with the content, so that browsers may keep it for ever."""
    return f"/static/{_NAMES[name]}"
