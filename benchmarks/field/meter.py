"""`Meter`: an address in front of an OpenAI-compatible endpoint that counts what each role asks, and refuses what is too much."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

_LOCAL = "127.0.0.1"


class Meter:
    """Passes calls of tools that are no part of whet on to an endpoint, within `with`.

    Each role of `models` has a base URL of its own, and the model of its calls is the one named there, whatever the tool calls
    it. `limits` are the most calls of a role: those after it are answered with HTTP 403, which no client tries again. A call
    counts when the endpoint answered it.
    """

    def __init__(
        self,
        base_url: str,
        models: Mapping[str, str],
        limits: Mapping[str, int],
        timeout: float,
        api_key: str,
    ) -> None:
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._base_url, self._models, self._limits = base_url.rstrip("/"), models, limits
        self._timeout, self._key = timeout, api_key
        meter = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and body are two writes

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, body = meter._passed_on(self.path, asked)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 128

        self._server = Server((_LOCAL, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def url(self, role: str) -> str:
        """The base URL of a role."""
        return f"http://{_LOCAL}:{self._server.server_port}/{role}/v1"

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _passed_on(self, path: str, asked: bytes) -> tuple[int, bytes]:
        role, _, rest = path.strip("/").partition("/v1/")
        if role not in self._models:
            return 404, _refusal(f"There is no role {role!r}. There are: {', '.join(self._models)}.")
        with self._lock:
            if self.calls[f"{role} asked"] >= self._limits.get(role, 10**9):
                self.calls[f"{role} refused"] += 1
                return 403, _refusal(f"The calls of the role {role} are used up: {self._limits[role]}.")
            self.calls[f"{role} asked"] += 1
        body = json.dumps({**json.loads(asked), "model": self._models[role]}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        request = urllib.request.Request(f"{self._base_url}/{rest}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as reply:
                answer = reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            return 502, _refusal(f"{self._base_url} did not answer: {error!r}")
        usage = json.loads(answer).get("usage") or {}
        with self._lock:
            self.calls[role] += 1
            self.calls[f"{role} read"] += usage.get("prompt_tokens", 0)
            self.calls[f"{role} written"] += usage.get("completion_tokens", 0)
        return 200, answer


def _refusal(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()
