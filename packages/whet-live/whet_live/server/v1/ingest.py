"""The data that programs send: answers, feedback, traces. A request is answered when its rows are on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import whet_live.server.v1.traffic as rows
from whet.errors import StorageError, UsageError
from whet_client import Feedback, Inference
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext, scope_error
from whet_live.server.responses import Refused, json_answer
from whet_live.server.roles import PROGRAMS, Principal, Role
from whet_live.traffic import (
    DiskQuotaExceeded,
    IdConflict,
    Overloaded,
    Receipt,
    RefusedRow,
    RowSender,
    RowsRefused,
    SpanLink,
    parse_feedback,
    read_inferences,
    read_json,
)
from whet_live.traffic.otlp import Unsupported, failure_body, parse_otlp

router = EndpointRouter()
SMALL = 65_536
"""Bytes of a body that is parsed in the event loop; a larger one is parsed in a thread, so that nobody waits for it."""
ANNOTATOR = "annotator"
PROGRAM_SPEAKS = (
    "It says that an annotator speaks: source annotator, or annotator_kind HUMAN as Phoenix writes it. Annotators send their "
    "own, with a token of their own; a program writes source user, model or code, or annotator_kind USER, LLM or CODE."
)
PERSON_SPEAKS = (
    "People send what they say themselves: leave source and user out. What users, models and code said comes from a "
    "program (role app)."
)
DEFAULT_SOURCE = Feedback("thumb", "").source
"""The source of a row that names none."""
T = TypeVar("T")


@router(
    "POST",
    "/v1/inferences",
    PROGRAMS,
    app=True,
    ingest=True,
    body=rows.Inferences,
    answer=rows.Stored,
    refusals=(409, 507),
)
async def add_inferences(call: RequestContext) -> Response:
    """Store answers of prompts. The id of a row is its idempotency key: sending it again changes nothing. Where the token is
    not for the prompt of a row, or a row names an experiment of another prompt, nothing is stored, and `refused` names these
    rows. So it is (400) where a row
    cannot be stored: `refused` names every such row by `index`, `id` and `message`."""
    try:
        inferences = await parse_records(call, lambda: read_inferences(body_json(call)))
    except RowsRefused as error:
        return refused_rows(error)
    for ids, message in await reject_out_of_scope(call, inferences):
        fault = {"status": 403, "message": message}
        return json_answer({"error": fault, "refused": [{"id": id, "message": message} for id in ids]}, 403)
    return await store(call, "inference", inferences, ())


@router(
    "POST",
    "/v1/feedback",
    Role.ANNOTATOR,
    app=True,
    ingest=True,
    body=rows.FeedbackRows,
    answer=rows.Stored,
    refusals=(409, 507),
)
async def add_feedback(call: RequestContext) -> Response:
    """Store what was said or done about answers, also before the answer itself has arrived. It is never joined to answers of
    prompts that the token is not for.

    What a person sends is that person's own word, as an annotator; only programs say what users, models and code said.
    """
    try:
        feedback = attribute_feedback(
            await parse_records(call, lambda: parse_feedback(body_json(call))), call.principal
        )
    except RowsRefused as error:
        return refused_rows(error)
    return await store(call, "feedback", (), feedback)


def refused_rows(error: RowsRefused) -> Response:
    """Status 400 with every row that cannot be stored, by its place and id, and why."""
    fault = {"status": 400, "message": str(error)}
    return json_answer({"error": fault, "refused": [row.as_json() for row in error.rows]}, 400)


@router("POST", "/v1/otlp/v1/traces", PROGRAMS, app=True, ingest=True, refusals=(507,), **rows.otlp("traces"))
async def add_traces(call: RequestContext) -> Response:
    """OTLP/HTTP traces (JSON or protobuf): calls of models become inferences, evaluations become feedback."""
    return await _otlp(call, "traces")


@router("POST", "/v1/otlp/v1/logs", PROGRAMS, app=True, ingest=True, refusals=(507,), **rows.otlp("logs"))
async def add_logs(call: RequestContext) -> Response:
    """OTLP/HTTP logs (JSON or protobuf): events `gen_ai.evaluation.result` become feedback, messages the content of calls."""
    return await _otlp(call, "logs")


async def _otlp(call: RequestContext, signal: str) -> Response:
    """Store what a request holds; what cannot be stored is told as a partial success. A repeated span changes nothing."""
    kind = call.headers.get(b"content-type", b"").decode("latin-1")
    try:
        batch = await parse_records(call, lambda: parse_otlp(call.body, kind, signal))
    except Unsupported as error:
        raise Refused(415, str(error)) from None
    except UsageError as error:  # an exporter reads no other answer than one of its own protocol
        return Response(failure_body(call.media, str(error)), 400, media_type=call.media)
    wrong = require_user(batch.feedback, call.principal)
    if wrong:
        batch = batch.without(wrong, PROGRAM_SPEAKS)
    for ids, message in await reject_out_of_scope(call, batch.inferences):
        batch = batch.without(ids, message)
    try:
        receipt = await read_submission(call, batch.inferences, batch.feedback, batch.spans)
    except IdConflict as conflict:
        batch = batch.without((clash.id for clash in conflict.clashes), str(conflict))
        receipt = await read_submission(call, batch.inferences, batch.feedback, batch.spans)
    count_stored(call, signal, receipt)
    return Response(batch.response(), media_type=batch.kind)


async def reject_out_of_scope(
    call: RequestContext, inferences: Sequence[Inference]
) -> list[tuple[list[str], str]]:
    """Ids of answers that the caller may not log, and why: of prompts that its token is not for, and in experiments of other
    prompts than their own."""
    outside = [one for one in inferences if not call.principal.reaches(one.prompt)]
    named = {one.experiment for one in inferences if one.experiment is not None}
    prompts = await run_in_threadpool(call.state.live.experiments.prompts_of, named) if named else {}
    astray = [one for one in inferences if prompts.get(one.experiment or "", one.prompt) != one.prompt]
    reasons = []
    if outside:
        reasons.append(([one.id for one in outside], scope_error(call.principal, outside[0].prompt)))
    if astray:
        first = astray[0]
        message = (
            f'The experiment "{first.experiment}" is not one of the prompt "{first.prompt}". Log the experiment that came with '
            "the prompt, or none."
        )
        reasons.append(([one.id for one in astray], message))
    return reasons


async def parse_records(call: RequestContext, read: Callable[[], T]) -> T:
    """The records in a body; a large body is read in a thread. Raises Refused (400)."""
    return read() if len(call.body) <= SMALL else await run_in_threadpool(read)


def body_json(call: RequestContext) -> Any:
    """The body as JSON values. Raises Refused: 415 for another media type, 400 for a body that is no JSON."""
    call.check_media("application/json")
    try:
        return read_json(call.body)
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"The body is no JSON: {error.msg} at character {error.pos}.") from None


def require_user(feedback: Sequence[Feedback], who: Principal) -> list[str]:
    """Ids of feedback in the name of somebody for whom the caller does not speak."""
    if who.app:
        return [one.id for one in feedback if one.source == ANNOTATOR]
    own = (DEFAULT_SOURCE, ANNOTATOR), (None, who.name)
    return [one.id for one in feedback if one.source not in own[0] or one.user not in own[1]]


def attribute_feedback(feedback: Sequence[Feedback], who: Principal) -> Sequence[Feedback]:
    """Feedback under the name of whom it comes from: a person's is that person's, so that nobody is a crowd. Raises
    RowsRefused where somebody speaks for another one."""
    wrong = require_user(feedback, who)
    if wrong:
        reason = PROGRAM_SPEAKS if who.app else PERSON_SPEAKS
        raise RowsRefused(
            [
                RefusedRow(None, key, f'The feedback "{key}" is in the name of somebody else. {reason}')
                for key in wrong
            ]
        )
    return feedback if who.app else [replace(one, source=ANNOTATOR, user=who.name) for one in feedback]


async def store(
    call: RequestContext, kind: str, inferences: Sequence[Inference], feedback: Sequence[Feedback]
) -> Response:
    """Wait for the commit and answer with the receipt."""
    try:
        receipt = await read_submission(call, inferences, feedback)
    except IdConflict as conflict:
        error = {"status": 409, "message": str(conflict)}
        return json_answer({"error": error, "conflicts": [{"id": one.id} for one in conflict.clashes]}, 409)
    count_stored(call, kind, receipt)
    return json_answer(asdict(receipt))


async def read_submission(
    call: RequestContext,
    inferences: Sequence[Inference],
    feedback: Sequence[Feedback],
    spans: Sequence[SpanLink] = (),
) -> Receipt:
    """The receipt after the commit. Raises IdConflict, and Refused: 429 for more rows than the caller may send now, 503 when
    too many rows wait, 507 when as much of the caller is stored as may be."""
    call.state.spend_rows(call.principal, len(inferences) + len(feedback))
    try:
        return await asyncio.wrap_future(
            call.state.intake.submit(inferences, feedback, sender_of(call), spans)
        )
    except DiskQuotaExceeded as error:
        raise Refused(507, str(error), {"Retry-After": "3600"}) from None
    except Overloaded as error:
        raise Refused(503, str(error), {"Retry-After": "1"}) from None


def sender_of(call: RequestContext) -> RowSender:
    """The caller, as rows remember it."""
    who = call.principal
    return RowSender(who.name, who.prompts, call.state.limits.kept_bytes)


def count_stored(call: RequestContext, kind: str, receipt: Receipt) -> None:
    """Count what was stored."""
    call.state.metrics.stored.labels(kind).inc(receipt.accepted)
    if receipt.duplicates:
        call.state.metrics.duplicates.labels(kind).inc(receipt.duplicates)


def store_now(call: RequestContext, feedback: Sequence[Feedback]) -> Receipt:
    """Store feedback from a handler that runs in a thread. Raises UsageError and StorageError."""
    try:
        receipt = call.state.intake.submit((), feedback, sender_of(call)).result()
    except IdConflict as error:
        raise UsageError(str(error)) from None
    except Overloaded as error:
        raise StorageError(str(error)) from None
    count_stored(call, "feedback", receipt)
    return receipt
