"""A thin client for any OpenAI-compatible `/chat/completions` endpoint.

One attempt per call: the engine owns retries, limits and budgets. The key lives in a `Secret`, travels in a
header, and is removed from whatever a server says before that becomes an error.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from yarl import URL

from whet.errors import ProviderError, UsageError, parameter
from whet.models.http import HttpClient, NoAnswer
from whet.models.language_model import AnswersOnly
from whet.models.openai_answers import NEGLECTS, completions, decode, embeddings, neglected, reported_usage
from whet.models.openai_forms import AnswerForms
from whet.models.openai_optional import OptionalParameters
from whet.models.openai_wire import (
    Failure,
    encode,
    garbled,
    http_error,
    refused_features,
    request_body,
)
from whet.models.secret import Secret
from whet.types import Completion, Request
from whet.variables import variable

DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_TIMEOUT = 120.0
KEY_VARIABLE = "OPENAI_API_KEY"
URL_VARIABLE = "OPENAI_BASE_URL"

_log = logging.getLogger("whet.models")
_LIMITS, _QUEUED_LIMITS = 8, 512
"""Time limits of a call after which its connection ends, in general and where calls are known to queue."""
_PATH = "/chat/completions"
_NOTHING = Request(())


class OpenAIModel(AnswersOnly):
    """A model behind an OpenAI-compatible endpoint.

    Features that the endpoint refuses (seed, n, logprobs, temperature, stop, `max_tokens` in favour of
    `max_completion_tokens`) are left out of all later requests of this object; the refused call itself is a
    ProviderError with `retryable` and `retry_after=0`. A JSON schema falls back to `json_object` and then to
    nothing (see `whet.models.openai_forms`). Each refusal is logged once. Stop sequences are applied here too,
    so that losing `stop` changes the price of an answer but not its text.
    """

    simulated = False
    local = False

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key_variable: str = KEY_VARIABLE,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """`base_url` falls back to OPENAI_BASE_URL, then to api.openai.com; `api_key` to the environment
        variable `key_variable`. `timeout` bounds a whole call, in seconds (above 0); the time in which
        a server answers calls that began earlier does not count.

        Raises UsageError for an unusable URL, key or timeout, and when api.openai.com has no key.
        """
        if not timeout > 0:
            raise UsageError(f"timeout: expected seconds above 0, found {timeout!r}.")
        self.address = f"openai/{name}"
        self._name = name
        base = _checked_url(base_url or variable(URL_VARIABLE) or DEFAULT_BASE_URL)
        self.base_url = str(base)
        self._url = base.joinpath(*_PATH.strip("/").split("/"))
        self._key = _checked_key(
            api_key if api_key is not None else variable(key_variable) or "", key_variable
        )
        if not self._key and base.host == URL(DEFAULT_BASE_URL).host:
            raise UsageError(
                f"{self.address} at api.openai.com needs a key. Set {key_variable}, "
                f"or name another endpoint with {parameter('base_url')} or {URL_VARIABLE}."
            )
        self._key_place = "api_key" if api_key is not None else key_variable
        self._timeout = timeout
        self._disabled: set[str] = set()
        self._neglected: set[str] = set()
        self._last_answer = (
            -math.inf,
            -math.inf,
        )  # when the call that was answered last began, and when it was answered
        self._forms = AnswerForms()
        self._optional = OptionalParameters()
        self._clients: dict[asyncio.AbstractEventLoop, HttpClient] = {}

    def __repr__(self) -> str:
        return f"OpenAIModel({self._name!r}, base_url={self.base_url!r})"

    async def generate(self, request: Request) -> list[Completion]:
        """One HTTP call; 1 to `request.n` completions.

        Raises ProviderError: `status` is None when no answer came (connection, timeout), else the HTTP
        status, which is 200 for a body that could not be used.
        """
        form = self._forms.of(request)
        body = request_body(self._name, request, self._disabled | self._optional.left_out(request), form)
        answer = await self._post(encode(body))
        result: list[Completion] | Failure | ProviderError
        if isinstance(answer, bytes):
            data = decode(answer)
            usage = reported_usage(data)
            result = completions(data, request, self.count_tokens, usage)
            if isinstance(result, list):
                unnamed = self._optional.answered(request, body) - self._disabled
                self._disabled |= unnamed
                self._say(self._forms.answered(request, form) | unnamed)
                self._note(neglected(body, data, usage))
                return result
        else:
            result = answer
        raise self._refusal(result, body, request, form) if isinstance(result, Failure) else result

    def _refusal(
        self, failure: Failure, body: Mapping[str, Any], request: Request, form: str
    ) -> ProviderError:
        """The error of a failure, after noting what it refuses: retryable when the next attempt leaves that out."""
        error = self._error(failure)
        refused = refused_features(failure, body)
        if refused:
            news = refused - {"schema"} - self._disabled
            self._disabled |= news
            if "schema" in refused and self._forms.refuse(request, form):
                news.add(form)
            self._say(news)
        elif error.fatal or not self._forms.failed(request, form, failure.status):
            self._optional.failed(request, body, failure.status)
            return error
        wait = error.retry_after if failure.status == 500 and not refused else 0.0
        return ProviderError(str(error), retryable=True, retry_after=wait, status=failure.status)

    def _error(self, failure: Failure) -> ProviderError:
        """The error of a failure; of a 401 with the place of the key that was sent or is missing."""
        place = self._key_place
        key = f"check the key in {place}, which was sent" if self._key else f"no key was sent: set {place}"
        return http_error(failure, self.address, self._key.scrub, key)

    async def probe(
        self, body: Mapping[str, Any]
    ) -> tuple[dict[str, Any], ProviderError | None, frozenset[str]]:
        """One attempt with a body as it is, for a diagnosis: the answer, or the error with the features that it refuses."""
        answer = await self._post(encode({"model": self._name, **body}))
        if isinstance(answer, ProviderError):
            return {}, answer, frozenset()
        try:
            value = {} if isinstance(answer, Failure) else decode(answer)
            failure = (
                answer
                if isinstance(answer, Failure)
                else completions(value, _NOTHING, self.count_tokens, None)
            )
        except ProviderError as error:
            return {}, error, frozenset()
        if isinstance(failure, Failure):
            return {}, self._error(failure), frozenset(refused_features(failure, body))
        return value, None, frozenset()

    def _say(self, refused: set[str]) -> None:
        for feature in sorted(refused):
            _log.warning("%s refuses %s; requests go without it from now on.", self.address, feature)

    def _note(self, neglects: set[str]) -> None:
        for name in sorted(neglects - self._neglected):
            self._neglected.add(name)
            _log.warning("%s %s.", self.address, NEGLECTS[name])

    async def _post(self, body: bytes, url: URL | None = None) -> bytes | Failure | ProviderError:
        """Body of a 200, another answer, or the reason why there is none.

        A call may take `timeout` seconds, counted from the last answer if that was to a call that began before it: a server
        that answers one call after the other has only begun with this one then.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        handle: asyncio.TimerHandle

        def check_time() -> None:
            nonlocal handle
            earlier, at = self._last_answer
            end = at + self._timeout
            if earlier < began and end > loop.time():
                self._note({"queue"})
                handle = loop.call_at(end, check_time)
            else:
                limit.reschedule(loop.time())

        handle = loop.call_at(began + self._timeout, check_time)
        try:
            async with asyncio.timeout(None) as limit:
                answer = await self._client(loop).post(str(url or self._url), body, self._longest_wait())
                self._last_answer = began, loop.time()
        except TimeoutError:
            return self._no_answer(f"no answer within {self._timeout:g} s")
        finally:
            handle.cancel()
        if isinstance(answer, NoAnswer):
            return (
                garbled(answer.reason)
                if answer.status == 200
                else self._no_answer(answer.reason, answer.final)
            )
        if answer.status == 200 or (answer.status < 300 and answer.body.strip()):
            return answer.body
        return Failure(answer.status, answer.body, answer.headers)

    def _longest_wait(self) -> float:
        """Seconds after which the connection itself ends. They exceed the time limit of a call, which grows while a server
        answers calls that began earlier."""
        return self._timeout * (_QUEUED_LIMITS if "queue" in self._neglected else _LIMITS)

    def _no_answer(self, what: str, final: bool = False) -> ProviderError:
        return ProviderError(
            f"{self.address} at {self._url.origin()}: {what}", retryable=not final, fatal=final
        )

    def _client(self, loop: asyncio.AbstractEventLoop) -> HttpClient:
        client = self._clients.get(loop)
        if client is None:
            headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "whet"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key.reveal()}"
            client = self._clients[loop] = HttpClient(self._url, headers, self._timeout)
        return client

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, in order, in one HTTP call to `/embeddings`. Raises ProviderError, as `generate` does."""
        body = encode({"model": self._name, "input": list(texts)})
        answer = await self._post(body, self._url.parent.parent / "embeddings")
        if isinstance(answer, ProviderError):
            raise answer
        if isinstance(answer, Failure):
            raise self._error(answer)
        vectors = embeddings(answer, len(texts))
        if vectors is None:
            raise ProviderError(
                f"{self.address}: the answer holds no vectors of {len(texts)} texts.", status=200
            )
        return vectors

    async def close(self) -> None:
        """Close the connections of the running event loop. Each loop that used the model closes its own."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


