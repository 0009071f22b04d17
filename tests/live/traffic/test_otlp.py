"""OTLP/HTTP: every convention in JSON and in protobuf, evaluations, refusals, partial success."""

from __future__ import annotations

import builtins
import importlib
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UsageError
from whet_client.records import Feedback, Inference
from whet_live.traffic.long_numbers import read_json
from whet_live.traffic.otlp import Parsed, Unsupported, failure_body, parse_otlp
from whet_live.traffic.otlp.decode import JSON_TYPE, PROTOBUF_TYPE
from whet_live.traffic.schema import read_inferences

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
START = 1_750_000_000_000_000_000


def any_value(value: Any) -> dict[str, Any]:
    """A value as OTLP's JSON writes it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        named = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {"doubleValue": value if math.isfinite(value) else named}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


def pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP's JSON writes them."""
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


def span(attributes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A span of 1.5 seconds."""
    found = {
        "traceId": TRACE, "spanId": SPAN, "name": "chat m", "kind": 3, "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 1_500_000_000), "attributes": pairs(attributes),
    }  # fmt: skip
    return found | more


def happening(name: str, attributes: Mapping[str, Any], time: int = START + 5000) -> dict[str, Any]:
    """An event inside a span."""
    return {"name": name, "timeUnixNano": str(time), "attributes": pairs(attributes)}


def traces(*spans: Mapping[str, Any]) -> dict[str, Any]:
    """A request with spans of one service."""
    resource = {"attributes": pairs({"service.name": "shop"})}
    return {
        "resourceSpans": [
            {"resource": resource, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}
        ]
    }


def logs(*records: Mapping[str, Any]) -> dict[str, Any]:
    """A request with log records."""
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}


def both(request: dict[str, Any], signal: str = "traces") -> Parsed:
    """The request read from JSON; what protobuf gives must be the same."""
    from google.protobuf.json_format import ParseDict

    name = {"traces": "trace", "logs": "logs"}[signal]
    module = importlib.import_module(f"opentelemetry.proto.collector.{name}.v1.{name}_service_pb2")
    message = getattr(module, f"Export{name.capitalize()}ServiceRequest")()
    ParseDict(in_base64(request), message)
    found = parse_otlp(json.dumps(request).encode(), f"{JSON_TYPE}; charset=utf-8", signal)
    again = parse_otlp(message.SerializeToString(), PROTOBUF_TYPE, signal)
    assert (again.inferences, again.feedback) == (found.inferences, found.feedback)
    assert (again.received, again.rejected, again.message) == (found.received, found.rejected, found.message)
    return found


def in_base64(value: Any) -> Any:
    """OTLP's JSON writes ids in hex where protobuf's own JSON has base64."""
    import base64

    if isinstance(value, dict):
        ids = {"traceId", "spanId", "parentSpanId"}
        return {
            k: base64.b64encode(bytes.fromhex(v)).decode() if k in ids else in_base64(v)
            for k, v in value.items()
        }
    return [in_base64(one) for one in value] if isinstance(value, list) else value


def only(parsed: Parsed) -> Inference:
    """The one inference of a request."""
    assert parsed.rejected == 0, parsed.message
    assert len(parsed.inferences) == 1
    return parsed.inferences[0]


CONVERSATION = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "It is off."}]
PARTS = [
    {"role": "system", "parts": [{"type": "text", "content": "Be short."}]},
    {"role": "user", "parts": [{"type": "text", "content": "It is off."}]},
]
SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "Restart it."}], "finish_reason": "stop"}]
LLAMA = json.dumps(
    [
        {"role": "system", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "Be short."}]},
        {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "It is off."}]},
    ]
)


def langchain(name: str, kind: str, content: object, **more: object) -> dict[str, object]:
    """A message as LangChain serialises it."""
    held = {"content": content, "type": kind, **more}
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": held}


METADATA = {
    "whet.prompt.name": "shop/help", "whet.prompt.version": 3, "whet.episode": "order-7", "user_id": "u", "thread_id": "s",
    "whet.inference.id": "one id for all calls of the chain",
}  # fmt: skip
CONVENTIONS: dict[str, dict[str, Any]] = {
    "genai": span(
        {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "p", "gen_ai.request.model": "m",
            "gen_ai.input.messages": json.dumps(PARTS), "gen_ai.output.messages": json.dumps(SAID),
        }
    ),
    "genai structured": span(
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": PARTS,
         "gen_ai.output.messages": SAID}
    ),
    "genai system instructions": span(
        {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be short."}]),
            "gen_ai.input.messages": json.dumps(PARTS[1:]), "gen_ai.output.messages": json.dumps(SAID),
        }
    ),
    "genai details event": span(
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"},
        events=[happening("gen_ai.client.inference.operation.details",
                          {"gen_ai.input.messages": PARTS, "gen_ai.output.messages": SAID})],
    ),
    "genai message events": span(
        {"gen_ai.system": "p", "gen_ai.request.model": "m"},
        events=[
            happening("gen_ai.system.message", {"content": "Be short."}),
            happening("gen_ai.user.message", {"content": "It is off."}),
            happening("gen_ai.choice", {"index": 0, "message": '{"role": "assistant", "content": "Restart it."}'}),
        ],
    ),
    "genai content events": span(
        {"gen_ai.system": "p", "gen_ai.request.model": "m"},
        events=[
            happening("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(CONVERSATION)}),
            happening("gen_ai.content.completion", {"gen_ai.completion": '[{"role":"assistant","content":"Restart it."}]'}),
        ],
    ),
    "flattened": span(
        {
            "gen_ai.request.model": "m", "llm.request.type": "chat", "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Be short.", "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "It is off.",
            "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Restart it.",
        }
    ),
    "openinference": span(
        {
            "openinference.span.kind": "LLM", "llm.model_name": "m", "input.value": "ignored", "output.value": "ignored",
            "llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "Be short.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.contents.0.message_content.type": "text",
            "llm.input_messages.1.message.contents.0.message_content.text": "It is off.",
            "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Restart it.",
        }
    ),
    "vercel": span(
        {
            "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m",
            "ai.prompt.messages": json.dumps(
                [CONVERSATION[0], {"role": "user", "content": [{"type": "text", "text": "It is off."}]}]
            ),
            "ai.response.text": "Restart it.",
        }
    ),
    "langfuse": span(
        {
            "langfuse.observation.type": "generation", "gen_ai.request.model": "m",
            "gen_ai.prompt": json.dumps(CONVERSATION), "langfuse.observation.output": "Restart it.",
        }
    ),
    "langsmith of langchain": span(
        {
            "langsmith.span.kind": "llm", "gen_ai.operation.name": "chat", "gen_ai.system": "langchain",
            "langsmith.metadata.ls_model_name": "m",
            "gen_ai.prompt": json.dumps({"messages": [[
                langchain("SystemMessage", "system", "Be short."),
                langchain("HumanMessage", "human", [{"type": "text", "text": "It is off."}]),
            ]]}),
            "gen_ai.completion": json.dumps({"generations": [[
                {"text": "Restart it.", "type": "ChatGeneration", "message": langchain("AIMessage", "ai", "Restart it.")},
            ]], "llm_output": None}),
        }
    ),
    "langsmith of openai": span(
        {
            "langsmith.span.kind": "llm", "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
            "gen_ai.prompt": json.dumps({"messages": CONVERSATION, "model": "m"}),
            "gen_ai.completion": json.dumps({"choices": [{"message": {"role": "assistant", "content": "Restart it."}}]}),
        }
    ),
    "openllmetry of langchain": span(
        {
            "gen_ai.provider.name": "langchain", "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
            "gen_ai.system_instructions": '[{"type": "text", "content": "Be short."}]',
            "gen_ai.input.messages": json.dumps(PARTS[1:]),
            "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "Restart it."}]}]',
        }
    ),
    "llamaindex": span(
        {},
        events=[
            happening("LLMChatStartEvent", {"messages": LLAMA, "model_dict.model": "m", "model_dict.class_name": "OpenAI"}),
            happening("LLMChatInProgressEvent", {"messages": LLAMA, "response.delta": "Restart"}),
            happening("LLMChatEndEvent", {
                "messages": LLAMA, "response.message.role": "assistant",
                "response.message.blocks": '[{"block_type": "text", "text": "Restart it."}]',
            }),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_says_the_same(name: str) -> None:
    found = only(both(traces(CONVENTIONS[name])))
    assert found.inputs == {"messages": CONVERSATION}
    assert (found.output, found.model) == ("Restart it.", "m")
    assert (found.id, found.episode, found.latency, found.time) == (SPAN, TRACE, 1.5, START // 1000)
    assert found.prompt == "otlp/shop"


def test_the_variables_of_a_prompt_are_its_inputs_as_version_0_1_names_them() -> None:
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.prompt.name": "shop/help", "gen_ai.prompt.version": "3",
        "gen_ai.prompt.variable.question": "When?", "gen_ai.prompt.variable.Customer text": "Hello",
        "gen_ai.input.messages": json.dumps(PARTS),
    }  # fmt: skip
    found = only(both(traces(span(attributes))))
    assert (found.prompt, found.version) == ("shop/help", 3)
    assert found.inputs == {"question": "When?", "Customer text": "Hello"}


@pytest.mark.parametrize(
    ("more", "status", "error"),
    [
        ({"error.type": "timeout"}, {"code": 2}, "timeout"),
        ({"error.type": "timeout"}, {"code": 2, "message": "after 30 s"}, "after 30 s"),
        ({"error.type": "timeout"}, {}, "timeout"),
        ({}, {"code": 2}, "error"),
        ({}, {}, None),
    ],
)
def test_an_error_has_its_class_where_it_has_no_message(
    more: dict[str, Any], status: dict[str, Any], error: str | None
) -> None:
    found = only(both(traces({**span({"gen_ai.operation.name": "chat", **more}), "status": status})))
    assert found.error == error


@pytest.mark.parametrize(
    "more",
    [
        {f"langsmith.metadata.{name}": value for name, value in METADATA.items()},
        {f"traceloop.association.properties.{name}": value for name, value in METADATA.items()},
        {"metadata": json.dumps(METADATA)},
    ],
)
def test_the_metadata_of_a_chain_name_prompt_and_people(more: dict[str, Any]) -> None:
    found = only(both(traces(span({"gen_ai.operation.name": "chat", **more}))))
    assert (found.prompt, found.version, found.episode) == ("shop/help", 3, "order-7")
    assert (found.user, found.session, found.id) == ("u", "s", SPAN)
    own = {"user.id": "mine", "gen_ai.conversation.id": "talk", "gen_ai.prompt.name": "other"}
    found = only(both(traces(span({"gen_ai.operation.name": "chat", **more, **own}))))
    assert (found.user, found.session, found.prompt) == ("mine", "talk", "shop/help")


def test_a_template_and_a_chain_of_langchain_are_no_answers() -> None:
    for kind, operation in (("prompt", "chat"), ("chain", "chain"), ("tool", "chat"), ("retriever", "chat")):
        attributes = {
            "langsmith.span.kind": kind,
            "gen_ai.operation.name": operation,
            "gen_ai.prompt": '{"question": "When?"}',
        }
        assert both(traces(span(attributes))).inferences == ()


def test_calls_of_tools_of_langchain_are_kept() -> None:
    calls = [{"name": "find", "args": {"parcel": 7}, "id": "c1", "type": "tool_call"}]
    message = langchain("AIMessage", "ai", "", tool_calls=calls)
    attributes = {
        "langsmith.span.kind": "llm", "gen_ai.prompt": '{"prompts": ["When?"]}',
        "gen_ai.completion": json.dumps({"generations": [[{"text": "", "message": message}]]}),
    }  # fmt: skip
    found = only(both(traces(span(attributes))))
    assert found.inputs == {"messages": [{"role": "user", "content": "When?"}]}
    assert json.loads(found.output) == calls[0]


def test_a_completion_of_llamaindex_is_an_answer_and_other_events_are_none() -> None:
    begin = happening("LLMCompletionStartEvent", {"prompt": "When?", "model_dict.model_name": "m"})
    end = happening("LLMCompletionEndEvent", {"prompt": "When?", "response.text": "Tomorrow."})
    found = only(both(traces(span({}, events=[begin, end]))))
    assert (found.inputs, found.output, found.model) == (
        {"messages": [{"role": "user", "content": "When?"}]},
        "Tomorrow.",
        "m",
    )
    assert both(traces(span({}, events=[happening("QueryEndEvent", {"response": "x"})]))).inferences == ()


FILTERED = [{"role": "assistant", "parts": [], "finish_reason": "content_filter"}]


@pytest.mark.parametrize(
    "said",
    [
        {"gen_ai.response.finish_reasons": ["content_filter"]},
        {"gen_ai.response.finish_reasons": "content_filter"},
        {"gen_ai.response.finish_reasons": '["content_filter"]'},
        {"gen_ai.response.finish_reasons": ["content-filter"], "ai.response.finishReason": "content-filter"},
        {"ai.response.finishReason": "content-filter"},
        {"llm.finish_reason": "content_filter"},
        {"gen_ai.output.messages": FILTERED},
        {"gen_ai.output.messages": json.dumps(FILTERED)},
        {"gen_ai.completion.0.finish_reason": "content_filter", "gen_ai.completion.0.content": "x"},
    ],
)
def test_why_an_answer_ended_and_the_system_behind_the_model_are_kept(said: dict[str, Any]) -> None:
    fingerprint = "gen_ai.openai.response.system_fingerprint"
    found = only(both(traces(span({"gen_ai.operation.name": "chat", **said, fingerprint: "fp_1"}))))
    assert found.metadata["finish_reason"] == "content_filter"
    assert found.metadata["system_fingerprint"] == "fp_1"


@pytest.mark.parametrize("name", ["gen_ai.client.inference.operation.details", "gen_ai.choice"])
def test_events_say_why_an_answer_ended(name: str) -> None:
    own = (
        {"finish_reason": "content_filter"}
        if name == "gen_ai.choice"
        else {"gen_ai.output.messages": FILTERED}
    )
    found = only(both(traces(span({"gen_ai.operation.name": "chat"}, events=[happening(name, own)]))))
    assert found.metadata["finish_reason"] == "content_filter"


def test_names_amounts_and_people_are_read() -> None:
    attributes = {
        "gen_ai.operation.name": "chat", "whet.prompt.name": "support/answer", "whet.prompt.version": 3,
        "gen_ai.response.model": "m-2", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5, "llm.cost.total": 0.25, "gen_ai.response.id": "resp-1", "user.id": "u",
        "gen_ai.conversation.id": "s", "whet.episode": "e", "whet.experiment": "x", "whet.variant": "2",
        "whet.inference.id": "mine", "llm.prompt_template.variables": '{"question": "It is off."}',
        "output.value": "Restart it.",
    }  # fmt: skip
    found = only(both(traces(span(attributes, status={"code": 2, "message": "refused"}))))
    assert found == Inference(
        prompt="support/answer", version=3, inputs={"question": "It is off."}, output="Restart it.", id="mine",
        model="m-2", cost=0.25, latency=1.5, input_tokens=12, output_tokens=5, session="s", user="u", episode="e",
        experiment="x", variant="2", response="resp-1", error="refused", time=START // 1000,
        metadata={"span": "chat m", "span_id": SPAN, "trace_id": TRACE},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attributes", "cost", "tokens"),
    [
        (
            {"usage_details": '{"input": 12, "output": 0, "total": 12}', "cost_details": '{"total": 0.02}'},
            0.02,
            (12, 0),
        ),
        (
            {"usage_details": '{"prompt_tokens": 3}', "cost_details": '{"input": 0.25, "output": 0.5}'},
            0.75,
            (3, None),
        ),
        ({"usage_details": "none", "cost_details": "{}"}, None, (None, None)),
    ],
)
def test_amounts_as_langfuse_writes_them(attributes: Any, cost: float | None, tokens: Any) -> None:
    named = {"type": "generation", "model.name": "m", **attributes}
    found = only(both(traces(span({f"langfuse.observation.{name}": value for name, value in named.items()}))))
    assert (found.model, found.cost, (found.input_tokens, found.output_tokens)) == ("m", cost, tokens)


def test_tokens_as_the_ai_sdk_of_vercel_writes_them() -> None:
    attributes = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.usage.promptTokens": 2,
        "ai.usage.outputTokens": 3,
    }
    found = only(both(traces(span(attributes))))
    assert (found.input_tokens, found.output_tokens) == (2, 3)


@pytest.mark.parametrize(
    ("given", "version", "kept"), [("7", 7, None), ("v1.2", 0, "v1.2"), (-1, 0, "-1"), (2.5, 0, "2.5")]
)
def test_a_version_that_is_no_number_is_kept_beside(given: Any, version: int, kept: str | None) -> None:
    attributes = {"gen_ai.request.model": "m", "prompt.id": "p", "llm.prompt_template.version": given}
    found = only(both(traces(span(attributes))))
    assert (found.prompt, found.version, found.metadata.get("prompt_version")) == ("p", version, kept)


NO_NAMES = ["p|q", "shop/3", "bad@name", " p ", "p\n", "Cafe\u0301", "a" * 300]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_no_prompt_can_have_is_kept_beside(name: str) -> None:
    attributes = {"gen_ai.request.model": "m", "whet.prompt.name": name, "whet.prompt.version": 3}
    parsed = both(traces(span(attributes)))
    found = only(parsed)
    assert (found.prompt, found.version) == ("otlp/shop", 0)
    assert (found.metadata["prompt_name"], found.metadata["prompt_version"]) == (name[:255], "3")
    assert "stand under otlp/SERVICE (1; the first is" in parsed.warning
    with pytest.raises(UsageError, match="prompt"):
        read_inferences({"inferences": [{"prompt": name}]})


def test_ids_that_differ_behind_their_200th_character_stay_apart() -> None:
    def sent(number: int) -> dict[str, Any]:
        names = ("whet.inference.id", "user.id", "session.id", "whet.episode", "gen_ai.response.id")
        attributes = {name: f"{'z' * 250}{number}" for name in names}
        event = happening("gen_ai.evaluation.result", EVALUATION)
        return span({**LLM, **attributes}, traceId=f"{number:032x}", events=[event])

    parsed = both(traces(sent(1), sent(2)))
    assert parsed.rejected == 0
    for name in ("id", "user", "session", "episode", "response"):
        ids = [getattr(one, name) for one in parsed.inferences]
        assert len({*ids}) == 2 and all(len(id) == 200 and id.startswith("zzz") for id in ids)
        assert all(name in one.metadata["cut"] for one in parsed.inferences)
    assert [one.target for one in parsed.feedback] == [one.id for one in parsed.inferences]
    assert [one.user for one in parsed.feedback] == [one.user for one in parsed.inferences]
    assert all(one.metadata["cut"] == ["user"] for one in parsed.feedback)


@pytest.mark.parametrize(
    ("attributes", "unusable"),
    [
        ({"gen_ai.usage.input_tokens": -1}, {"input_tokens": "-1"}),
        ({"gen_ai.usage.output_tokens": 2**62}, {"output_tokens": "4611686018427387904"}),
        ({"gen_ai.usage.input_tokens": "12.5"}, {"input_tokens": "12.5"}),
        ({"gen_ai.usage.cost": -1.0}, {"cost": "-1.0"}),
        ({"gen_ai.usage.cost": "much"}, {"cost": "much"}),
        ({"gen_ai.usage.cost": math.nan}, {"cost": "nan"}),
        ({"gen_ai.usage.input_tokens": math.inf}, {"input_tokens": "inf"}),
        (
            {"langfuse.observation.cost_details": '{"input": 0.25, "output": "much"}'},
            {"cost": "{'input': 0.25, 'output': 'much'}"},
        ),
        ({"langfuse.observation.cost_details": '{"total": "much"}'}, {"cost": "{'total': 'much'}"}),
        ({"gen_ai.usage.cost": 0.0, "gen_ai.usage.input_tokens": 0}, None),
    ],
)
def test_numbers_that_cannot_be_used_are_named(
    attributes: dict[str, Any], unusable: dict[str, str] | None
) -> None:
    parsed = both(traces(span({"gen_ai.request.model": "m", **attributes})))
    found = only(parsed)
    assert found.metadata.get("unusable") == unusable
    for name in unusable or {}:
        assert getattr(found, name) is None
    assert ("Numbers that cannot be used are left out (1; the first is" in parsed.warning) == bool(unusable)


def test_what_is_left_out_is_said_beside_what_is_rejected() -> None:
    bad = span({**LLM, "gen_ai.usage.cost": math.nan}, spanId="c" * 16)
    found = both(traces(span(LLM, spanId="0" * 16), bad))
    assert (len(found.inferences), found.rejected) == (1, 1)
    assert json.loads(found.response())["partialSuccess"] == {
        "rejectedSpans": "1",
        "errorMessage": 'The span "chat m" has no valid id. Numbers that cannot be used are left out (1; the first is cost '
        "nan of cccccccccccccccc).",
    }


def test_a_double_that_is_no_number_is_named() -> None:
    attributes = [*pairs(LLM), {"key": "gen_ai.usage.cost", "value": {"doubleValue": "much"}}]
    found = parse_otlp(json.dumps(traces({**span({}), "attributes": attributes})).encode(), JSON_TYPE)
    assert only(found).metadata["unusable"] == {"cost": "much"}


def test_of_several_choices_the_first_is_the_answer() -> None:
    def says(*texts: str) -> list[dict[str, Any]]:
        return [{"role": "assistant", "parts": [{"type": "text", "content": text}]} for text in texts]

    several = only(both(traces(span({**LLM, "gen_ai.output.messages": json.dumps(says("one", "two"))}))))
    assert (several.output, several.metadata["choices"]) == ("one", 2)
    parts = [{"role": "assistant", "parts": [*says("one")[0]["parts"], *says("two")[0]["parts"]]}]
    single = only(both(traces(span({**LLM, "gen_ai.output.messages": json.dumps(parts)}))))
    assert (single.output, "choices" in single.metadata) == ("one\ntwo", False)
    events = [happening("gen_ai.choice", {"index": n, "content": text}) for n, text in enumerate("ab")]
    told = only(both(traces(span({"gen_ai.request.model": "m"}, events=events))))
    assert (told.output, told.metadata["choices"]) == ("a", 2)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"http.method": "GET"},
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "m"},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"},
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m"},
        {"openinference.span.kind": "CHAIN", "input.value": "x"},
        {"ai.operationId": "ai.generateText", "ai.model.id": "m"},
        {"langfuse.observation.type": "span"},
        {"traceloop.span.kind": "workflow", "gen_ai.request.model": "m"},
        {"gen_ai.request.model": "m", "gen_ai.tool.name": "t"},
    ],
)
def test_other_spans_are_neither_stored_nor_rejected(attributes: dict[str, Any]) -> None:
    found = both(traces(span(attributes)))
    assert (found.inferences, found.feedback, found.received, found.rejected) == ((), (), 1, 0)
    assert found.response() == b"{}"


EVALUATION = {
    "gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": 0.25,
    "gen_ai.evaluation.score.label": "not_relevant", "gen_ai.evaluation.explanation": "It answers something else.",
}  # fmt: skip
LLM = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "user.id": "u"}


def said(parsed: Parsed) -> list[Feedback]:
    """The feedback of a request that was used altogether."""
    assert parsed.rejected == 0, parsed.message
    return list(parsed.feedback)


def test_an_evaluation_event_is_about_its_span() -> None:
    (found,) = said(both(traces(span(LLM, events=[happening("gen_ai.evaluation.result", EVALUATION)]))))
    assert (found.kind, found.value, found.label, found.name) == ("score", 0.25, "not_relevant", "Relevance")
    assert (found.text, found.source, found.user) == ("It answers something else.", "model", "u")
    assert (found.target_kind, found.target, found.time) == ("inference", SPAN, START // 1000 + 5)
    assert found.id.startswith("otlp-")


def test_an_evaluation_about_a_span_that_is_no_answer_is_about_the_trace() -> None:
    (found,) = said(
        both(traces(span({"http.method": "GET"}, events=[happening("gen_ai.evaluation.result", EVALUATION)])))
    )
    assert (found.target_kind, found.target) == ("episode", TRACE)


@pytest.mark.parametrize(
    ("more", "kind", "value", "source"),
    [
        ({"gen_ai.evaluation.name": "user_feedback", "gen_ai.evaluation.score.value": 1}, "thumb", 1.0, "user"),
        ({"gen_ai.evaluation.name": "User Rating", "gen_ai.evaluation.score.value": 4}, "rating", 4.0, "user"),
        ({"gen_ai.evaluation.name": "rating", "gen_ai.evaluation.score.value": 4, "annotator_kind": "LLM"},
         "rating", 4.0, "model"),
        ({"gen_ai.evaluation.name": "thumbs", "gen_ai.evaluation.score.value": 0, "whet.source": "annotator"},
         "thumb", 0.0, "annotator"),
        ({"gen_ai.evaluation.name": "thumbs", "gen_ai.evaluation.score.value": -1}, "thumb", 0.0, "user"),
        ({"gen_ai.evaluation.name": "rating", "gen_ai.evaluation.score.value": 8, "whet.scale": "0..10"},
         "rating", 4.2, "user"),
        ({"gen_ai.evaluation.name": "n", "gen_ai.evaluation.score.label": "pass"}, "label", None, "model"),
        ({"gen_ai.evaluation.name": "n", "gen_ai.evaluation.explanation": "Too long.", "whet.source": "user"},
         "comment", None, "user"),
    ],
)  # fmt: skip
def test_what_an_evaluation_is(more: dict[str, Any], kind: str, value: float | None, source: str) -> None:
    (found,) = said(both(traces(span(LLM, events=[happening("gen_ai.evaluation.result", more)]))))
    assert (found.kind, found.value, found.source) == (kind, value, source)


@pytest.mark.parametrize(
    ("record", "target"),
    [
        ({"spanId": SPAN, "traceId": TRACE}, ("inference", SPAN)),
        ({"traceId": TRACE}, ("episode", TRACE)),
        (
            {"spanId": SPAN, "traceId": TRACE, "more": {"gen_ai.response.id": "resp-1"}},
            ("response", "resp-1"),
        ),
    ],
)
@pytest.mark.parametrize("named", ["eventName", "event.name", "body"])
def test_an_evaluation_comes_as_a_log_record(
    record: dict[str, Any], target: tuple[str, str], named: str
) -> None:
    attributes = {**EVALUATION, **record.get("more", {})}
    row = {key: value for key, value in record.items() if key != "more"} | {"timeUnixNano": str(START)}
    if named == "eventName":
        row |= {"eventName": "gen_ai.evaluation.result", "attributes": pairs(attributes)}
    elif named == "event.name":
        row["attributes"] = pairs({**attributes, "event.name": "gen_ai.evaluation.result"})
    else:
        row |= {
            "attributes": pairs({"event.name": "gen_ai.evaluation.result"}),
            "body": any_value(attributes),
        }
    (found,) = said(both(logs(row, {"body": {"stringValue": "just a line"}}), "logs"))
    assert ((found.target_kind, found.target), found.value, found.text) == (
        target,
        0.25,
        "It answers something else.",
    )


def test_openinference_annotations_are_about_span_trace_and_session() -> None:
    attributes = {
        "openinference.span.kind": "LLM", "llm.model_name": "m", "session.id": "s", "user.id": "u",
        "annotations.0.annotation.name": "correctness", "annotations.0.annotation.label": "wrong",
        "annotations.0.annotation.explanation": "The total.", "annotations.0.annotation.annotator_kind": "HUMAN",
        "evaluations.0.evaluation.name": "tone", "evaluations.0.evaluation.score": 0.5,
        "evaluations.0.evaluation.annotator_kind": "LLM",
        "trace.annotations.0.annotation.name": "done", "trace.annotations.0.annotation.score": 1,
        "trace.annotations.0.annotation.annotator_kind": "CODE",
        "session.evaluations.1.evaluation.name": "mood", "session.evaluations.1.evaluation.explanation": "Angry.",
        "annotations.1.annotation.name": "says nothing",
    }  # fmt: skip
    rows = {one.name: one for one in said(both(traces(span(attributes))))}
    shown = {
        n: (f.kind, f.value, f.label, f.text, f.source, f.target_kind, f.target) for n, f in rows.items()
    }
    assert shown == {
        "correctness": ("label", None, "wrong", "The total.", "annotator", "inference", SPAN),
        "tone": ("score", 0.5, None, None, "model", "inference", SPAN),
        "done": ("score", 1.0, None, None, "code", "episode", TRACE),
        "mood": ("comment", None, None, "Angry.", "model", "session", "s"),
    }
    assert len({one.id for one in rows.values()}) == 4


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("rating", [4, 9], '"rating" is 9 in this request; expected: stars from 1 to 5. State the `scale` in each row'),
        ("rating", [0.5], '"rating" is 0.5 in this request'),
        ("user_feedback", [-1, 0], '"user_feedback" is 0 beside -1 in this request; expected: thumbs (1, and 0 or -1).'),
        ("thumbs", [1, 3], '"thumbs" is 3 in this request'),
    ],
)  # fmt: skip
def test_annotations_of_an_unknown_scale_are_rejected_together(
    name: str, values: list[float], told: str
) -> None:
    events = [
        happening(
            "gen_ai.evaluation.result",
            {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value},
        )
        for value in values
    ]
    found = both(traces(span(LLM, events=events)))
    assert (len(found.inferences), found.feedback, found.rejected) == (1, (), len(values))
    assert told in found.message


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"score.value": "NaN"}, 'the evaluation "tone": value must be a number from -1e+12 to 1e+12; this is nan.'),
        ({"score.value": math.nan}, 'the evaluation "tone": value must be a number from -1e+12 to 1e+12; this is nan.'),
        ({"score.value": -math.inf}, "value must be a number from -1e+12 to 1e+12; this is -inf."),
        ({"score.value": "high"},
         "The evaluation \"tone\" has no number as its score, no label and no explanation; its score is 'high'."),
        ({}, 'The evaluation "tone" has no number as its score, no label and no explanation.'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["event", "annotation", "log"])
def test_an_evaluation_that_cannot_be_used_is_rejected_alone(
    bad: dict[str, Any], reason: str, form: str
) -> None:
    if form == "annotation" and not bad:
        pytest.skip("an annotation without any word is none")
    good, wrong = {"name": "tone", "score.value": 0.5}, {"name": "tone", **bad}
    if form == "annotation":
        annotated = {
            f"annotations.{n}.annotation.{key.partition('.')[0]}": value
            for n, one in enumerate((good, wrong))
            for key, value in one.items()
        }
        found = both(traces(span({**LLM, **annotated})))
    else:
        named = [{f"gen_ai.evaluation.{key}": value for key, value in one.items()} for one in (good, wrong)]
        events = [happening("gen_ai.evaluation.result", one) for one in named]
        if form == "event":
            found = both(traces(span(LLM, events=events)))
        else:
            records = [
                {"eventName": one.pop("name"), "spanId": SPAN, "traceId": TRACE, **one} for one in events
            ]
            found = both(logs(*records), "logs")
    assert [one.id for one in found.inferences] == ([] if form == "log" else [SPAN])
    assert ([one.value for one in found.feedback], found.rejected) == ([0.5], 1)
    assert reason in found.message


def test_an_evaluation_of_nothing_is_rejected() -> None:
    record = {"eventName": "gen_ai.evaluation.result", "attributes": pairs(EVALUATION), "timeUnixNano": "5"}
    found = both(logs(record), "logs")
    assert (found.feedback, found.rejected) == ((), 1)
    assert 'The evaluation "Relevance" names no span, response, trace or session.' in found.message
    said = {"session.annotations.0.annotation.name": "mood", "session.annotations.0.annotation.score": 1}
    found = both(traces(span({**LLM, **said})))
    assert (len(found.inferences), found.feedback, found.rejected) == (1, (), 1)


def test_an_annotation_states_its_scale() -> None:
    one = {"name": "rating", "score": 9, "scale": "1..10", "annotator_kind": "HUMAN"}
    attributes = {f"annotations.0.annotation.{key}": value for key, value in one.items()}
    (found,) = said(both(traces(span({**LLM, **attributes}))))
    assert (found.kind, found.source) == ("rating", "annotator")
    assert found.value == pytest.approx(1 + 32 / 9)


def test_a_span_that_ends_before_it_starts_has_no_latency_and_it_is_said() -> None:
    found = both(traces(span(LLM, endTimeUnixNano=str(START - 4))))
    assert only(found).latency is None
    assert json.loads(found.response())["partialSuccess"] == {
        "rejectedSpans": "0",
        "errorMessage": f"Spans that end before they start have no latency (1; the first is {SPAN}).",
    }


APP, HTTP, GATE = "a" * 16, "b" * 16, "c" * 16
COSTS = {"llm.cost.total": 0.5, "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}


def inside(id: str, parent: str, attributes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A span below another one."""
    return span(attributes, spanId=id, **({"parentSpanId": parent} if parent else {}), **more)


def times(start: int, end: int) -> dict[str, str]:
    """When a span stood, in nanoseconds after the others' start."""
    return {"startTimeUnixNano": str(START + start), "endTimeUnixNano": str(START + end)}


@pytest.mark.parametrize("turned", [False, True])
def test_a_call_that_an_app_and_its_gateway_record_is_one_answer(turned: bool) -> None:
    rated = happening("gen_ai.evaluation.result", EVALUATION)
    spans = [
        inside(APP, "", {**LLM, "whet.prompt.name": "shop/help", "whet.prompt.version": 2}),
        inside(HTTP, APP, {"http.method": "POST"}),
        inside(GATE, HTTP, {**LLM, **COSTS, "gen_ai.response.id": "resp-1"}, events=[rated]),
    ]
    found = both(traces(*(reversed(spans) if turned else spans)))
    one = only(found)
    assert (one.id, one.prompt, one.version, one.response) == (APP, "shop/help", 2, "resp-1")
    assert (one.cost, one.input_tokens, one.output_tokens) == (0.5, 10, 2)
    assert one.metadata["inner_spans"] == [GATE]
    assert [feedback.target for feedback in found.feedback] == [APP]
    assert found.warning == (
        f"Spans inside of another span of the same call are counted with it (1; the span {GATE} with {APP})."
    )


@pytest.mark.parametrize(
    ("spans", "ids"),
    [
        ([inside(APP, "", {**LLM, **COSTS}), inside(GATE, APP, {**LLM, **COSTS})], [APP]),
        ([inside(APP, "", LLM), inside(HTTP, APP, LLM), inside(GATE, HTTP, LLM)], [APP]),
        ([inside(APP, "", {**LLM, "gen_ai.response.id": "r"}),
          inside(GATE, "d" * 16, {**LLM, "gen_ai.response.id": "r"})], [APP]),
        ([inside(APP, "", {**LLM, "gen_ai.response.id": "r"}), inside(GATE, APP, {**LLM, "gen_ai.response.id": "s"})],
         [APP, GATE]),
        ([inside(APP, "", LLM), inside(GATE, APP, LLM, endTimeUnixNano=str(START + 9_000_000_000))], [APP]),
        ([inside(APP, "", LLM), inside(GATE, APP, LLM, **times(-1_000_000, 1_999_000_000))], [APP]),
        ([inside(APP, "", LLM), inside(GATE, APP, LLM, **times(1_499_000_000, 3_999_000_000))], [APP, GATE]),
        ([inside(APP, "", LLM), inside(GATE, APP, LLM, traceId="1" * 32)], [APP, GATE]),
        ([inside(HTTP, "", {"gen_ai.operation.name": "invoke_agent"}), inside(APP, HTTP, LLM), inside(GATE, HTTP, LLM)],
         [APP, GATE]),
        ([inside(APP, GATE, LLM), inside(GATE, APP, LLM)], []),
    ],
    ids=["inside", "three deep", "one response", "two responses", "longer", "a clock that is behind", "one that follows",
         "other trace", "an agent", "a circle"],
)  # fmt: skip
def test_which_spans_are_one_call(spans: list[dict[str, Any]], ids: list[str]) -> None:
    found = both(traces(*spans))
    assert [one.id for one in found.inferences] == ids or (not ids and len(found.inferences) == 1)
    if len(found.inferences) == 1 and found.inferences[0].cost is not None:
        assert (found.inferences[0].cost, found.inferences[0].input_tokens) == (0.5, 10)


def test_a_repeated_request_has_the_same_ids() -> None:
    request = traces(span(LLM, events=[happening("gen_ai.evaluation.result", EVALUATION)] * 2))
    first, again = both(request), both(request)
    assert [one.id for one in first.feedback] == [one.id for one in again.feedback]
    assert len({one.id for one in first.feedback}) == 2


def test_long_texts_are_cut_and_it_is_said() -> None:
    attributes = {**LLM, "output.value": "a" * 300_000, "input.value": "b\x00" * 200_000}
    found = only(both(traces(span(attributes))))
    assert len(found.output) == 256_000
    assert found.metadata["cut"] == ["inputs", "output"]
    assert "\x00" not in found.inputs["input"]


def test_what_cannot_be_used_is_rejected_with_its_reason_and_the_rest_is_kept() -> None:
    spans = [span(LLM), span(LLM, spanId="0" * 16), span(LLM, startTimeUnixNano="5", spanId="c" * 16)]
    found = both(traces(*spans))
    assert (len(found.inferences), found.received, found.rejected) == (1, 3, 2)
    assert found.message == 'The span "chat m" has no valid id.'
    answer = json.loads(found.response())
    assert answer == {"partialSuccess": {"rejectedSpans": "2", "errorMessage": found.message}}
    late = found.without([SPAN], "taken")
    assert (late.inferences, late.rejected, late.message) == ((), 3, found.message)


@pytest.mark.parametrize(
    "attributes",
    [
        {"llm.prompt_template.variables": '{"a": ' + "[" * 300 + "]" * 300 + "}"},
        {"llm.prompt_template.variables": '{"a": ' + "[" * 70 + "]" * 70 + "}"},
        {"gen_ai.input.messages": '[{"role": "user", "content": ' + '{"a":' * 300 + "1" + "}" * 301 + "]"},
        {
            "metadata": json.dumps({"a": 1}),
            "llm.prompt_template.variables": '{"a": ' + '{"a": ' * 80 + "1" + "}" * 81,
        },
    ],
)
def test_a_span_that_no_database_keeps_is_rejected_alone(attributes: dict[str, Any]) -> None:
    good = span({"gen_ai.operation.name": "chat"})
    bad = span({"gen_ai.operation.name": "chat", **attributes}, spanId="b7ad6b7169203332")
    found = parse_otlp(json.dumps(traces(bad, good)).encode(), JSON_TYPE)
    assert ([one.id for one in found.inferences], found.rejected) == ([SPAN], 1)
    assert any(why in found.message for why in ("JSON", "64 levels deep"))


def test_an_id_with_a_line_break_loses_nothing_but_its_shape() -> None:
    lines = {"user.id": "ann\n", "session.id": "a\tb", "whet.inference.id": "one\x85two"}
    others = {"user.id": "ann", "session.id": "a b"}
    first, second = parse_otlp(
        json.dumps(
            traces(
                span({"gen_ai.operation.name": "chat", **lines}),
                span({"gen_ai.operation.name": "chat", **others}, spanId="b7ad6b7169203332"),
            )
        ).encode(),
        JSON_TYPE,
    ).inferences
    assert first.id.startswith("one two#") and first.session is not None and first.session.startswith("a b#")
    assert first.user is not None and first.user.startswith("ann #") and second.user == "ann"
    assert sorted(first.metadata["cut"]) == ["id", "session", "user"] and second.session == "a b"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"startTimeUnixNano": "soon"}, "startTimeUnixNano must be a whole number; this is 'soon'."),
        ({"endTimeUnixNano": 1.5}, "endTimeUnixNano must be a whole number; this is '1.5'."),
        ({"status": 2}, '"status" must be an object.'),
        ({"events": [{"timeUnixNano": []}]}, "timeUnixNano must be a whole number; this is '[]'."),
        ({"attributes": {"a": 1}}, '"attributes" must be a list of objects.'),
        ({"attributes": [{"key": "n", "value": {"intValue": "x"}}]}, "intValue must be a whole number; this is 'x'."),
    ],
)  # fmt: skip
def test_a_span_that_cannot_be_read_is_rejected_alone(wrong: dict[str, Any], reason: str) -> None:
    good = span({"gen_ai.operation.name": "chat"})
    bad = {**span({"gen_ai.operation.name": "chat"}, spanId="b7ad6b7169203332"), **wrong}
    found = parse_otlp(json.dumps(traces(bad, good)).encode(), JSON_TYPE)
    assert ([one.id for one in found.inferences], found.received, found.rejected) == ([SPAN], 2, 1)
    assert found.message == f'The span "chat m" cannot be read: {reason}'


