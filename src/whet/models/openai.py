"""A thin client for any OpenAI-compatible `/chat/completions` endpoint.

One attempt per call: the engine owns retries, limits and budgets. The key lives in a `Secret`, travels in a
header, and is removed from whatever a server says before that becomes an error. An answer may come as a stream of events: its
whole body is read, and then what it adds up to.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from whet.errors import ProviderError, UsageError, parameter
from whet.models.batch_jobs import BatchJobs, check_single
from whet.models.endpoint import is_loopback, model_endpoints
from whet.models.event_stream import is_event_stream
from whet.models.http import LATE, NoAnswer
from whet.models.http_connection import CACHE_HEADERS, CACHE_KEY_HEADER, COST_HEADER, TYPE_HEADER
from whet.models.language_model import AnswersOnly
from whet.models.openai_answers import (
    NEGLECTS,
    completions,
    decode_answer,
    embeddings,
    filter_answer,
    find_neglected_options,
    pictures,
    reported_usage,
)
from whet.models.openai_forms import AnswerForms
from whet.models.openai_optional import OptionalParameters
from whet.models.openai_usage import with_cost
from whet.models.openai_wire import (
    ALTERNATE,
    MAX_TOP_LOGPROBS,
    PAGE,
    SYSTEM,
    Failure,
    as_utf8,
    encode_body,
    http_error,
    is_utf8,
    limits_of,
    loads,
    logprobs_allowed,
    refused_features,
    request_body,
    unreadable_reply,
    wants_stream,
    words_of_filter,
)
from whet.models.output_bounds import OutputBounds, TokenLimits
from whet.models.providers import PROVIDERS
from whet.models.replicas import Replica, Replicas
from whet.models.request_options import RequestOptions
from whet.types import Completion, Request, Usage, content_hash

DEFAULT_TIMEOUT = 120.0

_log = logging.getLogger("whet.models")
_PATH = ("chat", "completions")
_FORM = "response_format"
_VERSION = re.compile(r"/(?:v\d|openai\b|api\b|inference\b)")
_NOTHING = Request(())
_LONGEST_NAME = 200
_INTERRUPTED = "a web page came in the place of an answer"
_WITHOUT = {
    SYSTEM: "the system role; its text stands at the head of the first user message from now on",
    ALTERNATE: "two messages of one role after each other; they are joined from now on",
}
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "whet"}


class Reply(NamedTuple):
    """The body of an HTTP 200, the cost of the call in US dollars where a header names it, and whether a gateway's own cache
    answered."""

    body: bytes
    cost: str
    from_cache: bool


class OpenAIModel(AnswersOnly):
    """A model behind an OpenAI-compatible endpoint.

    Features that the endpoint refuses (seed, n, logprobs, temperature, stop, `max_tokens` in favour of `max_completion_tokens`)
    are left out of all later requests of this object; the refused call itself is a ProviderError with `retryable` and
    `retry_after=0`. Where the system role is refused, its text goes into the user's first message. A JSON schema falls back to
    `json_object` and then to nothing (see `whet.models.openai_forms`). An endpoint that answers in streams only is asked for
    streams from then on, and one that allows a shorter answer than was asked for gets smaller bounds
    (`whet.models.output_bounds`). Each refusal is logged once. Stop sequences are applied here too, so that losing `stop`
    changes the price of an answer but not its text.

    `variant` is a hash of the options that change answers, empty without any: it belongs to what tells answers apart.
    Several base URLs are servers of the same model (`whet.models.replicas`): what one refuses is asked of none of them, and which
    of them answered tells no answers apart.
    """

    simulated = False
    local = False
    reads_parts = True

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai",
        base_url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        key_variable: str | None = None,
        headers: Mapping[str, str] | None = None,
        options: RequestOptions | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """`base_url`, one or several, falls back to the variables of the provider (for `openai`: OPENAI_BASE_URL), then to its
        documented address; `api_key` to the environment variable `key_variable`, then to those of the provider. `headers` go with
        every request; in one `$NAME` stands for an environment variable. `timeout` bounds a whole call, in seconds (above 0);
        the time in which a server answers calls that began earlier does not count.

        Raises UsageError for an unusable URL, key, header or timeout, and when the provider's own host has no key.
        """
        if not timeout > 0:
            raise UsageError(f"timeout: expected seconds above 0, found {timeout!r}.")
        self.address = f"{provider}/{name}"
        self._name, self._provider = name, PROVIDERS[provider]
        endpoints = model_endpoints(
            provider, name, base_url=base_url, api_key=api_key, key_variable=key_variable, headers=headers
        )
        self._replicas = Replicas(self.address, endpoints, _HEADERS)
        self._endpoint = endpoints[0]
        self.base_url = self._replicas.base_url
        self._options = options or RequestOptions()
        seen = {"headers": self._endpoint.plain, "unshown": self._endpoint.unshown}
        identity = self._options.identity | {name: value for name, value in seen.items() if value}
        self.identity: Mapping[str, object] = identity
        self.variant = content_hash(identity)[:12] if identity else ""
        self._streams, self._tried_stream = bool(self._options.stream), False
        self._timeout = timeout
        self._disabled: set[str] = set()
        self._neglected: set[str] = set()
        self._forms = AnswerForms()
        self._optional = OptionalParameters()
        self._bounds, self._lowered = OutputBounds(), set[int]()
        self._answered = False
        self._most_logprobs = MAX_TOP_LOGPROBS
        self._batch_jobs: BatchJobs | None = None

    def __repr__(self) -> str:
        return f"OpenAIModel({self._name!r}, base_url={self.base_url!r})"

    async def generate(self, request: Request) -> list[Completion]:
        """One HTTP call; 1 to `request.n` completions.

        Raises ProviderError: `status` is None when no answer came (connection, timeout), else the HTTP
        status, which is 200 for a body that could not be used.
        """
        request = self._options.settle(request)
        form = self._forms.of(request)
        body = self._as_asked(self._body_of(request, form))
        answer = await self._post(encode_body(body))
        result: list[Completion] | Failure | ProviderError
        usage: Usage | None = None
        if isinstance(answer, Reply):
            self._note_stream(answer.body)
            data = self._decode(answer.body)
            reported = reported_usage(data)
            usage = reported and with_cost(reported, answer.cost)
            if answer.from_cache:  # some gateways report no tokens then
                usage = replace(usage or Usage(), free=True)
            result = completions(data, request, self.count_tokens, usage, answer.cost, self._answering(data))
            if isinstance(result, list):
                self._answered = True
                self._bounds.note_answer(request)
                unnamed = self._optional.note_answer(request, body) - self._disabled
                self._disabled |= unnamed
                self._say(self._forms.note_answer(request, form) | unnamed)
                neglects = find_neglected_options(body, data, usage)
                self._note(neglects if is_utf8(answer.body) else {*neglects, "bytes"})
                return self._options.close_tags(result)
        else:
            result = answer
        if not isinstance(result, Failure):
            raise result
        error = self._refusal(result, body, request, form)
        words = words_of_filter(result, error)
        if words is None:
            raise error
        filtered = filter_answer(result.status, self._endpoint.scrub(words), request, self.count_tokens)
        return [filtered if usage is None else replace(filtered, usage=usage)]

    def _answering(self, data: Mapping[str, object]) -> str:
        """The model that an answer names; none of several servers, which may each have a name of their own for it."""
        name = data.get("model")
        several = len(self._replicas.all) > 1
        return name.strip()[:_LONGEST_NAME] if isinstance(name, str) and not several else ""

    def _body_of(self, request: Request, form: str) -> dict[str, object]:
        """The body of a settled request, its schema in this form, as far as the endpoint takes it."""
        fitted = self._bounds.fit(request)
        if fitted.top_logprobs > self._most_logprobs:
            fitted = replace(fitted, top_logprobs=self._most_logprobs)
        self._note_bound(request.max_tokens, fitted.max_tokens)
        body = request_body(self._name, fitted, self._disabled | self._optional.left_out(request), form)
        return self._options.extend(body)

    @property
    def batch_jobs(self) -> BatchJobs:
        """The batches of the endpoint. Raises UsageError where the model has several base URLs."""
        check_single(self.address, self._replicas.all)
        if self._batch_jobs is None:
            self._batch_jobs = BatchJobs(self.address, self._endpoint)
        return self._batch_jobs

    def batch_body(self, request: Request) -> dict[str, object]:
        """The body of a request as a line of a batch has it: what `generate` would send, and never a stream."""
        request = self._options.settle(request)
        return self._body_of(request, self._forms.of(request))

    def read_batched(self, request: Request, status: int, body: bytes) -> list[Completion]:
        """The completions of a request that was answered in a batch. Raises ProviderError, as `generate` does."""
        request = self._options.settle(request)
        result: list[Completion] | Failure = Failure(status, body, {})
        if status == 200:
            data = decode_answer(body)
            usage = reported_usage(data)
            result = completions(data, request, self.count_tokens, usage, model=self._answering(data))
            if isinstance(result, list):
                return self._options.close_tags(result)
        assert isinstance(result, Failure)
        error = self._error(result)
        words = words_of_filter(result, error)
        if words is None:
            raise error
        return [filter_answer(result.status, self._endpoint.scrub(words), request, self.count_tokens)]

    def _decode(self, answer: bytes) -> dict[str, Any]:
        """The content of an HTTP 200. A web page means that the address is wrong. Where the endpoint has answered there before,
        a proxy on the way wrote the page, and the next attempt may pass."""
        try:
            return decode_answer(answer)
        except ProviderError as error:
            if error.fatal and self._answered:
                raise ProviderError(
                    f"{self.address}: {_INTERRUPTED}", retryable=True, status=200, billed=False
                ) from None
            raise

    def _as_asked(self, body: dict[str, object]) -> dict[str, object]:
        """The body of a request for a stream, where the endpoint answers in streams."""
        if not self._streams:
            return body
        usage = {} if "stream_options" in self._disabled else {"stream_options": {"include_usage": True}}
        return {**body, "stream": True, **usage}

    def _refusal(
        self, failure: Failure, body: Mapping[str, object], request: Request, form: str
    ) -> ProviderError:
        """The error of a failure, after noting what it refuses: retryable when the next attempt leaves that out."""
        error = self._error(failure)
        if self._switches_stream(failure, body):
            return _again(error, failure)
        limits, sent = limits_of(failure, body)
        if limits is not None:
            if self._bounds.learn(request, limits, sent):
                return _again(error, failure)
            return self._too_long(error, limits)
        most = logprobs_allowed(failure, body)
        if most is not None:
            if most < self._most_logprobs:
                self._most_logprobs = most
                _log.warning(
                    "%s names at most %d candidates of a token; it is asked for so many.", self.address, most
                )
            return _again(error, failure)
        refused = refused_features(failure, body)
        if refused:
            news = refused - {"schema"} - self._disabled
            self._disabled |= news
            if "schema" in refused and self._forms.refuse(request, form):
                news.add(form)
            self._say(news)
        elif error.fatal or not self._forms.note_failure(request, form, failure.status):
            self._optional.note_failure(request, body, failure.status)
            return error
        wait = error.retry_after if failure.status == 500 and not refused else 0.0
        return ProviderError(str(error), retryable=True, retry_after=wait, status=failure.status)

    def _switches_stream(self, failure: Failure, body: Mapping[str, object]) -> bool:
        """Whether the next attempt asks for a stream because of this failure, or no longer does."""
        if self._options.stream is not None or not wants_stream(failure, body):
            return False
        streamed = "stream" in body
        if streamed != self._streams:
            return True  # another request has found it out
        if self._answered or (self._tried_stream and not streamed):
            return False
        self._streams = self._tried_stream = not streamed
        if self._streams:
            _log.warning("%s answers in streams only; requests ask for one from now on.", self.address)
        return True

    def _too_long(self, error: ProviderError, limits: TokenLimits) -> ProviderError:
        """The error of a request whose input leaves no room for an answer, with what can be done."""
        held = "" if limits.context is None else f": the model holds {limits.context:,} tokens"
        spent = "" if limits.input is None else f", and the input has {limits.input:,}"
        spent = spent if held else spent.replace(", and", ":")
        return ProviderError(
            f"{str(error).rstrip('.')}. The input leaves no room for an answer{held}{spent}. Shorten the prompt or the row, "
            "or take a model with a longer context (of a server of your own: a setting of the server).",
            status=error.status,
            billed=error.billed,
        )

    def _note_stream(self, answer: bytes) -> None:
        """Ask for a stream from now on where one came unasked: then the usage is reported."""
        if not self._streams and self._options.stream is None and is_event_stream(answer):
            self._streams = True

    def _note_bound(self, bound: int | None, sent: int | None) -> None:
        """Say once for each bound that another one is asked for."""
        if bound is None or sent is None or sent == bound or bound in self._lowered:
            return
        self._lowered.add(bound)
        _log.warning(
            "%s does not allow %d tokens for an answer to this request; it is asked for %d.",
            self.address,
            bound,
            sent,
        )

    def _error(self, failure: Failure) -> ProviderError:
        """The error of a failure; of a 401 with the place of the key that was sent or is missing."""
        place, base = self._endpoint.key_place, self._endpoint.url()
        sent = bool(self._endpoint.key) or place == "headers"
        key = f"check the key in {place}, which was sent" if sent else f"no key was sent: set {place}"
        bare = failure.status in (404, 405) and not _VERSION.search(base.path)
        path = f"try the base URL {base.with_query(None).joinpath('v1')}" if bare else ""
        fatal = failure.status in (401, 402, 403, 404, 405)
        who = f"{self.address} at {failure.place}" if failure.place and fatal else self.address
        error = http_error(failure, who, self._endpoint.scrub, key, path)
        if not self._answered or failure.inside or failure.status >= 500:
            return error
        if PAGE.match(failure.body):
            words = f"{self.address}: HTTP {failure.status}: {_INTERRUPTED}"
            return ProviderError(words, retryable=True, status=failure.status)
        if failure.status < 400:  # an empty answer, or a way elsewhere, of something on the way
            return ProviderError(str(error), retryable=True, status=failure.status)
        return error

    async def probe(
        self, body: Mapping[str, object]
    ) -> tuple[dict[str, object], ProviderError | None, frozenset[str]]:
        """One attempt with a body as it is, for a diagnosis: the answer, or the error with the features that it refuses. A second
        one where the endpoint turns out to answer in streams only.
        """
        while True:
            sent = self._as_asked(self._options.extend({"model": self._name, **body}))
            answer = await self._post(encode_body(sent))
            if isinstance(answer, ProviderError):
                return {}, answer, frozenset()
            try:
                value = {} if isinstance(answer, Failure) else decode_answer(answer.body)
                failure = (
                    answer
                    if isinstance(answer, Failure)
                    else completions(value, _NOTHING, self.count_tokens, None)
                )
            except ProviderError as error:
                return {}, error, frozenset()
            if not isinstance(failure, Failure):
                self._answered = True
                return value, None, frozenset()
            if self._switches_stream(failure, sent):
                continue
            return {}, self._error(failure), frozenset(refused_features(failure, body))

    @property
    def streams(self) -> bool:
        """Whether requests ask for a stream."""
        return self._streams

    def _say(self, refused: set[str]) -> None:
        for feature in sorted(refused):
            words = _WITHOUT.get(feature, f"{feature}; requests go without it from now on")
            _log.warning("%s refuses %s.", self.address, words)

    def _note(self, neglects: set[str]) -> None:
        for name in sorted(neglects - self._neglected):
            self._neglected.add(name)
            _log.warning("%s %s.", self.address, NEGLECTS[name])

    async def _post(self, body: bytes, path: tuple[str, ...] = _PATH) -> Reply | Failure | ProviderError:
        """The answer of a 200, another answer, or the reason why there is none."""
        replica, answer = await self._replicas.post(body, path, self._timeout, lambda: self._note({"queue"}))
        if isinstance(answer, NoAnswer):
            if answer.reason == LATE:  # a provider that has answered before has worked on it, and bills that
                return self._no_answer(
                    replica, f"no answer within {self._timeout:g} s", billed=self._answered
                )
            if answer.status == 200:
                return unreadable_reply(answer.reason)
            return self._no_answer(replica, answer.reason, answer.final, answer.unreached)
        if answer.status == 200 or (answer.status < 300 and answer.body.strip()):
            body = as_utf8(answer.body, answer.headers.get(TYPE_HEADER, ""))
            return Reply(body, answer.headers.get(COST_HEADER, ""), _is_from_cache(answer.headers))
        several = len(self._replicas.all) > 1
        return Failure(
            answer.status, answer.body, answer.headers, place=str(replica.origin) if several else ""
        )

    def _no_answer(
        self,
        replica: Replica,
        what: str,
        final: bool = False,
        unreached: bool = False,
        billed: bool = False,
    ) -> ProviderError:
        if "refused" in what and "proxy" not in what and is_loopback(replica.endpoint.host):
            what += f"; no server is listening there. Start it, or name another address with {parameter('base_url')}"
        return ProviderError(
            f"{self.address} at {replica.origin}: {what}",
            retryable=not final,
            fatal=final,
            refused=unreached,
            billed=billed,
        )

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], Usage]:
        """One vector a text, in order, in one HTTP call to `/embeddings`, and the tokens that it took. Raises ProviderError, as
        `generate` does."""
        body = {"model": self._name, "input": list(texts), **(self._options.extra_body or {})}
        answer = await self._post(encode_body(body), ("embeddings",))
        if isinstance(answer, ProviderError):
            raise answer
        if isinstance(answer, Failure):
            raise self._error(answer)
        vectors = embeddings(answer.body, len(texts))
        if vectors is None:
            raise ProviderError(
                f"{self.address}: the answer holds no vectors of {len(texts)} texts.", status=200
            )
        usage = reported_usage(loads(answer.body))
        if usage is None:
            self._note({"usage"})
            usage = Usage(sum(self.count_tokens(text) for text in texts), estimated=True)
        return vectors, with_cost(usage, answer.cost)

    async def paint(self, text: str, request: Request) -> Completion | tuple[list[bytes], Usage]:
        """1 to `request.n` pictures of a text in one HTTP call to `/images/generations`, as files, and what they took; a
        completion where a filter refused them. Raises ProviderError, as `generate` does."""
        body: dict[str, object] = {"model": self._name, "prompt": text}
        body |= {"n": request.n} if request.n > 1 else {}
        body |= {} if _FORM in self._disabled else {_FORM: "b64_json"}
        body |= self._options.extra_body or {}
        answer = await self._post(encode_body(body), ("images", "generations"))
        if isinstance(answer, ProviderError):
            raise answer
        if isinstance(answer, Failure):
            if answer.status in (400, 422) and _FORM in body and _FORM.encode() in answer.body:
                self._disabled.add(_FORM)
                raise _again(self._error(answer), answer)
            error = self._error(answer)
            words = words_of_filter(answer, error)
            if words is None:
                raise error
            return filter_answer(answer.status, self._endpoint.scrub(words), request, self.count_tokens)
        files = pictures(answer.body)
        if files is None:
            raise ProviderError(
                f"{self.address}: the answer holds no pictures (`data` with `b64_json`). whet fetches none from an address: name "
                "an endpoint that sends them.",
                status=200,
                fatal=True,
            )
        usage = reported_usage(loads(answer.body)) or Usage(self.count_tokens(text), estimated=True)
        return files, with_cost(usage, answer.cost)

    async def close(self) -> None:
        """Close the connections of the running event loop. Each loop that used the model closes its own."""
        await self._replicas.close()
        if self._batch_jobs is not None:
            await self._batch_jobs.close()


def _is_from_cache(headers: Mapping[str, str]) -> bool:
    """Whether a gateway's own cache answered: its header says so, or LiteLLM's names an answer of its cache that cost nothing."""
    if not headers:
        return False
    statuses = [headers[name] for name in CACHE_HEADERS if name in headers]
    if any("hit" in words.casefold().split() for words in statuses):
        return True
    named = headers.get(CACHE_KEY_HEADER, "").strip()
    return bool(named) and re.fullmatch(r"\s*0(?:\.0*)?\s*", headers.get(COST_HEADER, "")) is not None


def _again(error: ProviderError, failure: Failure) -> ProviderError:
    """The error of a request that goes out at once in another form."""
    return ProviderError(str(error), retryable=True, retry_after=0.0, status=failure.status, billed=False)
