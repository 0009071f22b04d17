"""A plain HTTP client that sends exactly what a test says."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

FORM = "application/x-www-form-urlencoded"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """The message of a refusal."""
        found: str = self.json["error"]["message"]
        return found


class Client:
    """Requests to one server, with a token or with the cookie of a session."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.port = port
        self.token = token
        self.cookie = ""
        self.csrf = ""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str | None) -> Answer:
        """One request. A header that is None is left out, `_` in a name is `-`."""
        given: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}"}
        if self.token is not None:
            given["Authorization"] = f"Bearer {self.token}"
        if self.cookie:
            given["Cookie"] = self.cookie
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None and "Content-Length" not in given and "Transfer-Encoding" not in given:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            headers_read = {k.lower(): v for k, v in answer.getheaders()}
            cookies = answer.msg.get_all("Set-Cookie", [])
            headers_read |= {"set-cookie": ", ".join(cookies)} if cookies else {}
            return Answer(answer.status, headers_read, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> Answer:
        """GET."""
        return self.ask("GET", path, None, **headers)

    def page(self, path: str) -> Answer:
        """GET as a browser asks for a page."""
        return self.ask("GET", path, Accept="text/html,*/*")

    def send(self, path: str, value: Any, method: str = "POST", **headers: str | None) -> Answer:
        """A JSON body."""
        return self.ask(method, path, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def submit(self, path: str, fields: dict[str, Any], **headers: str | None) -> Answer:
        """A form as the page sends it: with the session's secret and the page's origin."""
        body = urlencode({"csrf": self.csrf, **fields}, doseq=True).encode()
        given: dict[str, str | None] = {"Content_Type": FORM, "Origin": self.origin, "Accept": "text/html"}
        return self.ask("POST", path, body, **{**given, **headers})

    def sign_in(self, token: str) -> Answer:
        """Open a session, keep its cookie, and read the secret of its forms from a page."""
        answer = self.submit("/login", {"token": token})
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        if self.cookie:
            found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.page("/prompts").text)
            self.csrf = found[1] if found else ""
        return answer