def test_half_a_surrogate_pair_in_a_span_loses_nothing() -> None:
    """As JSON.stringify writes a text that was cut in the middle of an emoji."""
    good = span({"gen_ai.operation.name": "chat"})
    half = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": "a\ud83d"}]}]
        ),
    }
    body = json.dumps(traces(good, span(half, spanId="b7ad6b7169203332"))).encode()
    found = parse_otlp(body, JSON_TYPE)
    assert [one.output for one in found.inferences][1] == "a\ufffd" and found.rejected == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\ud83d\\ude00"', "\ufffd\\ude00"),
        (r'"\\ud83d"', "\\ud83d"),
        (r'"\uDE00\ud83dx\n"', "\ufffd\ufffdx\n"),
    ],
)
def test_halves_of_pairs_become_the_replacement_character(text: str, value: str) -> None:
    assert read_json(text) == read_json(text.encode()) == value


def test_a_log_record_that_cannot_be_read_is_rejected_alone() -> None:
    good = {"eventName": "gen_ai.evaluation.result", "spanId": SPAN, "attributes": pairs(EVALUATION)}
    found = parse_otlp(json.dumps(logs({**good, "timeUnixNano": "x"}, good)).encode(), JSON_TYPE, "logs")
    assert (len(found.feedback), found.received, found.rejected) == (1, 2, 1)
    told = 'The log record "gen_ai.evaluation.result" cannot be read: timeUnixNano must be'
    assert found.message.startswith(told)


