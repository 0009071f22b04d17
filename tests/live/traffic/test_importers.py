"""Exports of other tools and plain tables, read and stored. The rows are our own, in the shapes of those tools."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from whet.errors import UsageError
from whet.types import content_hash
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.traffic import Traffic
from whet_live.traffic.importers import ParsedFiles, earlier_ids, read_files, store_imported
from whet_live.traffic.traffic_tables import erased

TIME = "2026-01-02T03:04:05Z"
MICROS = 1_767_323_045_000_000


def read(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> ParsedFiles:
    """Rows as a file of JSON lines, read."""
    path = tmp_path / "export.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return read_files([path], **{"prompt": "support", "version": 4, **options})


def shown(one: Feedback) -> tuple[Any, ...]:
    """What feedback says, about what, by whom."""
    return one.kind, one.value, one.label, one.text, one.name, one.source, one.target_kind, one.target


OPENAI = {
    "object": "eval.run.output_item", "id": "outputitem_1", "created_at": 1_767_323_045, "eval_id": "e", "run_id": "r",
    "status": "fail", "datasource_item_id": 1, "datasource_item": {"question": "It is off.", "target": "Restart"},
    "sample": {
        "input": [{"role": "user", "content": "It is off."}], "output": [{"role": "assistant", "content": "Wait."}],
        "model": "m", "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}, "error": None,
    },
    "results": [
        {"name": "match", "type": "string-check-grader", "passed": False, "score": 0.0},
        {"name": "tone", "type": "score_model", "passed": True, "score": 0.75, "reason": "Polite."},
    ],
}  # fmt: skip


def test_openai_evals_output_items(tmp_path: Path) -> None:
    found = read(tmp_path, OPENAI)
    assert found.inferences == [
        Inference(
            prompt="support", version=4, id="outputitem_1", inputs={"question": "It is off.", "target": "Restart"},
            output="Wait.", model="m", input_tokens=9, output_tokens=2, time=MICROS,
        )
    ]  # fmt: skip
    assert [shown(one) for one in found.feedback] == [
        ("score", 0.0, "fail", None, "match", "code", "inference", "outputitem_1"),
        ("score", 0.75, "pass", "Polite.", "tone", "model", "inference", "outputitem_1"),
    ]


@pytest.mark.parametrize("output", [[], None, [{"role": "assistant", "content": None}]])
def test_a_sample_that_was_filtered_is_empty_and_says_why(tmp_path: Path, output: Any) -> None:
    sample = {**OPENAI["sample"], "output": output, "finish_reason": "content_filter"}
    (found,) = read(tmp_path, {**OPENAI, "sample": sample}).inferences
    assert (found.output, found.metadata) == ("", {"finish_reason": "content_filter"})


def test_the_ratings_of_an_openai_dataset(tmp_path: Path) -> None:
    row = {
        "item.question": "It is off.",
        "sample.output_text": "Wait.",
        "output_feedback": "Bad",
        "rating": "Too short",
    }
    found = read(tmp_path, row, row)
    assert len(found.inferences) == 1 and found.inferences[0].output == "Wait."
    assert found.feedback and {one.target for one in found.feedback} == {found.inferences[0].id}


GENERATION = {
    "id": "obs-1", "traceId": "t-1", "type": "GENERATION", "name": "chat", "startTime": TIME,
    "endTime": "2026-01-02T03:04:06.500Z", "promptName": "support/answer", "promptVersion": 2, "model": "m",
    "input": [{"role": "user", "content": "It is off."}], "output": {"role": "assistant", "content": "Wait."},
    "usage": {"input": 9, "output": 2}, "calculatedTotalCost": 0.25, "userId": "u", "sessionId": "s", "level": "DEFAULT",
    "scores": [
        {"id": "sc-0", "name": "user-feedback", "value": 1, "dataType": "NUMERIC", "source": "API", "comment": "Nice",
         "timestamp": TIME}
    ],
}  # fmt: skip


def test_langfuse_generations(tmp_path: Path) -> None:
    found = read(tmp_path, GENERATION)
    assert found.inferences == [
        Inference(
            prompt="support/answer", version=2, id="obs-1", inputs={"messages": [{"role": "user", "content": "It is off."}]},
            output="Wait.", model="m", cost=0.25, latency=1.5, input_tokens=9, output_tokens=2, session="s", user="u",
            episode="t-1", time=MICROS,
        )
    ]  # fmt: skip
    assert [shown(one) for one in found.feedback] == [
        ("thumb", 1.0, None, "Nice", "user-feedback", "user", "inference", "obs-1")
    ]
    assert (found.feedback[0].id, found.feedback[0].time) == ("sc-0", MICROS)


def test_columns_that_were_added_to_langfuse_generations_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "id,traceId,startTime,model,promptName,promptVersion,input,output,userId,inputTokens,outputTokens,comments,"
        "rating,user_feedback,passed,remark,team\n"
        f"g1,t,{TIME},m,s/h,2,q,a,u,7,3,0,5,,0,Too long,blue\n"
        f"g2,t,{TIME},m,s/h,2,q,b,,8,4,1,,good,,,\n"
        f"g3,t,{TIME},m,s/h,2,q,c,,8,4,1,,,,,red\n"
        f"g4,t,{TIME},m,s/h,2,q,d,,8,4,1,,bad,,,\n",
        "utf-8",
    )
    found = read_files([path], good=["good"], bad=["bad"])
    assert [(one.id, one.version, one.input_tokens, one.output_tokens) for one in found.inferences] == [
        ("g1", 2, 7, 3), ("g2", 2, 8, 4), ("g3", 2, 8, 4), ("g4", 2, 8, 4)
    ]  # fmt: skip
    assert [dict(one.metadata) for one in found.inferences] == [{"team": "blue"}, {}, {"team": "red"}, {}]
    assert sorted(
        (one.target, one.kind, one.value, one.text, one.user, one.time) for one in found.feedback
    ) == [
        ("g1", "rating", 5.0, "Too long", "u", MICROS),
        ("g1", "score", 0.0, None, "u", MICROS),
        ("g2", "thumb", 1.0, None, None, MICROS),
        ("g4", "thumb", 0.0, None, None, MICROS),
    ]


@pytest.mark.parametrize("header", ["type,", ""])
def test_all_rows_of_a_table_of_langfuse_are_read_alike_whichever_cells_are_empty(
    tmp_path: Path, header: str
) -> None:
    """A table without the type is known by the names of prompts, which some rows have."""
    kind, name = ("GENERATION,", "") if header else ("", "s/h")
    rows = (
        f"full,t,{kind}{TIME},m,{name},q,a\n"
        f"nomodel,t,{kind}{TIME},,,q,a\n"
        f"noinput,t,{kind}{TIME},m,,,a\n"
        f"notrace,,{kind}{TIME},m,,q,a\n"
        f"nooutput,t,{kind}{TIME},m,,q,\n"
    )
    path = tmp_path / "table.csv"
    path.write_text(f"id,traceId,{header}startTime,model,promptName,input,output\n{rows}", "utf-8")
    found = read_files([path], prompt="s/h", version=1)
    assert [(one.id, one.time, one.episode) for one in found.inferences] == [
        ("full", MICROS, "t"),
        ("nomodel", MICROS, "t"),
        ("noinput", MICROS, "t"),
        ("notrace", MICROS, None),
        ("nooutput", MICROS, "t"),
    ]


def test_scores_and_observations_of_langfuse_in_one_table(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "id,traceId,sessionId,type,name,startTime,input,output,promptName,observationId,dataType,value,timestamp\n"
        f"g1,t,,GENERATION,n,{TIME},q,a,,,,,\n"
        f"sc,t,,,good,,,,,g1,NUMERIC,0.5,{TIME}\n"
        f"sd,,s,,good,,,,,,NUMERIC,0.5,{TIME}\n",
        "utf-8",
    )
    found = read_files([path], prompt="p")
    assert [one.id for one in found.inferences] == ["g1"]
    assert [(one.id, one.target_kind, one.target, one.value) for one in found.feedback] == [
        ("sc", "inference", "g1", 0.5), ("sd", "session", "s", 0.5)
    ]  # fmt: skip


def test_a_plain_table_may_name_traces_and_prompts(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("trace_id,question,answer,prompt_name,rating\nt,q,a,s/h,5\nt2,q2,a2,,1\n", "utf-8")
    found = read_files([path], prompt="p")
    assert [(one.prompt, one.inputs, one.output, one.episode) for one in found.inferences] == [
        ("s/h", {"input": "q"}, "a", "t"), ("p", {"input": "q2"}, "a2", "t2")
    ]  # fmt: skip
    assert [one.value for one in found.feedback] == [5.0, 1.0]


def test_answers_that_are_stored_once_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("question,answer\nq,a\nq,b\nq,a\nq,a\n", "utf-8")
    found = read_files([path], prompt="p")
    assert len(found.inferences) == 2
    assert found.skipped == [
        (
            f"{path}:4",
            "an earlier row holds the same answer; 2 such rows are stored once. "
            "Rows with a user or an inference_id are told apart",
        )
    ]


def test_langfuse_rows_of_blob_storage(tmp_path: Path) -> None:
    rows = [
        {"id": "obs-2", "trace_id": "t-1", "parent_observation_id": None, "type": "GENERATION", "prompt_name": None,
         "prompt_version": None, "provided_model_name": "m", "input": '{"question": "It is off."}', "output": "Wait.",
         "start_time": "2026-01-02 03:04:05.000000", "latency": 0.5, "total_cost": 0.5, "level": "ERROR",
         "usage_details": {"input": 1, "output": 2}, "status_message": "cut"},
        {"id": "obs-3", "trace_id": "t-1", "parent_observation_id": "obs-2", "type": "SPAN"},
        {"id": "s1", "trace_id": "t-1", "observation_id": "obs-2", "name": "correctness", "value": 0.0,
         "string_value": "wrong", "data_type": "CATEGORICAL", "source": "ANNOTATION", "comment": "The total.",
         "author_user_id": "ann"},
        {"id": "s2", "trace_id": "t-1", "observation_id": None, "name": "tone", "value": 0.5, "string_value": None,
         "data_type": "NUMERIC", "source": "EVAL"},
        {"id": "s3", "trace_id": None, "session_id": "s", "name": "done", "value": 1, "data_type": "BOOLEAN",
         "source": "API"},
        {"id": "s4", "trace_id": "t-1", "observation_id": "obs-2", "name": "fix", "data_type": "CORRECTION",
         "string_value": "Restart it.", "source": "ANNOTATION"},
        {"id": "s5", "trace_id": "t-1", "name": "note", "data_type": "TEXT", "string_value": "Odd.", "source": "API"},
    ]  # fmt: skip
    found = read(tmp_path, *rows)
    (asked,) = found.inferences
    assert (asked.prompt, asked.version, asked.inputs) == ("support", 4, {"question": "It is off."})
    assert (asked.latency, asked.cost, asked.error, asked.time) == (0.5, 0.5, "cut", MICROS)
    assert [shown(one) for one in found.feedback] == [
        ("label", None, "wrong", "The total.", "correctness", "annotator", "inference", "obs-2"),
        ("score", 0.5, None, None, "tone", "model", "episode", "t-1"),
        ("score", 1.0, None, None, "done", "user", "session", "s"),
        ("correction", None, None, "Restart it.", "fix", "annotator", "inference", "obs-2"),
        ("comment", None, None, "Odd.", "note", "user", "episode", "t-1"),
    ]
    assert found.skipped == [
        (f"{tmp_path / 'export.jsonl'}:2", "it is neither an answer of a model nor feedback")
    ]


PHOENIX_FLAT = {
    "name": "chat", "span_kind": "LLM", "context.span_id": "b7ad6b7169203331", "context.trace_id": "t-1",
    "start_time": TIME, "end_time": "2026-01-02T03:04:06.500Z", "status_code": "OK",
    "attributes.llm.model_name": "m", "attributes.session.id": "s", "attributes.user.id": "u",
    "attributes.llm.input_messages": [{"message.role": "user", "message.content": "It is off."}],
    "attributes.llm.output_messages": '[{"message.role": "assistant", "message.content": "Wait."}]',
    "attributes.llm.token_count.prompt": 9, "attributes.llm.token_count.completion": 2,
}  # fmt: skip
PHOENIX_NESTED = {
    "name": "chat", "span_kind": "LLM", "context": {"span_id": "b7ad6b7169203331", "trace_id": "t-1"},
    "start_time": TIME, "end_time": "2026-01-02T03:04:06.500Z", "status_code": "OK",
    "attributes": {
        "llm": {
            "model_name": "m", "token_count": {"prompt": 9, "completion": 2},
            "input_messages": [{"message": {"role": "user", "content": "It is off."}}],
            "output_messages": [{"message": {"role": "assistant", "content": "Wait."}}],
        },
        "session": {"id": "s"}, "user": {"id": "u"},
    },
    "annotations": [
        {"name": "correctness", "annotator_kind": "HUMAN", "result": {"label": "wrong", "score": 0, "explanation": "Why."}}
    ],
}  # fmt: skip


BRAINTRUST = {
    "id": "b1", "_xact_id": "1000", "created": TIME, "project_id": "p", "log_id": "g", "span_id": "s1", "root_span_id": "s1",
    "span_parents": None, "span_attributes": {"name": "help", "type": "task"}, "input": {"question": "It is off."},
    "output": "Wait.", "expected": None, "error": None, "tags": None, "scores": {"Factuality": 0.25, "Tone": None},
    "metadata": {"model": "m", "user_id": "u7"}, "metrics": {"start": 10.0, "end": 12.5, "prompt_tokens": 9},
    "comments": [{"id": "c1", "created": TIME, "comment": {"text": "It never came back."}}],
}  # fmt: skip


@pytest.mark.parametrize("as_text", [False, True])
def test_braintrust_spans_with_scores_and_comments(tmp_path: Path, as_text: bool) -> None:
    inner = {**BRAINTRUST, "id": "b2", "span_id": "s2", "span_parents": ["s1"], "scores": {}, "comments": []}
    scorer = {
        **inner,
        "id": "b3",
        "span_id": "s3",
        "span_attributes": {"type": "score"},
        "scores": {"Tone": 1},
    }
    row = {
        key: json.dumps(value) if as_text and isinstance(value, dict | list) else value
        for key, value in BRAINTRUST.items()
    }
    found = read(tmp_path, row, inner, scorer)
    assert found.inferences == [
        Inference(
            prompt="support", version=4, id="b1", inputs={"question": "It is off."}, output="Wait.", model="m",
            latency=2.5, input_tokens=9, user="u7", episode="s1", time=MICROS,
        )
    ]  # fmt: skip
    assert [shown(one) for one in found.feedback] == [
        ("score", 0.25, None, None, "Factuality", "code", "inference", "b1"),
        ("comment", None, None, "It never came back.", None, "user", "inference", "b1"),
    ]
    assert [reason for _, reason in found.skipped] == ["it is neither an answer of a model nor feedback"] * 2


def test_a_page_of_braintrust_is_its_spans(tmp_path: Path) -> None:
    (tmp_path / "page.json").write_text(json.dumps({"events": [BRAINTRUST], "cursor": "x"}))
    assert [one.id for one in read_files([tmp_path / "page.json"], prompt="p").inferences] == ["b1"]


@pytest.mark.parametrize("row", [PHOENIX_FLAT, PHOENIX_NESTED], ids=["flat", "nested"])
def test_phoenix_spans(tmp_path: Path, row: dict[str, Any]) -> None:
    (asked,) = read(tmp_path, row).inferences
    assert (asked.prompt, asked.version, asked.id, asked.episode) == ("support", 4, "b7ad6b7169203331", "t-1")
    assert asked.inputs == {"messages": [{"role": "user", "content": "It is off."}]}
    assert (asked.output, asked.model, asked.latency, asked.time) == ("Wait.", "m", 1.5, MICROS)
    assert (asked.input_tokens, asked.output_tokens, asked.session, asked.user) == (9, 2, "s", "u")


def test_phoenix_annotations(tmp_path: Path) -> None:
    row = {"span_id": "b7ad6b7169203331", "name": "tone", "annotator_kind": "LLM", "label": "rude", "score": 0.25,
           "explanation": "Short."}  # fmt: skip
    chain = {**PHOENIX_FLAT, "span_kind": "CHAIN"}
    found = read(tmp_path, PHOENIX_NESTED, row, chain)
    assert [shown(one) for one in found.feedback] == [
        ("score", 0.0, "wrong", "Why.", "correctness", "annotator", "inference", "b7ad6b7169203331"),
        ("score", 0.25, "rude", "Short.", "tone", "model", "inference", "b7ad6b7169203331"),
    ]
    assert len(found.inferences) == 1 and len(found.skipped) == 1


def test_feedback_about_a_span_that_is_no_answer_counts_for_its_trace(tmp_path: Path) -> None:
    """People rate the root span, which is a chain; its trace holds the answer."""
    root = {**PHOENIX_FLAT, "span_kind": "CHAIN", "context.span_id": "c0"}
    said = {
        "id": "A",
        "span_id": "c0",
        "name": "user_feedback",
        "annotator_kind": "HUMAN",
        "result": {"score": 1},
    }
    found = read(tmp_path, said, root, PHOENIX_FLAT)
    assert [(one.target_kind, one.target) for one in found.feedback] == [("episode", "t-1")]
    assert any("counts for the answer in its trace" in note for note in found.notes)
    span = {"id": "sp", "type": "SPAN", "startTime": TIME}
    answer = {"id": "ge", "type": "GENERATION", "startTime": TIME, "input": "q", "output": "a"}
    score = {"id": "sc", "observationId": "sp", "name": "user-feedback", "value": 1, "dataType": "NUMERIC"}
    trace = {"id": "tr", "timestamp": TIME, "observations": [span, answer], "scores": [score]}
    found = read(tmp_path, trace)
    assert [one.episode for one in found.inferences] == ["tr"]
    assert [(one.target_kind, one.target) for one in found.feedback] == [("episode", "tr")]


def test_feedback_names_answers_by_the_ids_of_their_rows(tmp_path: Path) -> None:
    said = {"run_id": "x1", "key": "user_score", "score": 1}
    found = read(tmp_path, {"id": "x1", "question": "q", "answer": "a"}, said)
    assert [one.target for one in found.feedback] == [one.id for one in found.inferences]
    twice = [{"id": "x1", "question": one, "answer": one} for one in "ab"]
    assert [one.target for one in read(tmp_path, *twice, said).feedback] == ["x1"], "it names no one answer"
    run = {"id": "r-1", "run_type": "llm", "inputs": {"q": "q"}, "outputs": {"text": "a"}, "trace_id": "t"}
    (answer,) = read(tmp_path, run).inferences
    assert (answer.id, answer.episode) == ("r-1", "t")


def test_scores_inside_of_a_row_are_feedback_and_its_metadata_name_the_user(tmp_path: Path) -> None:
    said = {"name": "user_feedback", "value": 0, "reason": "too long", "source": "ui", "created_by": "ann"}
    opik = {"id": "o-1", "start_time": TIME, "input": {"q": "q"}, "output": "a", "feedback_scores": [said]}
    own = {"Factuality": 0.5, "user_rating": 4, "unknown": None}
    braintrust = {"span_id": "b-1", "created": TIME, "input": "q", "output": "a", "scores": own,
                  "metadata": {"user_id": "bob"}}  # fmt: skip
    found = read(tmp_path, opik, braintrust)
    assert [(one.id, one.user, one.time) for one in found.inferences] == [
        ("o-1", None, MICROS), ("b-1", "bob", MICROS),
    ]  # fmt: skip
    assert [(one.target, one.name, one.value, one.source, one.user, one.text) for one in found.feedback] == [
        ("o-1", "user_feedback", 0.0, "annotator", "ann", "too long"),
        ("b-1", "Factuality", 0.5, "model", None, None),
        ("b-1", "user_rating", 4.0, "user", None, None),
    ]
    assert not any("scores" in one.metadata or "feedback_scores" in one.metadata for one in found.inferences)


def test_feedback_about_answers_that_are_not_stored_is_told(tmp_path: Path, database: Database) -> None:
    traffic = Traffic(database)
    said = [{"run_id": id, "key": "user_score", "score": 1} for id in ("x1", "x2")]
    outcome = store_imported(
        traffic, read(tmp_path, {"inference_id": "x1", "question": "q", "answer": "a"}, *said)
    )
    assert (outcome.accepted, outcome.waiting) == (3, ["x2"])


def test_rows_in_the_words_of_langsmith_and_tensorzero(tmp_path: Path) -> None:
    rows = [
        {"id": "aa-1", "run_id": "r", "key": "helpfulness", "score": 0.2, "comment": "Too long.",
         "correction": {"answer": "Short."}, "created_at": TIME},
        {"metric_name": "task_success", "value": True, "episode_id": "e"},
        {"metric_name": "demonstration", "value": "Restart it.", "inference_id": "i"},
        {"metric_name": "comment", "value": "Odd.", "inference_id": "i"},
        {"run_id": "r", "key": "user_feedback", "score": 1},
    ]  # fmt: skip
    found = read(tmp_path, *rows, prompt=None)
    assert [shown(one) for one in found.feedback] == [
        ("score", 0.2, None, "Too long.", "helpfulness", "user", "inference", "r"),
        ("correction", None, None, "Short.", "helpfulness", "user", "inference", "r"),
        ("score", 1.0, None, None, "task_success", "user", "episode", "e"),
        ("correction", None, None, "Restart it.", None, "user", "inference", "i"),
        ("comment", None, None, "Odd.", None, "user", "inference", "i"),
        ("thumb", 1.0, None, None, "user_feedback", "user", "inference", "r"),
    ]
    assert found.feedback[0].time == MICROS


def test_a_table_with_question_answer_and_what_was_said(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["Question", "Answer", "Rating", "Notes", "User", "Prompt Name", "Prompt Version"])
        writer.writerow(["It is off.", "Wait.", "2", "Wrong, of course.", "ann", "other", "7"])
        writer.writerow(["It is on.", "Good.", "Good", "", "bob", "", ""])
        writer.writerow(["It is odd.", "Yes.", "5", "", "", "", ""])
        writer.writerow(["Unrated", "So it is.", "", "", "", "", ""])
    found = read_files([path], prompt="support", version=4)
    assert [(one.prompt, one.version, one.output) for one in found.inferences] == [
        ("other", 7, "Wait."), ("support", 4, "Good."), ("support", 4, "Yes."), ("support", 4, "So it is."),
    ]  # fmt: skip
    assert [(one.kind, one.value, one.text, one.user) for one in found.feedback] == [
        ("rating", 2.0, "Wrong, of course.", "ann"), ("thumb", 1.0, None, "bob"), ("rating", 5.0, None, None),
    ]  # fmt: skip
    assert [one.target for one in found.feedback] == [one.id for one in found.inferences[:3]]
    assert found.inferences[0].inputs == {"input": "It is off."}


@pytest.mark.parametrize(
    "answer", ['["red","blue"]', "[1, 2, 3]", '{"text":"body","label":"spam"}', '[{"name":"Ann","text":"x"}]']
)
def test_an_answer_that_is_json_stays_as_it_is(answer: str, tmp_path: Path) -> None:
    """A list was cut to its last item, an object to one field."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "q", "answer": answer, "rating": 5}))
    assert [one.output for one in read_files([path], prompt="p").inferences] == [answer]


