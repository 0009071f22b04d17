"""The form of structured output that an endpoint takes: a JSON schema, any JSON object, or none.

An endpoint that does not take a form says so in many ways: by a 400 or 422 that names the field, or by a 400, 422, 500
or 501 that does not. So a request that fails without a named reason is sent again in the next form. When it succeeds
there, the form that failed was the reason. A form that an endpoint has answered is not doubted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from whet.types import JSON, Request, content_hash

_LADDER = SCHEMA, OBJECT, FREE = "json_schema", "json_object", "text"
_WITHOUT_REASON = (400, 422, 500, 501)


class AnswerForms:
    """The forms that one endpoint has answered and refused, for each schema.

    A form is refused when a request fails in it and is answered without it. A 500 may have any reason: a form must
    fail with it again after such an answer. While a form is doubted, new requests leave it out. A request that fails
    without any form as well shows another reason and ends all doubts. A form that is refused for one schema
    before any schema was answered in it is refused for all.
    """

    def __init__(self) -> None:
        self._answered: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()
        self._refused_for_all: set[str] = set()
        self._doubts: Counter[tuple[str, str]] = Counter()
        self._suspected: set[tuple[str, str]] = set()
        self._certain: set[tuple[str, str]] = set()
        self._failed: dict[Hashable, set[str]] = {}

    def of(self, request: Request) -> str:
        """The form in which a request goes out next; FREE for one without a schema."""
        if request.schema is None:
            return FREE
        schema = _digest(request)
        failed = self._failed.get(_key(request, schema), ()) if self._failed else ()
        forms = (SCHEMA, OBJECT) if request.schema.get("type", "object") == "object" else (SCHEMA,)
        if request.schema == {
            "type": "object"
        }:  # any object: an endpoint may hold it against a schema that it is not closed
            forms = (OBJECT, SCHEMA)
        out = (form for form in forms if form not in failed and not self._is_left_out(form, schema))
        return next(out, FREE)

    def note_answer(self, request: Request, form: str) -> set[str]:
        """Note an answer. Returns the forms that are refused from now on."""
        if request.schema is None:
            return set()
        schema = _digest(request)
        self._answered.add((form, schema))
        self._failed.pop(_key(request, schema), None)
        refused = set()
        for left_out in _LADDER[: _LADDER.index(form)]:
            pair = left_out, schema
            if pair in self._answered:
                continue
            if pair in self._certain and self.refuse(request, left_out):
                refused.add(left_out)
            elif self._doubts[pair]:
                self._suspected.add(pair)
                self._doubts[pair] = 1
        return refused

    def refuse(self, request: Request, form: str) -> bool:
        """Note a refusal. True when it is news."""
        schema = _digest(request)
        if self._is_refused(form, schema):
            return False
        self._refused.add((form, schema))
        if not any(known == form for known, _ in self._answered):
            self._refused_for_all.add(form)
        return True

    def note_failure(self, request: Request, form: str, status: int | None) -> bool:
        """Note a failure without a named reason. True when the request is worth sending in another form."""
        if status not in _WITHOUT_REASON:
            return False
        schema = _digest(request)
        if form == FREE:
            if request.schema is not None or status == 500:
                for doubts in (self._failed, self._doubts, self._suspected, self._certain):
                    doubts.clear()
            return False
        if (form, schema) in self._answered:
            return False
        self._failed.setdefault(_key(request, schema), set()).add(form)
        self._doubts[form, schema] += 1
        if status != 500 or (form, schema) in self._suspected:
            self._certain.add((form, schema))
        return True

    def _is_left_out(self, form: str, schema: str) -> bool:
        pair = form, schema
        doubted = pair in self._certain or self._doubts[pair] > 1
        return self._is_refused(form, schema) or (doubted and pair not in self._answered)

    def _is_refused(self, form: str, schema: str) -> bool:
        return form in self._refused_for_all or (form, schema) in self._refused


def response_format(
    form: str, schema: Mapping[str, JSON], options: Mapping[str, JSON] | None = None
) -> dict[str, JSON] | None:
    """The field `response_format` of a body; None where it is left out. `options`: what whoever asks says of the schema beside
    it; without them it is strict where every object in it is closed and names all of its properties, which endpoints demand then.
    """
    if form == SCHEMA:
        more: Mapping[str, JSON] = {"strict": _is_closed(dict(schema))} if options is None else options
        return {"type": SCHEMA, SCHEMA: {"name": "answer", "schema": dict(schema), **more}}
    return {"type": OBJECT} if form == OBJECT else None


def _is_closed(schema: JSON) -> bool:
    """Whether every object in a schema has all of its properties and no other ones."""
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, Mapping):
        names = set(properties) if isinstance(properties, Mapping) else set()
        required = schema.get("required")
        demanded = {str(name) for name in required} if isinstance(required, list) else set[str]()
        if schema.get("additionalProperties") is not False or names != demanded:
            return False
    return all(map(_is_closed, schema.values()))


def _digest(request: Request) -> str:
    options = request.schema_options
    return content_hash(request.schema if options is None else [request.schema, options])


def _key(request: Request, schema: str) -> Hashable:
    return schema, request.messages, request.seed, request.sample