@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_answers_in_protobuf_are_what_an_exporter_reads(signal: str) -> None:
    name = {"traces": "trace", "logs": "logs"}[signal]
    module = importlib.import_module(f"opentelemetry.proto.collector.{name}.v1.{name}_service_pb2")
    message = getattr(module, f"Export{name.capitalize()}ServiceResponse")()
    whole = Parsed(PROTOBUF_TYPE, signal, (), (), 500)
    message.ParseFromString(whole.response())
    assert not message.HasField("partial_success")
    message.ParseFromString(Parsed(PROTOBUF_TYPE, signal, (), (), 500, 300, "é").response())
    partial = message.partial_success
    assert partial.error_message == "é"
    assert (partial.rejected_spans if signal == "traces" else partial.rejected_log_records) == 300
    assert failure_body(PROTOBUF_TYPE, "no") == b"\x08\x03\x12\x02no"
    assert json.loads(failure_body(JSON_TYPE, "no")) == {"code": 3, "message": "no"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"), (b"{", "not JSON"), (b"[]", "must be an object"), (b"[" * 5000, "not JSON"),
        (b'{"resourceSpans": 1}', "must be an object with a list"),
        (b'{"resourceSpans": [1]}', '"resourceSpans" must be a list of objects'),
        (b'{"resourceSpans": [{"resource": []}]}', '"resource" must be an object'),
        (b'{"resourceSpans": [{"scopeSpans": {}}]}', '"scopeSpans" must be a list'),
        (b'{"resourceSpans": [{"resource": {"attributes": {"a": 1}}}]}', '"attributes" must be a list'),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [1]}]}]}', '"spans" must be a list of objects'),
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_otlp(body, JSON_TYPE)
    assert reason in str(refused.value)