def test_the_user_of_a_table_is_that_of_its_answers_unless_somebody_else_rated_them(tmp_path: Path) -> None:
    """`whet feedback forget` found nothing of that user."""
    path = tmp_path / "rows.csv"
    path.write_text("question,answer,user,session,source\nq1,a1,u1,s1,\nq2,a2,u2,,annotator\n")
    found = read_files([path], prompt="p").inferences
    assert [(one.user, one.session) for one in found] == [("u1", "s1"), (None, None)]


def test_each_column_of_verdicts_is_feedback_of_its_own(tmp_path: Path) -> None:
    """Of a thumb beside stars, one was kept and the other lost without a word."""
    path = tmp_path / "table.csv"
    path.write_text("input,output,thumb,rating,user\nq1,a1,1,5,ann\nq2,a2,0,1,bob\nq3,a3,0,4,cy\n")
    found = read_files([path], prompt="support")
    assert sorted((one.user, one.kind, one.value) for one in found.feedback) == [
        ("ann", "rating", 5.0), ("ann", "thumb", 1.0), ("bob", "rating", 1.0), ("bob", "thumb", 0.0),
        ("cy", "rating", 4.0), ("cy", "thumb", 0.0),
    ]  # fmt: skip
    assert len({one.id for one in found.feedback}) == 6
    assert {one.target for one in found.feedback} == {one.id for one in found.inferences}


