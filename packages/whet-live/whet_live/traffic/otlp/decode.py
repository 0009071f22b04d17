"""OTLP/HTTP bodies, JSON and protobuf, as plain spans and log records; and the answers that the protocol wants."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import orjson

from whet.errors import UsageError
from whet_live.traffic.long_numbers import read_json

JSON_TYPE, PROTOBUF_TYPE = "application/json", "application/x-protobuf"
SIGNALS = ("traces", "logs")
_NAMES = {"traces": ("Spans", "Spans"), "logs": ("Logs", "LogRecords")}
_SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
    "logs": "opentelemetry.proto.collector.logs.v1.logs_service_pb2",
}
_DEEPEST = 32
_INVALID_ARGUMENT = 3
UNNAMED_ERROR = "error"
"""The text of a failed status without a message."""


class _Read(dict[str, Any]):
    """Attributes that are plain values already."""


class Unsupported(UsageError):
    """A content type that cannot be read (status 415)."""


@dataclass(frozen=True, slots=True)
class OtelEvent:
    """A named event with attributes, inside a span or as a log record of its own. `time` in nanoseconds."""

    name: str
    time: int
    attributes: Mapping[str, object]
    trace: str = ""
    span: str = ""
    resource: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OtlpSpan:
    """A span. Ids are lower-case hex, `start` and `end` nanoseconds since 1970, `error` the text of a failed status."""

    trace: str
    id: str
    name: str
    start: int
    end: int
    attributes: Mapping[str, object]
    events: tuple[OtelEvent, ...] = ()
    error: str | None = None
    resource: Mapping[str, object] = field(default_factory=dict)
    parent: str = ""


def media_type(content_type: str | None) -> str:
    """JSON_TYPE or PROTOBUF_TYPE. Raises Unsupported for any other."""
    kind = (content_type or "").partition(";")[0].strip().casefold()
    if kind not in (JSON_TYPE, PROTOBUF_TYPE):
        raise Unsupported(
            f'The content type "{kind[:60]}" cannot be read. Send {PROTOBUF_TYPE} or {JSON_TYPE}.'
        )
    return kind


def decode_request(body: bytes, kind: str, signal: str) -> tuple[list[OtlpSpan], list[OtelEvent], list[str]]:
    """Spans (signal `traces`) or log records (`logs`) of a request of media type `kind`, and why each of the others cannot
    be read.

    Raises UsageError for a body that is no such request, and Unsupported when reading protobuf needs a package.
    """
    groups = _json_groups(body, signal) if kind == JSON_TYPE else _protobuf_groups(body, signal)
    spans, logs, broken = list[OtlpSpan](), list[OtelEvent](), list[str]()
    for resource, record in groups:
        try:
            if signal == "traces":
                spans.append(_span(record, resource))
            else:
                logs.append(_log(record, resource))
        except UsageError as error:
            name = _string(record.get("name")) or _string(record.get("eventName"))
            what = "span" if signal == "traces" else "log record"
            broken.append(f'The {what} "{name[:60]}" cannot be read: {error}')
    return spans, logs, broken


_Record = Mapping[str, Any]


def _json_groups(body: bytes, signal: str) -> Iterable[tuple[dict[str, object], _Record]]:
    try:
        request = read_json(body)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"The body is not JSON: {error}.") from None
    resources, scopes = f"resource{_NAMES[signal][0]}", f"scope{_NAMES[signal][0]}"
    records = {"traces": "spans", "logs": "logRecords"}[signal]
    if not isinstance(request, dict) or not isinstance(request.get(resources, []), list):
        raise UsageError(f'The body is no OTLP request: it must be an object with a list "{resources}".')
    try:
        for group in _objects(request.get(resources), resources):
            resource = _attributes(_object(group.get("resource"), "resource").get("attributes"))
            for scope in _objects(group.get(scopes), scopes):
                yield from ((resource, record) for record in _objects(scope.get(records), records))
    except UsageError as error:
        raise UsageError(f"The body is no OTLP request: {error}") from None


def _protobuf_groups(body: bytes, signal: str) -> Iterable[tuple[dict[str, object], _Record]]:
    try:
        errors = import_module("google.protobuf.message")
        service = import_module(_SERVICES[signal])
    except ImportError:
        raise Unsupported(
            "Protobuf needs a package that is not installed here: pip install 'whet[otlp]', or send "
            f"{JSON_TYPE} (OTEL_EXPORTER_OTLP_PROTOCOL=http/json)."
        ) from None
    traces = signal == "traces"
    request = service.ExportTraceServiceRequest() if traces else service.ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except errors.DecodeError as error:
        raise UsageError(f"The body is no OTLP request in protobuf: {error}.") from None
    for group in request.resource_spans if traces else request.resource_logs:
        resource = _message_attributes(group.resource.attributes)
        for scope in group.scope_spans if traces else group.scope_logs:
            for record in scope.spans if traces else scope.log_records:
                yield resource, _plain(record, signal)


def _plain(record: Any, signal: str) -> _Record:
    """A protobuf record with the names of the JSON form, attributes already as a dictionary."""
    common = {
        "traceId": record.trace_id.hex(),
        "spanId": record.span_id.hex(),
        "attributes": _message_attributes(record.attributes),
    }
    if signal == "logs":
        time = record.time_unix_nano or record.observed_time_unix_nano
        return common | {
            "eventName": record.event_name, "timeUnixNano": time, "body": _message_value(record.body, 0)
        }  # fmt: skip
    events = [
        {"name": e.name, "timeUnixNano": e.time_unix_nano, "attributes": _message_attributes(e.attributes)}
        for e in record.events
    ]
    times = {"startTimeUnixNano": record.start_time_unix_nano, "endTimeUnixNano": record.end_time_unix_nano}
    status = {"code": record.status.code, "message": record.status.message}
    names = {"name": record.name, "parentSpanId": record.parent_span_id.hex()}
    return common | times | names | {"events": events, "status": status}


def _message_attributes(pairs: Iterable[Any]) -> dict[str, object]:
    return _Read((pair.key, _message_value(pair.value, 0)) for pair in pairs)


def _message_value(value: Any, depth: int) -> object:
    name = value.WhichOneof("value")
    if name is None or depth > _DEEPEST:
        return None
    content = getattr(value, name)
    if name == "array_value":
        return [_message_value(value, depth + 1) for value in content.values]
    if name == "kvlist_value":
        return {pair.key: _message_value(pair.value, depth + 1) for pair in content.values}
    if name == "bytes_value":
        return content.hex()
    return content


def _span(record: _Record, resource: Mapping[str, object]) -> OtlpSpan:
    status = _object(record.get("status"), "status")
    failed = status.get("code") in (2, "STATUS_CODE_ERROR")
    return OtlpSpan(
        trace=_hex(record.get("traceId"), 32),
        id=_hex(record.get("spanId"), 16),
        name=_string(record.get("name")),
        start=_integer(record.get("startTimeUnixNano"), "startTimeUnixNano"),
        end=_integer(record.get("endTimeUnixNano"), "endTimeUnixNano"),
        attributes=_attributes(record.get("attributes")),
        events=tuple(_happening(event) for event in _objects(record.get("events"), "events")),
        error=(_string(status.get("message")) or UNNAMED_ERROR) if failed else None,
        resource=resource,
        parent=_hex(record.get("parentSpanId"), 16),
    )


def _happening(record: _Record) -> OtelEvent:
    attributes = _attributes(record.get("attributes"))
    return OtelEvent(
        _string(record.get("name")), _integer(record.get("timeUnixNano"), "timeUnixNano"), attributes
    )


def _log(record: _Record, resource: Mapping[str, object]) -> OtelEvent:
    """A log record; attributes in its body (the older form of events) count as its own, and a text there is its content."""
    attributes = _attributes(record.get("attributes"))
    body = record.get("body")
    if not isinstance(record.get("attributes"), _Read):
        body = _value(body, 0)
    if isinstance(body, Mapping):
        attributes = {**body, **attributes}
    elif isinstance(body, str):
        attributes = {"content": body, **attributes}
    name = _string(record.get("eventName")) or _string(attributes.get("event.name"))
    time = _integer(record.get("timeUnixNano"), "timeUnixNano") or _integer(
        record.get("observedTimeUnixNano"), "observedTimeUnixNano"
    )
    ids = _hex(record.get("traceId"), 32), _hex(record.get("spanId"), 16)
    return OtelEvent(name, time, attributes, *ids, resource)


def _objects(value: object, name: str) -> list[Mapping[str, object]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise UsageError(f'"{name}" must be a list of objects.')
    return value


def _object(value: object, name: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f'"{name}" must be an object.')
    return value or {}


def _attributes(value: object) -> dict[str, object]:
    if isinstance(value, _Read):
        return value
    pairs = _objects(value, "attributes")
    return {_string(pair.get("key")): _value(pair.get("value"), 0) for pair in pairs}


def _value(value: object, depth: int) -> object:
    """A value of the JSON form, `{"stringValue": "..."}`, as a plain one."""
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return None
    for name, inner in value.items():
        if name == "arrayValue":
            values = _objects(_object(inner, name).get("values"), "values")
            return [_value(value, depth + 1) for value in values]
        if name == "kvlistValue":
            pairs = _objects(_object(inner, name).get("values"), "values")
            return {_string(pair.get("key")): _value(pair.get("value"), depth + 1) for pair in pairs}
        if name == "intValue":
            return _integer(inner, name)
        if name == "doubleValue":
            return _float(inner)
        if name == "bytesValue":
            return _bytes(inner)
        if name in ("stringValue", "boolValue"):
            return inner
    return None


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: object, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        return int(value)
    if value is None or value == "":
        return 0
    raise UsageError(f"{name} must be a whole number; this is {str(value)[:40]!r}.")


def _float(value: object) -> object:
    """A number, "NaN" and "Infinity" as protobuf has them. What is no number stays as it is."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return value