def test_bytes_that_are_no_protobuf_are_refused() -> None:
    with pytest.raises(UsageError, match="in protobuf"):
        parse_otlp(b"\xff\xff\xff", PROTOBUF_TYPE)
    assert parse_otlp(b"", PROTOBUF_TYPE).received == 0


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/xml", "application/grpc"])
def test_other_content_types_are_refused(content_type: str | None) -> None:
    with pytest.raises(Unsupported, match="cannot be read"):
        parse_otlp(b"{}", content_type)
    with pytest.raises(UsageError, match="no signal"):
        parse_otlp(b"{}", JSON_TYPE, "metrics")


def test_without_the_package_protobuf_is_refused_and_json_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "google"))]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    class Block:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name.split(".")[0] in ("opentelemetry", "google"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Block(), *sys.meta_path])
    assert builtins.__import__ is real
    with pytest.raises(Unsupported, match=r"whet\[otlp\].*http/json"):
        parse_otlp(b"", PROTOBUF_TYPE)
    assert only(parse_otlp(json.dumps(traces(span(LLM))).encode(), JSON_TYPE)).model == "m"


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["resourceSpans", "scopeSpans", "spans", "attributes", "key", "value", "stringValue", "arrayValue",
                         "values", "events", "traceId", "spanId", "name", "startTimeUnixNano", "status", "intValue"]),
        inner, max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(NESTED, st.sampled_from(["traces", "logs"]))