def test_rows_about_one_answer_complete_each_other(tmp_path: Path) -> None:
    rows = [
        {"inference_id": "i", "output": "Wait.", "rating": 4},
        {"inference_id": "i", "input": "It is off.", "output": "Wait.", "comment": "Odd.", "model": "m"},
    ]
    found = read(tmp_path, *rows)
    (asked,) = found.inferences
    assert (asked.id, asked.inputs, asked.output, asked.model) == ("i", {"input": "It is off."}, "Wait.", "m")
    assert [one.kind for one in found.feedback] == ["rating", "comment"]


def test_what_holds_nothing_is_skipped_and_what_is_wrong_is_refused(tmp_path: Path) -> None:
    found = read(tmp_path, {"model": "m"}, {"comment": "About what?"}, {"inference_id": "i", "rating": 3})
    assert [reason for _, reason in found.skipped] == [
        "it holds no answer and says nothing about one", "it does not say which answer it is about",
    ]  # fmt: skip
    assert len(found.feedback) == 1
    with pytest.raises(UsageError, match=r"export\.jsonl:1: the row names no prompt.*--prompt"):
        read(tmp_path, OPENAI, prompt=None)
    with pytest.raises(UsageError, match=r"export\.jsonl:1: the rating must be"):
        read(tmp_path, {"inference_id": "i", "rating": [1]})


