"""Alerts on their way: to a real HTTP server and a real SMTP server, once each, again after a failure, by one at a time."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.quality.receivers import Inbox, Received, http_receiver, smtp_receiver

from whet.errors import UsageError
from whet_client.ids import now
from whet_live import Live
from whet_live.database import Database
from whet_live.quality.alerts import QualityAlert, store_alert
from whet_live.quality.channels import Mail, Webhook, read_channels
from whet_live.quality.delivery import PAUSES, deliver_due

MINUTE = 60_000_000
ADDRESS = "https://whet.example.org"


@pytest.fixture
def web() -> Iterator[Received]:
    with http_receiver() as found:
        yield found


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with smtp_receiver() as found:
        yield found


def notice(
    database: Database, text: str = "shop/help: thumbs up fell from 80.0% to 50.0%", **more: Any
) -> str:
    """An alert as the watch writes it; returns its id."""
    values: dict[str, Any] = {"worse": True, "began": now() - 60 * MINUTE, "at": now(), **more}
    alert = QualityAlert(
        "", text, "drift", "shop/help", "thumb", text=text, details={"before": "80.0%"}, **values
    )
    with database.begin() as connection:
        stored = store_alert(connection, alert)
    assert stored is not None
    return stored.id


def states(database: Database) -> list[dict[str, str]]:
    return [dict(one.deliveries) for one in Live(database).quality.alerts().items]


def test_a_webhook_gets_the_alert_once(database: Database, web: Received) -> None:
    id = notice(database)
    channel = Webhook(f"{web.url}/hook")
    assert [deliver_due(database, [channel], ADDRESS) for _ in range(3)] == [1, 0, 0]
    (body,) = web.bodies
    assert body == {
        "event": "whet.alert", "id": id, "kind": "drift", "prompt": "shop/help", "measure": "thumb", "worse": True,
        "text": "shop/help: thumbs up fell from 80.0% to 50.0%", "began": body["began"], "at": body["at"],
        "details": {"before": "80.0%"}, "url": f"{ADDRESS}/quality/shop/help",
    }  # fmt: skip
    assert states(database) == [{channel.name: "sent"}]


def test_slack_gets_a_text_in_which_nothing_is_a_mention(database: Database, web: Received) -> None:
    notice(database, "<!channel> & <https://evil.example|click>")
    assert deliver_due(database, [Webhook(web.url, slack=True)], ADDRESS) == 1
    (body,) = web.bodies
    assert set(body) == {"text"}
    assert body["text"].startswith("&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt; (since ")
    assert body["text"].endswith(f"<{ADDRESS}/quality/shop/help|Quality over time>")


def test_a_winner_that_waits_leads_to_the_page_where_it_is_approved(
    database: Database, web: Received
) -> None:
    alert = QualityAlert(
        "", "approval|p1", "approval", "shop/help", "thumb", True, now(), now(), "shop/help: version 2 waits", {"proposal": "p1"}
    )  # fmt: skip
    with database.begin() as connection:
        store_alert(connection, alert)
    assert deliver_due(database, [Webhook(web.url), Webhook(f"{web.url}/slack", slack=True)], ADDRESS) == 2
    first, slack = sorted(web.bodies, key=len, reverse=True)
    assert (first["kind"], first["url"]) == ("approval", f"{ADDRESS}/review/p1")
    assert slack["text"].endswith(f"<{ADDRESS}/review/p1|Review>")


def test_mail_gets_the_alert(database: Database, inbox: Inbox) -> None:
    id = notice(database, "shop/help: thumbs up\nBcc: evil@example.org")
    channel = Mail(
        ("ops@example.org", "eva@example.org"), "whet@example.org", "smtp", "127.0.0.1", inbox.port
    )
    assert deliver_due(database, [channel], ADDRESS) == 1
    (mail,) = inbox.mails
    assert inbox.envelopes == [("whet@example.org", ["ops@example.org", "eva@example.org"])]
    assert mail["Subject"] == "whet: shop/help: thumbs up Bcc: evil@example.org" and mail["Bcc"] is None
    assert mail["Message-ID"] == f"<{id}@example.org>"
    assert f"{ADDRESS}/quality/shop/help" in mail.get_content()


def test_what_fails_is_tried_again_later_and_at_last_given_up(database: Database, web: Received) -> None:
    notice(database)
    channel, moment = Webhook(web.url), now()
    web.refusals = [500] * (len(PAUSES) + 1)
    for pause in PAUSES:
        assert deliver_due(database, [channel], moment=moment) == 0
        assert deliver_due(database, [channel], moment=moment + pause * 1_000_000 - 1) == 0
        moment += pause * 1_000_000
    assert len(web.bodies) == len(PAUSES)
    assert states(database) == [{channel.name: "waiting"}]
    assert deliver_due(database, [channel], moment=moment) == 0
    assert states(database) == [{channel.name: "failed"}]
    assert deliver_due(database, [channel], moment=moment + 10**12) == 0
    assert len({body["id"] for body in web.bodies}) == 1


def test_it_arrives_when_the_receiver_is_back(database: Database, web: Received) -> None:
    notice(database)
    channel, moment = Webhook(web.url), now()
    web.refusals = [503]
    assert deliver_due(database, [channel], moment=moment) == 0
    assert deliver_due(database, [channel], moment=moment + MINUTE) == 1
    assert states(database) == [{channel.name: "sent"}]


def test_one_dead_channel_holds_up_no_other(database: Database, web: Received, inbox: Inbox) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = Webhook(f"http://127.0.0.1:{taken.getsockname()[1]}/")
        mail = Mail(("ops@example.org",), "whet@example.org", "smtp", "127.0.0.1", inbox.port)
        notice(database)
        assert deliver_due(database, [dead, Webhook(web.url), mail]) == 2
    assert len(web.bodies) == len(inbox.mails) == 1
    assert sorted(states(database)[0].values()) == ["sent", "sent", "waiting"]


def test_no_redirection_is_followed(database: Database, web: Received) -> None:
    notice(database)
    web.refusals = [302]
    assert deliver_due(database, [Webhook(web.url)]) == 0
    assert web.paths == ["/"] or web.paths == [""]


def test_a_recipient_that_is_refused_is_a_failure(database: Database, inbox: Inbox) -> None:
    notice(database)
    inbox.refuses = {"ops@example.org"}
    assert (
        deliver_due(database, [Mail(("ops@example.org",), "w@example.org", "smtp", "127.0.0.1", inbox.port)])
        == 0
    )
    assert inbox.mails == []


def test_a_password_is_not_sent_without_tls(database: Database, inbox: Inbox) -> None:
    notice(database)
    mail = Mail(("ops@example.org",), "w@example.org", "smtp", "127.0.0.1", inbox.port, "eva", "secret")
    assert deliver_due(database, [mail]) == 0 and inbox.mails == []


def test_a_delivery_that_somebody_makes_is_made_by_nobody_else(database: Database, web: Received) -> None:
    """The second server looks while the first one sends."""
    notice(database)

    class Slow(Webhook):
        def send(self, alert: QualityAlert, address: str) -> None:
            assert deliver_due(database, [Webhook(web.url)]) == 0
            super().send(alert, address)

    assert deliver_due(database, [Slow(web.url)]) == 1
    assert len(web.bodies) == 1


def test_old_news_and_good_news_are_not_sent(database: Database, web: Received) -> None:
    notice(database, "old", at=now() - 4 * 24 * 60 * MINUTE)
    notice(database, "good", worse=False)
    assert deliver_due(database, [Webhook(web.url)]) == 0
    assert web.bodies == []


def test_the_same_thing_is_written_down_once(database: Database) -> None:
    notice(database)
    again = QualityAlert(
        "", "shop/help: thumbs up fell from 80.0% to 50.0%", "drift", "shop/help", "thumb", True, 0, 0, "x"
    )
    with database.begin() as connection:
        assert store_alert(connection, again) is None


def test_no_address_is_stored(database: Database, web: Received) -> None:
    notice(database)
    deliver_due(database, [Webhook(f"{web.url}/secret-token")])
    with database.read() as connection:
        rows = connection.exec_driver_sql("SELECT channel, error FROM quality_deliveries").all()
    assert rows and not any("secret" in str(row) for row in rows)


# The file


def read(tmp_path: Path, value: object) -> Any:
    path = tmp_path / "alerts.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return read_channels(path)


def test_the_file_names_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK", "https://hooks.slack.com/services/x")
    monkeypatch.setenv("SECRET", "pass:word")
    server = "smtps://eva%40x@mail.example.org"
    channels = read(tmp_path, {"channels": [
        {"webhook": "https://example.org/hook"}, {"slack": "env:SLACK"},
        {"mail": "ops@example.org", "from": "whet@example.org", "server": server, "password": "env:SECRET"},
    ]})  # fmt: skip
    assert channels == (
        Webhook("https://example.org/hook"),
        Webhook("https://hooks.slack.com/services/x", slack=True),
        Mail(
            ("ops@example.org",), "whet@example.org", "smtps", "mail.example.org", 465, "eva@x", "pass:word"
        ),
    )
    assert len({one.name for one in channels}) == 3


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("{", "cannot be read as JSON"),
        ({}, "one entry or more"),
        ({"channels": [{"webhook": "https://a.b"}], "more": 1}, "'more' is no key"),
        ({"channels": [{"hook": "x"}]}, "name one of webhook, slack, mail"),
        ({"channels": [{"webhook": "ftp://a.b"}]}, "no address"),
        ({"channels": [{"webhook": "https://a.b", "server": "x"}]}, "no key of webhook"),
        ({"channels": [{"webhook": "https://a.b"}, {"webhook": "https://a.b"}]}, "same address"),
        ({"channels": [{"slack": "env:NO_SUCH_VARIABLE"}]}, "NO_SUCH_VARIABLE"),
        ({"channels": [{"mail": [], "from": "a@b", "server": "smtp://h"}]}, "one address or a list"),
        (
            {"channels": [{"mail": "a@b\nBcc: c@d", "from": "a@b", "server": "smtp://h"}]},
            "one address or a list",
        ),
        ({"channels": [{"mail": "a@b", "server": "smtp://h"}]}, "from is the address"),
        ({"channels": [{"mail": "a@b", "from": "a@b", "server": "h:25"}]}, "server is smtp"),
        ({"channels": [{"mail": "a@b", "from": "a@b", "server": "smtp://u:p@h"}]}, "a key of its own"),
        ({"channels": [{"mail": "a@b", "from": "a@b", "server": "smtp://u@h"}]}, "belong together"),
    ],
)
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, value: object, part: str) -> None:
    with pytest.raises(UsageError, match=part) as caught:
        read(tmp_path, value)
    assert "alerts.json" in str(caught.value)