def test_whatever_comes_is_read_or_refused(body: Any, signal: str) -> None:
    try:
        found = parse_otlp(json.dumps(body).encode("utf-8", "surrogatepass"), JSON_TYPE, signal)
    except UsageError as error:
        assert str(error)
    else:
        assert found.received >= len(found.inferences)


@given(st.dictionaries(st.sampled_from([
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion", "gen_ai.prompt.0.content",
    "llm.input_messages.0.message.content", "llm.prompt_template.variables", "gen_ai.usage.input_tokens", "user.id",
    "gen_ai.system_instructions", "whet.prompt.version", "annotations.0.annotation.score", "llm.cost.total",
    "annotations.0.annotation.name", "whet.inference.id", "whet.prompt.name",
]), st.sampled_from(["", "[]", "{}", "[1]", '{"a": [null]}',
    '[{"parts": null}]', '{"message": {"message": 1}}', "\x00", "x" * 300])
    | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.booleans() | st.lists(st.text(max_size=3), max_size=3)))  # fmt: skip
def test_whatever_stands_in_the_attributes_is_kept_or_rejected(attributes: dict[str, Any]) -> None:
    try:
        body = json.dumps(traces(span({"gen_ai.request.model": "m", **attributes})), allow_nan=False)
    except ValueError:
        body = json.dumps(traces(span({"gen_ai.request.model": "m"})))
    found = parse_otlp(body.encode(), JSON_TYPE)
    assert len(found.inferences) == 1 or found.rejected == 1


CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
SEEN = {"openinference.span.kind": "LLM", "llm.model_name": "m", "llm.input_messages.0.message.role": "user"}


def parts(*values: dict[str, Any]) -> str:
    return json.dumps([{"role": "assistant", "parts": [*values]}])


@pytest.mark.parametrize(
    ("attributes", "output"),
    [
        ({"gen_ai.output.messages": parts({"type": "reasoning", "content": "no"}, {"type": "text", "content": "yes"})}, "yes"),
        ({"gen_ai.completion": json.dumps([{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "no"}, {"type": "text", "text": "yes"}]}])}, "yes"),
        ({"gen_ai.completion": '["red","blue"]'}, '["red","blue"]'),
        ({"gen_ai.completion": '{"text":"x","label":"spam"}'}, '{"text":"x","label":"spam"}'),
        ({"gen_ai.completion.0.content": '[{"text":"x","label":"spam"}]'}, '[{"text":"x","label":"spam"}]'),
        ({"gen_ai.completion.0.content": '[{"type":"text","text":"hi"}]'}, "hi"),
        ({"gen_ai.completion.0.content": "Wait.", "gen_ai.completion.0.tool_calls.0.name": "f"},
         'Wait.\n{"tool_calls.0.name":"f"}'),
        ({"ai.response.object": '{"a":1}'}, '{"a":1}'),
        ({"ai.response.toolCalls": '[{"toolName":"f"}]'}, '[{"toolName":"f"}]'),
        ({"langfuse.observation.output": '{"role":"assistant","content":"o"}'}, "o"),
        ({"output.value": '{"content":"C","title":"T"}'}, '{"content":"C","title":"T"}'),
    ],
)  # fmt: skip
def test_an_answer_is_what_was_said_and_an_answer_of_json_stays_whole(
    attributes: dict[str, str], output: str
) -> None:
    (one,) = both(traces(span({**CALL, **attributes}))).inferences
    assert one.output == output