@pytest.mark.parametrize("score", [1e15, 10**16, "1e16", -(10**30)])
def test_a_score_too_large_for_the_running_sums_is_refused_with_line_bounds_and_remedy(
    tmp_path: Path, score: float | str
) -> None:
    shown = f"{float(score)!r}".replace("+", r"\+")
    said = rf"export\.jsonl:1: value must be a number from -1e\+12 to 1e\+12; this is {shown}\. Give it in a larger unit"
    with pytest.raises(UsageError, match=said):
        read(tmp_path, {"inference_id": "i", "metric_name": "views", "value": score})


TRACE = {
    "id": "t-1", "name": "chat", "timestamp": TIME, "input": "It is off.", "output": "Wait.", "userId": "u", "sessionId": "s",
    "observations": [
        {"id": "root", "traceId": "t-1", "type": "SPAN", "parentObservationId": None, "startTime": TIME},
        {k: v for k, v in GENERATION.items() if k not in ("scores", "userId", "sessionId")} | {"parentObservationId": "root"},
    ],
    "scores": [
        {"id": "sc-1", "traceId": "t-1", "observationId": None, "name": "tone", "value": 0.25, "dataType": "NUMERIC",
         "source": "EVAL", "stringValue": None, "timestamp": TIME},
        {"id": "sc-0", "traceId": "t-1", "observationId": "obs-1", "name": "user-feedback", "value": 1,
         "dataType": "NUMERIC", "source": "API", "comment": "Nice", "stringValue": None, "timestamp": TIME},
    ],
}  # fmt: skip


