"""The channels of alerts: webhooks, Slack, mail. The file of `whet serve --alerts` names them.

A channel is known by its kind and a hash of its address, so that no address, which may be a secret, is stored beside alerts.
"""

from __future__ import annotations

import hashlib
import json
import os
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from whet.errors import UsageError, did_you_mean
from whet_client.ids import iso
from whet_client.version import __version__
from whet_live.quality.alerts import APPROVAL, QualityAlert

SECONDS = 10.0
"""The longest time of one delivery before it is tried again."""
FROM_ENVIRONMENT = "env:"
_KINDS: Mapping[str, frozenset[str]] = {
    "webhook": frozenset(),
    "slack": frozenset(),
    "mail": frozenset(("server", "from", "password")),
}
_PORTS = {"smtp": 587, "smtps": 465}
_SLACK_TEXT = 3_000


class DeliveryError(Exception):
    """A delivery did not work; the message says why and holds no secret."""


class AlertChannel(Protocol):
    """A place that alerts go to."""

    @property
    def name(self) -> str:
        """The kind and a hash of the address."""
        ...

    def send(self, alert: QualityAlert, address: str) -> None:
        """Deliver one alert; `address` is that of the server's pages, or empty. Raises DeliveryError."""
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that takes alerts as JSON: `slack` in the form of Slack's incoming webhooks, else as the alert is."""

    url: str
    slack: bool = False

    @property
    def name(self) -> str:
        """The kind and a hash of the address."""
        return f"{'slack' if self.slack else 'webhook'}-{_hash(self.url)}"

    def send(self, alert: QualityAlert, address: str) -> None:
        """Post the alert. Raises DeliveryError unless the answer has a status of 200 to 299; redirections are not followed."""
        body = slack_body(alert, address) if self.slack else webhook_body(alert, address)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"whet/{__version__}",
            "X-Whet-Alert": alert.id,
        }
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers, method="POST")
        opener = urllib.request.build_opener(_NoRedirects())
        try:
            with opener.open(request, timeout=SECONDS) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            raise DeliveryError(f"the address answered {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise DeliveryError(f"the address does not answer ({type(error).__name__})") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """No other address gets what this one was meant to."""


@dataclass(frozen=True, slots=True)
class Mail:
    """Mail to some addresses through an SMTP server. `scheme` smtps speaks TLS from the start, smtp asks for it (STARTTLS) where
    the server offers it, and does not send a password without it."""

    to: tuple[str, ...]
    sender: str
    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    @property
    def name(self) -> str:
        """The kind and a hash of the addresses."""
        return f"mail-{_hash(' '.join((self.host, str(self.port), *self.to)))}"

    def send(self, alert: QualityAlert, address: str) -> None:
        """Send the alert as mail. Raises DeliveryError."""
        try:
            with self._connect() as server:
                refused = server.send_message(mail_of(alert, address, self.sender, self.to))
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"the mail server did not take it ({type(error).__name__})") from None
        if refused:
            raise DeliveryError(f"the mail server refused {len(refused)} of {len(self.to)} addresses")

    def _connect(self) -> smtplib.SMTP:
        context = ssl.create_default_context()
        server: smtplib.SMTP
        if self.scheme == "smtps":
            server = smtplib.SMTP_SSL(self.host, self.port, timeout=SECONDS, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=SECONDS)
        try:
            server.ehlo()
            encrypted = self.scheme == "smtps"
            if not encrypted and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
                encrypted = True
            if self.user:
                if not encrypted:
                    raise smtplib.SMTPNotSupportedError("no TLS: the password is not sent")
                server.login(self.user, self.password)
        except BaseException:
            server.close()
            raise
        return server


def webhook_body(alert: QualityAlert, address: str) -> dict[str, Any]:
    """The alert as JSON values, and the address of its page where that is known. The id is the same at every try."""
    shown = alert.as_json()
    shown.pop("deliveries")
    return {"event": "whet.alert", **shown, **({"url": alert_page(alert, address)} if address else {})}


def slack_body(alert: QualityAlert, address: str) -> dict[str, str]:
    """The body for Slack's incoming webhooks: a text with escaped &, < and >, so that it holds no link and no mention."""
    text = alert.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:_SLACK_TEXT]
    when = f"since {iso(alert.began)[:16].replace('T', ' ')} UTC"
    name = "Review" if alert.kind == APPROVAL else "Quality over time"
    link = f"\n<{alert_page(alert, address)}|{name}>" if address else ""
    return {"text": f"{text} ({when}){link}"}


