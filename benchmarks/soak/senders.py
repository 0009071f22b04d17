"""The apps of the simulated company: what they log through `whet_client`, bursts of feedback over plain HTTP, and the book of
every row that was sent and acknowledged."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any

from whet_client.records import Feedback

BATCH, SENDERS = 50, 4
RETRY_SECONDS, MOST_SECONDS = 0.2, 600.0


@dataclass
class RowBook:
    """Every row that an app sent: `sent` by id, with the user and, for feedback, what it says; `acknowledged` are those of the
    bursts for which a server answered 200. Threads may share it."""

    sent: dict[str, tuple[str, str, object]] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    repeated: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, key: str, user: str, what: object) -> None:
        """A row that is about to be sent."""
        with self.turn:
            self.sent[key] = (kind, user, what)

    def note_answer(self, answer: str, keys: Sequence[str], duplicates: int, seconds: float) -> None:
        """What came of one request."""
        with self.turn:
            self.answers[answer] += 1
            if answer == "200":
                self.acknowledged.update(keys)
                self.repeated += duplicates
                self.waits.append(seconds)


class BurstSender:
    """Sends feedback at a steady rate to several servers, whichever answers; a row is sent until it is acknowledged."""

    def __init__(self, ports: Sequence[int], token: str, book: RowBook) -> None:
        self._ports, self._book = list(ports), book
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.failed = list[BaseException]()

    def send(self, rows: Callable[[int], Sequence[Feedback]], rate: int, seconds: float) -> float:
        """Send `rate` rows a second for some seconds, each when it is due; how many were acknowledged a second."""
        batches, began = max(1, int(rate * seconds / BATCH)), time.monotonic()
        made = [rows(BATCH) for _ in range(batches)]
        threads = [
            threading.Thread(target=self._send_share, args=(made, n, rate, began), daemon=True)
            for n in range(SENDERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failed:
            raise self.failed[0]
        return batches * BATCH / (time.monotonic() - began)

    def _send_share(self, made: Sequence[Sequence[Feedback]], number: int, rate: int, began: float) -> None:
        place, connections = number, dict[int, HTTPConnection]()
        try:
            for n in range(number, len(made), SENDERS):
                due = began + n * BATCH / rate
                time.sleep(max(0.0, due - time.monotonic()))
                place = self._deliver(made[n], place, connections, due)
        except BaseException as error:
            self.failed.append(error)
        finally:
            for one in connections.values():
                one.close()

    def _deliver(
        self, rows: Sequence[Feedback], place: int, connections: dict[int, HTTPConnection], due: float
    ) -> int:
        """Send one request until a server acknowledges it; the place of that server."""
        body = json.dumps({"feedback": [one.as_json() for one in rows]}).encode()
        keys = [one.id for one in rows]
        while time.monotonic() < due + MOST_SECONDS:
            port = self._ports[place % len(self._ports)]
            answer, receipt = self._ask(port, body, connections)
            self._book.note_answer(answer, keys, int(receipt.get("duplicates", 0)), time.monotonic() - due)
            if answer == "200":
                return place
            if answer not in ("429", "500", "503", "no answer"):
                raise RuntimeError(f"a server refused rows for good: {answer} {receipt}")
            place += 1
            time.sleep(RETRY_SECONDS)
        raise TimeoutError(f"{len(rows)} rows were not acknowledged within {MOST_SECONDS:.0f} seconds")

    def _ask(
        self, port: int, body: bytes, connections: dict[int, HTTPConnection]
    ) -> tuple[str, Mapping[str, Any]]:
        connection = connections.setdefault(port, HTTPConnection("127.0.0.1", port, timeout=40))
        try:
            connection.request("POST", "/v1/feedback", body, self._headers)
            answer = connection.getresponse()
            return str(answer.status), json.loads(answer.read())
        except (OSError, HTTPException, ValueError):
            connection.close()
            connections.pop(port, None)
            return "no answer", {}


class AdminClient:
    """The people of the company at the JSON interface: whichever server answers."""

    def __init__(self, ports: Sequence[int], token: str) -> None:
        self._ports, self._token = list(ports), token

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer of a server that gives one, None where none does. Raises RuntimeError for a refusal."""
        for port in self._ports:
            connection = HTTPConnection("127.0.0.1", port, timeout=40)
            try:
                text = None if body is None else json.dumps(body)
                headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
                connection.request(method, path, text, headers)
                answer = connection.getresponse()
                value = json.loads(answer.read())
            except (OSError, HTTPException, ValueError):
                continue
            finally:
                connection.close()
            if answer.status in (200, 201, 202):
                return value
            if answer.status < 500 and answer.status not in (409, 429):
                raise RuntimeError(f"{method} {path}: {answer.status} {value}")
        return None