def test_a_whole_langfuse_trace_is_its_generations_and_all_scores(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(TRACE), "utf-8")
    found = read_files([path], "support", 4)
    assert found.inferences == read(tmp_path, GENERATION).inferences
    assert [shown(one) for one in found.feedback] == [
        ("score", 0.25, None, None, "tone", "model", "episode", "t-1"),
        ("thumb", 1.0, None, "Nice", "user-feedback", "user", "inference", "obs-1"),
    ]
    assert found.skipped == []
    bare = read(tmp_path, {**TRACE, "observations": TRACE["observations"][:1]})
    (asked,) = bare.inferences
    assert (asked.id, asked.episode, asked.output, asked.user, asked.time) == (
        "t-1",
        "t-1",
        "Wait.",
        "u",
        MICROS,
    )
    assert bare.feedback == found.feedback


@pytest.mark.parametrize("time", ["yesterday", "2024-13-45", "12:00", 5, "9999999999999999999"])
def test_a_time_that_is_none_is_refused_with_its_line(tmp_path: Path, time: object) -> None:
    good = {"input": "It is off.", "output": "Wait.", "rating": 4, "createdAt": TIME}
    with pytest.raises(UsageError, match=r'export\.jsonl:2: "createdAt" is .*, which is no time\. Write 20'):
        read(tmp_path, good, {**good, "output": "No.", "createdAt": time})
    for nothing in (None, "", "NaT", "null"):
        assert len(read(tmp_path, {**good, "createdAt": nothing}).inferences) == 1


@pytest.mark.parametrize(
    "around",
    [
        {"object": "list", "first_id": "a", "has_more": False},
        {"meta": {"page": 1, "totalItems": 3}},
        {"next_cursor": None},
    ],
)
def test_a_page_as_an_interface_answers_it_is_its_rows(tmp_path: Path, around: dict[str, Any]) -> None:
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"data": [OPENAI, GENERATION, {"run_id": "r"}], **around}), "utf-8")
    found = read_files([path], "support", 4)
    same = read(tmp_path, OPENAI, GENERATION, {"run_id": "r"})
    assert (found.inferences, found.feedback) == (same.inferences, same.feedback)
    assert [where for where, _ in found.skipped] == [f"{path}:1: data[2]"]


@pytest.mark.parametrize("text", ['{"data": []}', '{"data": [1]}', '{"rows": [{"rating": 1}]}', "{"])
def test_a_document_that_is_no_page_of_rows_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "page.json"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match=r"page\.json:1: "):
        read_files([path], "support", 4)


def test_files_of_which_nothing_can_be_used_are_refused_with_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("colour;size\nred;\n", "utf-8")
    with pytest.raises(UsageError, match=r"table\.csv:2: .*The first has \"colour\""):
        read_files([path], "support", 4)


def test_the_same_files_twice_change_nothing(tmp_path: Path, database: Database) -> None:
    traffic = Traffic(database)
    rows = [
        OPENAI,
        GENERATION,
        PHOENIX_NESTED,
        {"question": "q", "answer": "a", "rating": 5},
        {"run_id": "r", "score": 1},
    ]
    first = store_imported(traffic, read(tmp_path, *rows))
    assert (first.accepted, first.duplicates, first.conflicts) == (4 + 6, 0, [])
    again = store_imported(traffic, read(tmp_path, *rows))
    assert (again.accepted, again.duplicates, again.conflicts) == (0, 10, [])
    changed = {**GENERATION, "output": "Restart it.", "scores": []}
    third = store_imported(traffic, read(tmp_path, changed, {"question": "q", "answer": "b", "rating": 5}))
    assert (third.accepted, [clash.id for clash in third.conflicts]) == (2, ["obs-1"])


TABLE = (
    {"question": "q", "answer": "a", "rating": 5},
    {"question": "p", "answer": "b", "rating": 3, "user": "u"},
)


def placed(traffic: Traffic) -> list[tuple[str, int, int]]:
    """Prompt and version of all ratings, and how many there are."""
    return sorted((one.prompt, one.version, one.n) for one in traffic.counts() if one.kind == "rating")


def test_one_text_may_be_the_answer_of_two_versions_and_of_two_prompts(
    tmp_path: Path, database: Database
) -> None:
    traffic = Traffic(database)
    places = [("support", 1), ("support", 2), ("shop", 2)]
    for prompt, version in [*places, *places]:
        stored = store_imported(traffic, read(tmp_path, *TABLE, prompt=prompt, version=version))
        assert stored.conflicts == []
    named = ({**row, "prompt_name": "shop", "prompt_version": 2} for row in TABLE)
    assert store_imported(traffic, read(tmp_path, *named)).duplicates == 2, (
        "the same answers of the same version"
    )
    assert [row[:2] for row in placed(traffic)] == sorted(places)
    assert {row[2] for row in placed(traffic)} == {2, 4}