@pytest.mark.parametrize(
    ("attributes", "conversation"),
    [
        ({**SEEN, "llm.input_messages.0.message.contents.0.message_content.type": "text",
          "llm.input_messages.0.message.contents.0.message_content.text": "look",
          "llm.input_messages.0.message.contents.1.message_content.type": "image",
          "llm.input_messages.0.message.contents.1.message_content.image.image.url": "http://x/y.png"},
         [("user", 'look\n{"type":"image","image.image.url":"http://x/y.png"}')]),
        ({**CALL, "gen_ai.system_instructions": '[{"type":"text","content":"Be kind."}]',
          "gen_ai.input.messages": '[{"role":"system","content":"Be kind."},{"role":"user","content":"hi"}]'},
         [("system", "Be kind."), ("user", "hi")]),
        ({**CALL, "langfuse.observation.input": '[{"role":"system","content":"S"},{"role":"user","content":"u"}]'},
         [("system", "S"), ("user", "u")]),
        ({**CALL, "gen_ai.prompt": '{"messages":["x"],"k":1}'}, [("user", '{"messages":["x"],"k":1}')]),
    ],
)  # fmt: skip
def test_nothing_of_a_conversation_is_lost_or_doubled(
    attributes: dict[str, str], conversation: list[tuple[str, str]]
) -> None:
    (one,) = both(traces(span({**attributes, "output.value": "A"}))).inferences
    assert [(m["role"], m["content"]) for m in one.inputs["messages"]] == conversation