def _bytes(value: object) -> str:
    try:
        return base64.b64decode(_string(value), validate=True).hex()
    except binascii.Error:
        return ""


def _hex(value: object, length: int) -> str:
    """An id in lower-case hex; empty when it is none."""
    text = _string(value).casefold()
    return text if re.fullmatch(rf"[0-9a-f]{{{length}}}", text) and text.strip("0") else ""


def encode_success(kind: str, signal: str, rejected: int, message: str) -> bytes:
    """The body of a success (status 200), full or partial."""
    name = f"rejected{_NAMES[signal][1]}"
    if kind == JSON_TYPE:
        partial = {"partialSuccess": {name: str(rejected), "errorMessage": message}}
        return orjson.dumps(partial if rejected or message else {})
    if not rejected and not message:
        return b""
    partial_success = (_varint_field(1, rejected) if rejected else b"") + _text_field(2, message)
    return _bytes_field(1, partial_success)


def failure_body(kind: str, message: str) -> bytes:
    """The body of a failure (status 4xx or 5xx): a google.rpc.Status."""
    if kind == JSON_TYPE:
        return orjson.dumps({"code": _INVALID_ARGUMENT, "message": message})
    return _varint_field(1, _INVALID_ARGUMENT) + _text_field(2, message)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes((*encoded, number))


def _varint_field(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _bytes_field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text_field(field: int, text: str) -> bytes:
    return _bytes_field(field, text.encode("utf-8", "replace")) if text else b""