@pytest.mark.parametrize("kind", ["episode", "session", "response"])
def test_one_text_may_be_the_answer_in_two_places(kind: str, tmp_path: Path, database: Database) -> None:
    traffic = Traffic(database)
    found = read(
        tmp_path, *({"question": "q", "answer": "a", "rating": n, f"{kind}_id": f"t{n}"} for n in (1, 5))
    )
    assert [getattr(one, kind) for one in found.inferences] == ["t1", "t5"]
    store_imported(traffic, found)
    assert placed(traffic) == [("support", 4, 2)], "no rating waits for its answer"


def test_a_file_that_was_imported_under_earlier_ids_changes_nothing(
    tmp_path: Path, database: Database
) -> None:
    traffic = Traffic(database)
    before = "import-" + content_hash(["q", "a", None, None])[:32]
    gone = "import-" + content_hash(["p", "b", None, None])[:32]
    traffic.add([Inference("support", 4, id=before, inputs={"input": "q"}, output="a")])
    with database.begin() as connection:
        connection.execute(erased.insert(), [{"seq": 9, "id": gone, "what": "inference"}])
    again = store_imported(traffic, read(tmp_path, *TABLE, earlier=earlier_ids(traffic)))
    assert (again.duplicates, again.erased, again.conflicts) == (1, 2, []), (
        "one answer is there, one was erased"
    )
    assert placed(traffic) == [("support", 4, 1)]
    other = store_imported(traffic, read(tmp_path, *TABLE, version=5, earlier=earlier_ids(traffic)))
    assert (other.accepted, other.erased) == (2, 2)
    assert placed(traffic) == [("support", 4, 1), ("support", 5, 1)]


def score(value: float | None, name: str = "user-feedback", **more: Any) -> dict[str, Any]:
    """A Langfuse score."""
    return {"trace_id": "t", "name": name, "value": value, "data_type": "NUMERIC", "timestamp": TIME, **more}


def test_different_feedback_under_one_id_is_kept_apart(tmp_path: Path) -> None:
    found = read(tmp_path, score(0.1, "a", id="s"), score(0.2, "b", id="s"), score(0.1, "a", id="s"))
    assert [one.value for one in found.feedback] == [0.1, 0.2]
    assert len({one.id for one in found.feedback}) == 2


LATER = "2026-01-02T03:05:00Z"


@pytest.mark.parametrize(
    ("rows", "value", "line"),
    [
        ([score(0, id="s"), score(1, id="s")], 1.0, "1"),
        ([score(0, id="s"), score(1, id="s", timestamp=LATER)], 1.0, "1"),
        ([score(1, id="s", timestamp=LATER), score(0, id="s")], 1.0, "2"),
        ([score(0, id="s"), score(1, id="s"), score(0, id="s", timestamp=LATER)], 0.0, "1"),
    ],
)
def test_a_score_that_was_changed_counts_once_as_it_was_last(
    rows: list[dict[str, Any]], value: float, line: str, tmp_path: Path
) -> None:
    found = read(tmp_path, *rows)
    assert [(one.id, one.kind, one.value) for one in found.feedback] == [("s", "thumb", value)]
    ((place, reason),) = found.skipped
    assert place.rpartition(":")[2] == line
    assert f"that one counts; of {len(rows) - 1} such rows nothing is stored" in reason


def rated(*values: object, name: str = "rating") -> list[dict[str, Any]]:
    """Rows of a plain table with these ratings."""
    return [{"question": f"q{n}", "answer": f"a{n}", name: value} for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("name", "given", "kind", "values", "words"),
    [
        ("rating", [1, 3, 5], "rating", [1, 3, 5], "stars from 1 to 5, in 3 rows"),
        ("rating", [1, 5, 10], "rating", [1, 25 / 9, 5], "a scale from 1 (worst) to 10 (best), kept as stars from 1 to 5"),
        ("rating", [0, 5, 10], "rating", [1, 3, 5], "a scale from 0 (worst) to 10 (best)"),
        ("rating", ["1/10", "4/10"], "rating", [1, 7 / 3], "a scale from 1 (worst) to 10 (best)"),
        ("rating", ["★", "★★"], "rating", [1, 2], "stars from 1 to 5"),
        ("rating", [0, 80, 100], "rating", [1, 4.2, 5], "a scale from 0 (worst) to 100 (best)"),
        ("rating", [0.25, 0.5, 1], "rating", [2, 3, 5], "a scale from 0 (worst) to 1 (best)"),
        ("rating", [-1, 0, 1], "rating", [1, 3, 5], "a scale from -1 (worst) to 1 (best)"),
        ("rating", ["-1", "0", "1"], "rating", [1, 3, 5], "a scale from -1 (worst) to 1 (best)"),
        ("rating", ["+1", "-1"], "thumb", [1, 0], "thumbs, 1 is up and -1 is down"),
        ("rating", [1, 1, 0], "thumb", [1, 1, 0], "thumbs, 1 is up and 0 is down"),
        ("rating", [1, -1], "thumb", [1, 0], "thumbs, 1 is up and -1 is down"),
        ("rating", ["Good", "Bad"], "thumb", [1, 0], ""),
        ("stars", [5.0, 2.5, 0], "rating", [5, 3, 1], "a scale from 0 (worst) to 5 (best)"),
        ("stars", [1, 1], "rating", [1, 1], "stars from 1 to 5, in 2 rows"),
        ("thumb", [1, 1], "thumb", [1, 1], "thumbs, 1 is up and 0 is down"),
        ("thumbs", [-1, -1], "thumb", [0, 0], "thumbs, 1 is up and -1 is down"),
        ("vote", [1, 4, 5], "rating", [1, 4, 5], "stars from 1 to 5"),
        ("score", [1, 0, 7], "score", [1, 0, 7], ""),
    ],
)  # fmt: skip
def test_all_numbers_of_a_column_decide_what_they_are(
    name: str, given: list[object], kind: str, values: list[float], words: str, tmp_path: Path
) -> None:
    found = read(tmp_path, *rated(*given, name=name))
    assert {one.kind for one in found.feedback} == {kind}
    assert [one.value for one in found.feedback] == pytest.approx(values)
    (note,) = found.notes or [""]
    assert note.startswith(f"{name}: {words}") if words else note == ""