def test_whole_numbers_beyond_64_bits_stay_as_they_are() -> None:
    number = "123456789012345678901234567890"
    filled = {**LLM, "llm.prompt_template.variables": f'{{"n": {number}, "m": 3}}'}
    found = only(both(traces(span(filled))))
    assert found.inputs == {"n": number, "m": 3} and found.metadata["cleaned"] == ["inputs"]
    said = {**LLM, "gen_ai.input.messages": f'[{{"role": "user", "content": {{"n": {number}}}}}]'}
    found = only(both(traces(span(said))))
    assert found.inputs == {"messages": [{"role": "user", "content": f'{{"n":{number}}}'}]}
    row = f'{{"prompt": "p", "inputs": {{"a": [{{"n": {number}}}]}}, "metadata": {{"n": -{number}}}}}'
    (one,) = read_inferences(read_json(f'{{"inferences": [{row}]}}'.encode()))
    assert one.inputs == {"a": [{"n": number}]}
    assert one.metadata == {"n": f"-{number}", "cleaned": ["inputs", "metadata"]}
    deep = '{"n": ' + "[" * 900 + number + "]" * 900 + "}"
    with pytest.raises(UsageError, match=r"levels deep|not JSON"):
        read_inferences({"inferences": [{"prompt": "p", "inputs": read_json(deep)}]})
