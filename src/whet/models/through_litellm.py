"""`litellm/NAME`: a model by way of the package litellm, which knows further providers and their own protocols."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whet._util.variables import variable
from whet.errors import ProviderError, UsageError
from whet.models.language_model import AnswersOnly, LanguageModel
from whet.models.openai_answers import completions, filter_answer, reported_usage
from whet.models.openai_wire import Failure, filter_words, http_error, refused_features, request_body
from whet.models.request_options import RequestOptions
from whet.models.secret import Secret
from whet.types import Completion, Request, Usage, content_hash

DEFAULT_TIMEOUT = 120.0
_log = logging.getLogger("whet.models")
_DROPPED = ("model", "messages")


def load(
    name: str,
    *,
    base_url: str | None = None,
    key_variable: str | None = None,
    options: RequestOptions | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> LanguageModel:
    """The model. Raises UsageError where the package is not installed."""
    try:
        import litellm
    except ModuleNotFoundError as error:
        raise UsageError(
            f"litellm/{name} needs {error.name}. Install it with: pip install 'whet[litellm]'"
        ) from error
    return LiteLLMModel(litellm, name, base_url, key_variable, options or RequestOptions(), timeout)


class LiteLLMModel(AnswersOnly):
    """A model that litellm reaches. Its keys are those that litellm looks for; it drops parameters that a provider does not
    take, as does this model after the first refusal. Each call is one attempt, because the engine repeats calls."""

    simulated = False
    local = False
    reads_parts = True

    def __init__(
        self,
        package: Any,
        name: str,
        base_url: str | None,
        key_variable: str | None,
        options: RequestOptions,
        timeout: float,
    ) -> None:
        """Raises UsageError for a variable that is not set, and for a timeout that is not above 0."""
        if not timeout > 0:
            raise UsageError(f"timeout: expected seconds above 0, found {timeout!r}.")
        key = "" if key_variable is None else (variable(key_variable) or "").strip()
        if key_variable is not None and not key:
            raise UsageError(
                f"litellm/{name}: `key_variable` names {key_variable}, which is not set. Set it."
            )
        self.address = f"litellm/{name}"
        self.base_url = base_url or ""
        self.identity: Mapping[str, object] = options.identity
        self.variant = content_hash(options.identity)[:12] if options.identity else ""
        self._package, self._name, self._options, self._timeout = package, name, options, timeout
        self._key = Secret(key)
        self._disabled: set[str] = set()

    def __repr__(self) -> str:
        return f"LiteLLMModel({self._name!r})"

    async def generate(self, request: Request) -> list[Completion]:
        """One call; 1 to `request.n` completions. Raises ProviderError with the status that litellm reports."""
        request = self._options.settle(request)
        body = self._options.extend(request_body(self._name, request, self._disabled))
        values: dict[str, object] = {key: value for key, value in body.items() if key not in _DROPPED}
        if self.base_url:
            values["api_base"] = self.base_url
        if self._key:
            values["api_key"] = self._key.reveal()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._package.acompletion(
                    model=self._name, messages=body["messages"], drop_params=True, num_retries=0, **values
                )
        except TimeoutError:
            raise ProviderError(
                f"{self.address}: no answer within {self._timeout:g} s", retryable=True
            ) from None
        except Exception as error:
            failure = self._failure(error)
            words = None if failure is None else filter_words(failure)
            if failure is None or words is None:
                raise self._refusal(error, failure, body) from None
            return [filter_answer(failure.status, words, request, self.count_tokens)]
        data = answer.model_dump()
        usage = reported_usage(data)
        if (getattr(answer, "_hidden_params", None) or {}).get("cache_hit"):  # litellm's own cache answered
            usage = replace(usage or Usage(), free=True)
        made = completions(data, request, self.count_tokens, usage)
        if isinstance(made, Failure):
            if (words := filter_words(made)) is None:
                raise http_error(made, self.address, self._key.scrub)
            return [filter_answer(made.status, words, request, self.count_tokens)]
        return self._options.close_tags(made)

    def _failure(self, error: Exception) -> Failure | None:
        """The endpoint's answer in an exception of litellm; None if there was none."""
        status = getattr(error, "status_code", None)
        if not isinstance(status, int) or status < 400:
            return None
        response = getattr(error, "response", None)
        headers = {str(k).lower(): str(v) for k, v in dict(getattr(response, "headers", None) or {}).items()}
        raw = json.dumps({"error": {"message": self._key.scrub(str(error))}}).encode()
        return Failure(status, raw, headers)

    def _refusal(
        self, error: Exception, failure: Failure | None, body: Mapping[str, object]
    ) -> ProviderError:
        """The error of a call, after noting what the provider refuses in it: retryable when the next attempt leaves that out."""
        refused = set() if failure is None else refused_features(failure, body) - {"schema"}
        for feature in sorted(refused - self._disabled):
            _log.warning("%s refuses %s; requests go without it from now on.", self.address, feature)
        self._disabled |= refused
        as_said = self._error(error, failure)
        return ProviderError(str(as_said), retryable=True, status=as_said.status) if refused else as_said

    def _error(self, error: Exception, failure: Failure | None) -> ProviderError:
        """The error that an exception of litellm stands for; one without a status is no answer."""
        if failure is not None:
            return http_error(failure, self.address, self._key.scrub)
        words = self._key.scrub(str(error))
        return ProviderError(f"{self.address}: {type(error).__name__}: {words[:300]}", retryable=True)

    async def close(self) -> None:
        """Nothing to release: litellm keeps its connections."""