def test_a_rating_of_another_scale_keeps_what_was_given(tmp_path: Path) -> None:
    (low, _) = read(tmp_path, *rated(4, 10)).feedback
    assert low.metadata == {"given": 4.0, "scale": "1..10"}


METRICS: dict[str, Any] = {
    "langfuse": lambda name, value, n: score(value, name, id=f"s{n}"),
    "langsmith": lambda name, value, n: {"run_id": f"r{n}", "key": name, "score": value},
    "tensorzero": lambda name, value, n: {"inference_id": f"r{n}", "metric_name": name, "value": value},
    "phoenix": lambda name, value, n: {
        "span_id": f"r{n}", "name": name, "score": value, "label": "thumbs-up", "annotator_kind": "HUMAN",
    },
}  # fmt: skip


@pytest.mark.parametrize("tool", METRICS)
@pytest.mark.parametrize(
    ("name", "given", "kind", "values"),
    [
        ("user-feedback", [1, 1, 1, *[-1] * 7], "thumb", [1, 1, 1, *[0] * 7]),
        ("thumbs", [1, 0, 0], "thumb", [1, 0, 0]),
        ("rating", [2, 8, 10], "rating", [13 / 9, 37 / 9, 5]),
        ("correctness", [1, 0, 4], "score", [1, 0, 4]),
    ],
)
def test_a_metric_is_read_by_one_rule_from_every_tool(
    tool: str, name: str, given: list[float], kind: str, values: list[float], tmp_path: Path
) -> None:
    found = read(tmp_path, *(METRICS[tool](name, value, n) for n, value in enumerate(given)))
    assert {one.kind for one in found.feedback} == {kind}
    assert [one.value for one in found.feedback] == pytest.approx(values)


@pytest.mark.parametrize(
    ("given", "choices"),
    [
        ([1, 1], "(only 1) leave their scale open. State the worst and the best value: "
                 "--scale rating=thumbs or --scale rating=0..1 or --scale rating=1..5."),
        ([0], "--scale rating=thumbs or --scale rating=0..1 or --scale rating=0..5."),
        ([2, 7], "(from 2 to 7) leave their scale open. State the worst and the best value: "
                 "--scale rating=1..7 or --scale rating=1..10."),
        ([0, 20], "--scale rating=0..20 or --scale rating=score."),
        ([-3, 3], "--scale rating=-3..3."),
        (["2/5", "4/10"], "have different best values"),
    ],
)  # fmt: skip
def test_numbers_that_leave_their_scale_open_are_refused_until_it_is_stated(
    given: list[object], choices: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, *rated(*given))
    assert choices in str(error.value) and str(error.value).startswith(f"{tmp_path / 'export.jsonl'}:1: ")
    stated = read(tmp_path, *rated(*given), scales={"rating": "-5..100"})
    assert {one.kind for one in stated.feedback} == {"rating"}


@pytest.mark.parametrize(
    ("name", "scale", "given", "kind", "values"),
    [
        ("rating", "1..10", [1, 5.5], "rating", [1, 3]),
        ("rating", "6..1", [1, 6], "rating", [5, 1]),
        ("rating", "thumbs", [1, 1], "thumb", [1, 1]),
        ("rating", "stars", [1, 2], "rating", [1, 2]),
        ("rating", "score", [1, 200], "score", [1, 200]),
        ("score", "0..100", [50], "rating", [3]),
    ],
)
def test_a_scale_may_be_stated(
    name: str, scale: str, given: list[float], kind: str, values: list[float], tmp_path: Path
) -> None:
    found = read(tmp_path, *rated(*given, name=name), scales={name: scale})
    assert [(one.kind, one.value) for one in found.feedback] == [(kind, pytest.approx(one)) for one in values]
    assert "If that is wrong" not in found.notes[0]


@pytest.mark.parametrize(
    ("scales", "reason"),
    [
        (
            {"rating": "1..5"},
            r':2: 8 in "rating" is outside of --scale rating: stars from 1 to 5\. Correct one',
        ),
        ({"rating": "thumbs"}, r':2: 8 in "rating" is outside of --scale rating'),
        ({"rating": "ten"}, "--scale rating: 'ten' is no scale. Write thumbs, stars, score, or the worst"),
        ({"rating": "3..3"}, "is no scale"),
        ({"ratng": "1..10"}, 'no column or metric "ratng" has numbers. Did you mean "rating"'),
    ],
)
def test_a_stated_scale_that_does_not_fit_is_refused(
    scales: dict[str, str], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=reason):
        read(tmp_path, *rated(1, 8), scales=scales)
    with pytest.raises(UsageError, match=r"holds 0 and -1, so 0 is not down.*rating=-1\.\.1"):
        read(tmp_path, *rated(-1, 0, 1), scales={"rating": "thumbs"})


@pytest.mark.parametrize("comment", [7, 7.5, True])
def test_a_comment_that_is_no_text_is_refused_and_its_rating_not_lost(
    comment: object, tmp_path: Path
) -> None:
    rows = [
        {"input": "q", "output": "a", "rating": 5},
        {"input": "r", "output": "b", "rating": 2, "comment": comment},
    ]
    with pytest.raises(UsageError, match=r"export\.jsonl:2: comment must be a text"):
        read(tmp_path, *rows)


@pytest.mark.parametrize("word", ["bad", "good", "no", "yes", "thumbs up", "5"])
def test_a_comment_of_one_word_stays_a_comment(word: str, tmp_path: Path) -> None:
    found = read(tmp_path, {"metric_name": "comment", "value": word, "inference_id": "i"})
    assert [shown(one) for one in found.feedback] == [
        ("comment", None, None, word, None, "user", "inference", "i")
    ]


def test_an_answer_that_ends_before_it_starts_has_no_latency_and_it_is_said(tmp_path: Path) -> None:
    early = "2026-01-02T03:04:01Z"
    found = read(
        tmp_path,
        {**GENERATION, "endTime": early, "scores": []},
        {**PHOENIX_FLAT, "end_time": early},
        {**GENERATION, "id": "obs-3", "endTime": None, "scores": []},
    )
    assert [one.latency for one in found.inferences] == [None, None, None]
    assert found.notes == [
        f'{tmp_path / "export.jsonl"}:1: "obs-1" ends before it starts, so its latency is unknown; there are 2 such answers.'
    ]


def test_rows_that_say_the_same_again_are_told(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "a", "rating": 4}
    found = read(tmp_path, row, row, {**row, "user": "u"}, row)
    assert [one.user for one in found.feedback] == [None, "u"]
    assert [place.rpartition(":")[2] for place, _ in found.skipped] == ["2"]
    assert "of 2 such rows nothing is stored" in found.skipped[0][1]