def mail_of(alert: QualityAlert, address: str, sender: str, to: Sequence[str]) -> EmailMessage:
    """The alert as a mail in plain text. Its Message-ID is the same at every try."""
    from datetime import UTC, datetime

    message = EmailMessage()
    message["Subject"] = "whet: " + " ".join(alert.text.split())[:200]
    message["From"], message["To"] = sender, ", ".join(to)
    message["Message-ID"] = f"<{alert.id}@{sender.rpartition('@')[2].strip('>') or 'whet'}>"
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Auto-Submitted"] = "auto-generated"
    lines = [alert.text, f"Since {iso(alert.began)[:16].replace('T', ' ')} UTC."]
    message.set_content("\n\n".join([*lines, *([alert_page(alert, address)] if address else [])]) + "\n")
    return message


def alert_page(alert: QualityAlert, address: str) -> str:
    """The address of the page that shows what an alert is about."""
    return f"{address}{alert.place}"


def read_channels(path: Path) -> tuple[AlertChannel, ...]:
    """The channels that a JSON file names: `{"channels": [{"webhook": URL}, {"slack": URL}, {"mail": [ADDRESS], "from": ADDRESS,
    "server": "smtp://USER@HOST:587", "password": SECRET}]}`. A URL or password `env:NAME` is that of the environment variable.

    Raises UsageError naming file and entry for anything that cannot be used.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}.") from None
    entries = value.get("channels") if isinstance(value, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise UsageError(
            f'{path}: write {{"channels": [...]}} with one entry or more, such as {{"webhook": "https://..."}}.'
        )
    if more := set(value) - {"channels"}:
        raise UsageError(f"{path}: {min(more)[:60]!r} is no key. Leave it out.")
    channels = [_read_channel(one, f"{path}: channels[{n}]") for n, one in enumerate(entries)]
    names = [channel.name for channel in channels]
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: two channels have the same address. Leave one of them out.")
    return tuple(channels)


def _read_channel(entry: object, where: str) -> AlertChannel:
    kinds = [kind for kind in _KINDS if isinstance(entry, Mapping) and kind in entry]
    if not isinstance(entry, Mapping) or len(kinds) != 1:
        raise UsageError(f"{where}: name one of {', '.join(_KINDS)}.")
    kind = kinds[0]
    for key in entry:
        if key != kind and key not in _KINDS[kind]:
            raise UsageError(f"{where}: {key[:60]!r} is no key of {kind}.{did_you_mean(key, _KINDS[kind])}")
    if kind != "mail":
        return Webhook(_url(_secret(entry[kind], f"{where}: {kind}"), f"{where}: {kind}"), kind == "slack")
    return _read_mail(entry, where)


def _read_mail(entry: Mapping[str, Any], where: str) -> Mail:
    to = [entry["mail"]] if isinstance(entry["mail"], str) else entry["mail"]
    sender, server = entry.get("from", ""), entry.get("server", "")
    if not isinstance(to, list) or not to or not all(map(_is_address, to)):
        raise UsageError(f"{where}: mail holds one address or a list of them, such as ops@example.org.")
    if not _is_address(sender):
        raise UsageError(f"{where}: from is the address that the mail comes from, such as whet@example.org.")
    try:
        parts = urlsplit(server if isinstance(server, str) else "")
        port, host, user = parts.port, parts.hostname or "", unquote(parts.username or "")
    except ValueError:
        port, host, user, parts = None, "", "", urlsplit("")
    if (
        parts.scheme not in _PORTS
        or not host
        or parts.password is not None
        or parts.path.strip("/")
        or parts.query
    ):
        raise UsageError(
            f"{where}: server is smtp://USER@HOST:587 or smtps://USER@HOST:465; the password has a key of its own."
        )
    password = _secret(entry["password"], f"{where}: password") if "password" in entry else ""
    if bool(user) != bool(password):
        raise UsageError(f"{where}: a user in server and a password belong together.")
    return Mail(tuple(to), sender, parts.scheme, host, port or _PORTS[parts.scheme], user, password)


def _is_address(text: object) -> bool:
    """Whether a text may be a mail address: one @ with something on both sides, printable ASCII without blanks and commas."""
    if not isinstance(text, str) or not text.isascii() or not text.isprintable():
        return False
    name, at, host = text.partition("@")
    return bool(name and at and host) and "@" not in host and not set(text) & set(' ,;<>"')


def _secret(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where} is a text. Write it, or env:NAME for that of an environment variable.")
    if not value.startswith(FROM_ENVIRONMENT):
        return value
    name = value.removeprefix(FROM_ENVIRONMENT)
    if not os.environ.get(name):
        raise UsageError(f"{where} is in the environment variable {name[:60]}, which is empty. Set it.")
    return os.environ[name]


def _url(text: str, where: str) -> str:
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or not text.isascii() or any(c.isspace() for c in text):
        raise UsageError(f"{where} is no address that begins with https:// or http://.")
    return text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
