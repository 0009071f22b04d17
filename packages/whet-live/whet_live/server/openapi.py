"""The OpenAPI document of what programs use, made from the endpoints themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response

from whet_client.version import __version__
from whet_live.server.endpoint import SAFE, Endpoint, EndpointRouter, Spec
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import json_answer
from whet_live.server.roles import PROGRAMS, PUBLIC, Role

_PARAMETER = re.compile(r"{([a-z]+)(?::([a-z]+))?}")
_REFUSAL = {"$ref": "#/components/schemas/Refusal"}
_STATUS_TEXTS = {
    304: "It is what you have.",
    400: "Something does not fit; the message says what.",
    401: "No token, or one that does not work.",
    403: "The role does not suffice, or the token is not for this prompt.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "It contradicts what is stored.",
    413: "The body is too large.",
    415: "Another media type is needed.",
    429: "Too many requests, rows or bytes; Retry-After says when to come back.",
    503: "The database does not answer.",
    507: "As much of the sender is stored as may be.",
}


def build_router(others: Sequence[EndpointRouter]) -> EndpointRouter:
    """The router of the document of what it serves itself and the others serve."""
    router = EndpointRouter()

    @cache
    def build() -> dict[str, object]:
        return build_openapi(endpoint for one in (*others, router) for endpoint in one.endpoints)

    @router("GET", "/openapi.json", Role.VIEWER)
    async def show(call: RequestContext) -> Response:
        """This document."""
        return json_answer(build())

    return router


def build_openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The document of the endpoints that are not hidden."""
    shown = [(endpoint, endpoint.spec) for endpoint in endpoints if endpoint.spec is not None]
    kinds = [kind for _, spec in shown for kind in (spec.body, spec.answer) if _is_type(kind)]
    references, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = {id(kind): schema for kind, schema in zip(kinds, references, strict=True)}
    paths: dict[str, Any] = {}
    for endpoint, spec in shown:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, spec, schemas)
    fault = {"status": {"type": "integer"}, "message": {"type": "string"}}
    components["Refusal"] = _object({"error": _object(fault)})
    return {
        "openapi": "3.1.0",
        "info": {"title": "whet", "version": __version__, "description": "The loop around live prompts."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _object(properties: dict[str, Any]) -> dict[str, object]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _is_type(kind: object) -> bool:
    return kind is not None and not isinstance(kind, dict)


def _operation(endpoint: Endpoint, spec: Spec, schemas: dict[int, Any]) -> dict[str, Any]:
    text = (inspect.getdoc(endpoint.handle) or "").strip()
    operation: dict[str, object] = {
        "operationId": endpoint.__name__ if spec.name is None else spec.name,
        "summary": text.partition("\n")[0],
        "description": f"{text}\n\n{_who(endpoint)}",
        "parameters": [*_path_parameters(endpoint.path), *_query_parameters(spec.query)],
        "responses": _responses(endpoint, spec, schemas),
        "security": [] if endpoint.needs is PUBLIC else [{"token": []}],
    }
    if spec.body is not None:
        schema = schemas[id(spec.body)] if _is_type(spec.body) else spec.body
        operation["requestBody"] = {"required": True, "content": {spec.takes: {"schema": schema}}}
    return operation


def _who(endpoint: Endpoint) -> str:
    """The roles that may send the request, as a sentence."""
    needs = endpoint.needs
    if isinstance(needs, Role):
        return f"Role {needs.word}{', or a program' if endpoint.app else ''}."
    return "Programs only." if needs is PROGRAMS else "Anybody."


def _responses(endpoint: Endpoint, spec: Spec, schemas: dict[int, object]) -> dict[str, object]:
    good: dict[str, Any] = {"description": "Done."}
    if spec.answer is not None:
        schema = schemas[id(spec.answer)] if _is_type(spec.answer) else spec.answer
        good["content"] = {spec.kind: {"schema": schema}}
    elif spec.kind != "application/json":
        good["content"] = {spec.kind: {"schema": {"type": "string"}}}
    refusals = {400, 429, 503, *spec.refusals}
    refusals |= set() if endpoint.needs is PUBLIC else {401, 403}
    refusals |= set() if endpoint.method in SAFE else {408, 413, 415}
    responses: dict[str, object] = {str(spec.status): good}
    for status in sorted(refusals):
        response: dict[str, object] = {"description": _STATUS_TEXTS[status]}
        if status >= 400:
            response["content"] = {"application/json": {"schema": _REFUSAL}}
        responses[str(status)] = response
    return responses


def _path_parameters(path: str) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer"} if kind == "int" else {"type": "string", "minLength": 1},
        }
        for name, kind in _PARAMETER.findall(path)
    ]


def _query_parameters(kind: object) -> list[dict[str, object]]:
    if kind is None:
        return []
    (reference,), components = msgspec.json.schema_components([kind])
    schema = components[reference["$ref"].rpartition("/")[2]]
    required = set(schema.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _query_schema(part)}
        for name, part in schema["properties"].items()
    ]


def _query_schema(part: dict[str, Any]) -> dict[str, object]:
    """The schema of a value in a query string, which has no null: an absent parameter is left out."""
    (kind,) = [one for one in part.get("anyOf", [part]) if one.get("type") != "null"]
    schema = {key: value for key, value in kind.items() if key not in ("default", "description")}
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
    return schema