def test_a_cell_may_be_as_long_as_any_text(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"question,answer,rating\nq,{'a' * 200_000},5\n", "utf-8")
    limit = csv.field_size_limit()
    (one,) = read_files([path], "support", 4).inferences
    assert (one.output or "").startswith("a" * 8_000) and csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("header", "cells", "kinds"),
    [
        ("question,answer,thumbs_up", ("TRUE", "FALSE"), ["thumb 1", "thumb 0"]),
        ("question,answer,Like", ("1", "0"), ["thumb 1", "thumb 0"]),
        ("question,answer,Rating (1-5)", ("5", "2"), ["rating 5", "rating 2"]),
        ("question,answer,mood", ("5", "2"), []),
    ],
)
def test_columns_as_people_call_them(
    header: str, cells: tuple[str, str], kinds: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{header}\nq1,a1,{cells[0]}\nq2,a2,{cells[1]}\n")
    found = read_files([path], prompt="support", version=1)
    assert [f"{one.kind} {one.value:g}" for one in found.feedback] == kinds
    said = [note for note in found.notes if "No column says anything about the answers" in note]
    assert len(said) == (not kinds) and all('"mood"' in note for note in said)


def test_feedback_that_is_cut_says_so(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "a", "correction": "c" * 9_000}
    (one,) = read(tmp_path, row).feedback
    assert len(one.text or "") == 8_000 and one.metadata == {"cut": ["correction"]}


def test_a_long_text_of_a_table_is_cut_and_says_so(tmp_path: Path) -> None:
    rows = [{"question": "q", "answer": "a" * 8_000 + end, "rating": 5} for end in ("b", "c")]
    found = read(tmp_path, *rows, {"question": "q", "answer": "short", "rating": 5}).inferences
    assert [one.metadata for one in found] == [{"cut": ["output"]}, {"cut": ["output"]}, {}]
    assert [len(one.output or "") for one in found] == [8_000, 8_000, 5]
    assert [one.id for one in read(tmp_path, *rows).inferences] == [one.id for one in found[:2]]
    assert len({one.id for one in found}) == 3


def test_a_name_that_no_prompt_can_have_asks_for_another_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "q", "answer": "a", "comment": "c", "prompt_name": "help: v2"}\n')
    with pytest.raises(
        UsageError, match=r"'help: v2' cannot be the name of a prompt: use letters.*--prompt NAME"
    ):
        read_files([path])
    (one,) = read_files([path], "shop/help").inferences
    assert (one.prompt, one.metadata["prompt_name"]) == ("shop/help", "help: v2")


def test_two_long_ids_of_an_import_stay_two(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"question": "q", "answer": "a", "rating": n + 1, "user": f"{'u' * 300}{n}"} for n in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_files([path], "p", scales={"rating": "stars"})
    users = [one.user for one in found.inferences]
    assert len({*users}) == 2 and users == [one.user for one in found.feedback]
    assert all(one.metadata["cut"] == ["user"] for one in (*found.inferences, *found.feedback))


def test_amounts_and_unknown_columns_of_a_table_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows: list[dict[str, Any]] = [
        {
            "question": "q", "answer": "a", "comment": "c", "order": "7", "country": "de", "model": "m", "latency": 1.5,
            "cost": 0.1, "prompt_tokens": 12, "session_id": "s", "prompt_version": "v2", "metadata": {"k": 1}, "tags": ["x"],
        },
        {"question": "r", "answer": "a", "comment": "c", "latency_ms": 1500, "cost": -1, "n": 10**20},
        {"span_id": "s-1", "comment": "c", "country": "fr"},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_files([path], "p")
    one, other = found.inferences
    assert [note.partition(": ")[2][:26] for note in found.notes] == [
        "\"prompt_version\" is 'v2', ",
        '"cost" is -1, which is no ',
    ]
    assert (one.cost, one.latency, one.input_tokens, one.model, one.session) == (0.1, 1.5, 12, "m", "s")
    kept = {"order": "7", "country": "de", "prompt_version": "v2", "k": 1, "tags": ["x"]}
    assert one.metadata == kept
    assert (other.cost, other.latency) == (None, 1.5)
    assert other.metadata == {"cost": -1, "n": str(10**20), "cleaned": ["metadata"]}
    assert [one.metadata for one in found.feedback] == [{}, {}, {"country": "fr"}]


def test_cells_of_amounts_that_are_no_number_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cost.csv"
    path.write_text(
        'question,answer,total cost,prompt tokens\nq1,a1,$0.01,\nq2,a2,0.02,7\nq3,a3,"1,000.5",10.5\nq4,a4,nan,\n'
    )
    found = read_files([path], "p", 1)
    assert [(one.cost, one.input_tokens) for one in found.inferences] == [
        (None, None), (0.02, 7), (None, None), (None, None),
    ]  # fmt: skip
    assert [note for note in found.notes if "can be used" in note] == [
        f"{path}:2: \"total cost\" is '$0.01', which is no number that can be used; there are 2 such values. The answers are "
        "stored without it, and the metadata keep it. Write plain numbers: dollars (0.002), seconds (0.8), whole tokens (12), "
        "whole versions (3).",
        f"{path}:4: \"prompt tokens\" is '10.5', which is no number that can be used; there is 1 such value. The answers are "
        "stored without it, and the metadata keep it. Write plain numbers: dollars (0.002), seconds (0.8), whole tokens (12), "
        "whole versions (3).",
    ]


@pytest.mark.parametrize("latest_first", [True, False])
def test_of_a_score_that_was_changed_the_latest_change_counts(tmp_path: Path, latest_first: bool) -> None:
    asked = {"id": "o1", "traceId": "t1", "type": "GENERATION", "startTime": "2026-10-01T10:00:00Z", "input": "q",
             "output": "a", "promptName": "p", "promptVersion": 1}  # fmt: skip
    score = {"id": "s1", "traceId": "t1", "observationId": "o1", "name": "acc", "dataType": "NUMERIC", "source": "API",
             "timestamp": "2026-10-01T11:00:00Z"}  # fmt: skip
    rows = [score | {"value": day / 10, "updatedAt": f"2026-10-0{day}T11:00:00Z"} for day in (1, 9)]
    path = tmp_path / "rows.jsonl"
    ordered = rows[::-1] if latest_first else rows
    path.write_text("".join(json.dumps(row) + "\n" for row in [asked, *ordered]))
    found = read_files([path])
    assert [one.value for one in found.feedback] == [0.9]