def _checked_url(text: str) -> URL:
    """The base URL without a trailing slash or `/chat/completions`. Raises UsageError, never echoing
    credentials.
    """
    try:
        url = URL(text.strip().rstrip("/").removesuffix(_PATH).rstrip("/"))
    except ValueError:
        raise UsageError(
            "The base URL cannot be read. Expected something like http://localhost:8000/v1."
        ) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError("The base URL must look like http://localhost:8000/v1 or https://host/v1.")
    if url.user or url.password or url.query_string or url.fragment:
        raise UsageError(
            f"The base URL of {url.origin()} carries credentials, a query or a fragment. "
            f"Give the bare URL; the key belongs into {KEY_VARIABLE}."
        )
    return url


def check_entrusted(base_url: str) -> None:
    """Refuse to send the key of the environment to a host that only a file names.

    It may go to this machine, to api.openai.com and to the host of OPENAI_BASE_URL. Without a key there is nothing to
    refuse. Raises UsageError naming the host.
    """
    host = _checked_url(base_url).host or ""
    own = {"localhost", URL(DEFAULT_BASE_URL).host, URL(variable(URL_VARIABLE) or "").host}
    if not (variable(KEY_VARIABLE) or "").strip() or host in own or _is_loopback(host):
        return
    raise UsageError(
        f"The task file sends the model's requests to {host}, and the key in {KEY_VARIABLE} would go with them. "
        f"If that is meant, say so with {parameter('base_url')} or {URL_VARIABLE}; if not, remove `base_url` or the key."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_key(text: str, variable: str) -> Secret:
    key = text.strip()
    if not key.isascii() or not all(" " < c < "\x7f" for c in key):
        raise UsageError(
            f"The key in {variable} holds a character that no key has (a space, a line break, an accent)."
        )
    return Secret(key)
