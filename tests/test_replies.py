"""From a model's reply to JSON values and to texts: whatever stands around them, broken or cut off."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.replies import (
    join_thought,
    json_values,
    list_items,
    read_tagged_text,
    records,
    separate_thought,
    split_thought,
    texts_in,
    without_thought,
)
from whet.types import Completion

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["a [b", "```\nx\n```", '{"a": 1}', 'it\'s "so"', "</think>", "\\", "<T>"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(TEXTS, v, max_size=4), max_leaves=12
)
CONTAINERS = st.lists(VALUES, max_size=4) | st.dictionaries(TEXTS, VALUES, max_size=4)
PROSE = st.text(alphabet="abc ü?!.:'\"\n-*1", max_size=40)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {
            "critiques": st.lists(st.integers(0, 300), max_size=3),
            "text": TEXTS,
            "violates": st.none() | st.just("i1"),
        }
    ),
    max_size=5,
)
ENVELOPES = st.fixed_dictionaries({"requirements": ITEMS, "vague": st.lists(st.integers(0, 300), max_size=4)})


@given(CONTAINERS, PROSE, PROSE, st.booleans(), st.sampled_from([None, 1, "\t"]), st.integers(0, 4))
def test_json_is_read_whatever_stands_around_it(
    value: Any, before: str, after: str, ascii: bool, indent: Any, form: int
) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    reply = [
        text,
        f" \n{text}\n",
        f'<think>{before} [1] {{"a": 2}}</think>{text}',
        f"{before}\n```json\n{text}\n```\n{after}",
        f"{before} {text} {after}",
    ][form]
    assert json_values(reply) == json_values(reply, whole=False) == [value]


@given(ENVELOPES, ENVELOPES)
def test_the_last_object_in_prose_is_the_first(one: Any, other: Any) -> None:
    reply = f"As in [1], a draft:\n{json.dumps(one)}\nand the answer: {json.dumps(other)}. See [2]."
    assert json_values(reply) == [other, one, [2], [1]]
    assert json_values(f"```\n{json.dumps(one)}\n```\nor\n```\n{json.dumps(other)}\n```\n{{}}") == [
        other,
        one,
        {},
    ]


WORDS = st.from_regex(r"[a-z]{2,8}( [a-z]{2,8}){0,3}", fullmatch=True)
PLAIN = st.lists(
    st.fixed_dictionaries({"critiques": st.lists(st.integers(0, 99), max_size=3), "text": WORDS}),
    min_size=1,
    max_size=4,
)


@given(PLAIN, st.integers(0, 5), st.booleans())
def test_broken_json_is_repaired(items: list[Any], fault: int, fenced: bool) -> None:
    text = json.dumps({"items": items, "ok": True}, indent=1)
    broken = [
        repr({"items": items, "ok": True}),
        re.sub(r"(?<=[}\]\w\"])(?=\n\s*[}\]])", ",", text),
        text.replace("{\n", "{ // what it is\n", 1),
        text.replace('"items"', "items").replace('"text"', "text"),
        text.rstrip("}\n"),
        text.replace("\n }", "\n").replace('"text": "', '"text": "\n'),
    ][fault]
    if fault == 5:
        items = [{**item, "text": "\n" + item["text"]} for item in items]
        broken = json.dumps({"items": items, "ok": True}).replace("\\n", "\n")
    reply = f"Here:\n```json\n{broken}\n```" if fenced else broken
    assert json_values(reply) == [{"items": items, "ok": True}]


def test_a_missing_bracket_inside_and_marks_that_are_not_escaped_are_repaired() -> None:
    assert json_values('{"items": [{"a": 1}, {"a": 2}} I hope it helps.') == [{"items": [{"a": 1}, {"a": 2}]}]
    assert json_values('{"text": "Say "hi" first", "n": 2}') == [{"text": 'Say "hi" first', "n": 2}]


@given(
    ENVELOPES,
    st.data(),
    st.sampled_from(["", "Well:\n", "```json\n", "<think>[]</think>", "["]),
    st.sampled_from([None, 2]),
)
def test_of_cut_json_nothing_complete_is_lost_and_nothing_cut_is_returned(
    envelope: dict[str, list[Any]], data: st.DataObject, opening: str, indent: Any
) -> None:
    text = json.dumps(envelope, indent=indent)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    values = json_values(opening + cut, whole=False)
    value = values[0] if values else {}
    if isinstance(value, list):
        value = value[0] if value else {}
    for name, items in envelope.items():
        kept = value.get(name, [])
        assert kept == items[: len(kept)]
        ends = [_end(text, name, items, n, indent) for n in range(1, len(items) + 1)]
        whole = sum(end <= len(cut) for end in ends)
        if len(cut) in ends and isinstance(items[0], int):
            whole -= 1  # the number may go on
        assert len(kept) == whole or (opening == "[" and not kept)


def _end(text: str, name: str, items: list[Any], n: int, indent: Any) -> int:
    """Where item number `n` of a list ends in the text of an envelope."""
    if indent is None:
        start = text.index(f'"{name}": ' if name == "vague" else '"requirements": ')
        if name == "vague":
            start = text.rindex('"vague": ')
        return start + len(f'"{name}": ') + len(json.dumps(items[:n])) - 1
    shown = json.dumps({name: items[:n]}, indent=indent)
    start = text.rindex('"vague": ') if name == "vague" else text.index('"requirements": ')
    return start + len(shown.removeprefix("{\n  ").removesuffix("\n  ]\n}"))


@given(PLAIN, st.data())
def test_of_cut_json_that_is_broken_as_well_no_cut_item_is_returned(
    items: list[Any], data: st.DataObject
) -> None:
    text = repr({"items": items, "more": 1})
    cut = text[: data.draw(st.integers(12, len(text) - 1))]
    values = json_values(cut, whole=False)
    kept = values[0].get("items", []) if values else []
    assert kept == items[: len(kept)]
    assert len(kept) >= cut.count("}, ") - 1


def test_a_number_at_the_end_counts_only_in_a_whole_reply() -> None:
    assert json_values('{"a": "b", "score": 4') == [{"a": "b", "score": 4}]
    assert json_values('{"a": "b", "score": 4', whole=False) == [{"a": "b"}]
    assert (
        json_values('{"score": 4', whole=False)
        == json_values('{"score": "fo')
        == json_values('{"score": tr')
        == []
    )


@given(st.text(alphabet="[]{}\"':,a1 \\\n`<>think/", max_size=60), st.booleans())
def test_no_reply_breaks_the_readers(reply: str, whole: bool) -> None:
    assert all(isinstance(value, dict | list) for value in json_values(reply, whole=whole))
    for options in ({}, {"many": True}, {"bare": True}):
        assert all(isinstance(text, str) and text for text in texts_in(Completion(reply), "a", **options))


BAD = [
    "[", "{", '"', '{"a":', "[[],", '{"a": x, ', "['a' ", '{"a" 1} ', '["a\\"', '[{"a":[', "~~~~\n", "```\n{", "{a:",
    "<PROMPT>", "<think>",
]  # fmt: skip


@pytest.mark.parametrize("start", ["", '{"', '["x" "'])
@pytest.mark.parametrize("bad", BAD)
def test_the_time_grows_with_the_length_and_no_faster(bad: str, start: str) -> None:
    """What seems to grow faster is looked at again: a busy machine is no growth."""

    def took(length: int, times: int) -> float:
        reply, tries = start + (bad * length)[:length], []
        for _ in range(times):
            began = time.thread_time()
            json_values(reply)
            texts_in(Completion(reply, "length"), "PROMPT", many=True, bare=True)
            tries.append(time.thread_time() - began)
        return min(tries)

    looks: list[tuple[float, float]] = []
    for times in (1, 3, 5):
        looks.append((took(6_250, times), took(25_000, times)))
        if looks[-1][1] < 8 * looks[-1][0] + 0.05:
            return
    pytest.fail(f"four times the length takes longer than eight times as long: {looks}")


@pytest.mark.parametrize("bad", ["[", "{", '"', '{"a": "b", "c'])
def test_200_kilobytes_of_brackets_do_not_hang(bad: str) -> None:
    reply = (bad * 200_000)[:200_000]
    began = time.process_time()
    json_values(reply)
    assert time.process_time() - began < 10


def test_deep_json_is_not_read() -> None:
    assert json_values("[" * 50 + "]" * 50) and not json_values("[" * 5000 + "]" * 5000)
    assert not json_values("[" * 200 + "]" * 200)


@pytest.mark.parametrize(
    ("reply", "rest"),
    [
        ("<think>a</think>b", "b"),
        (" <THINK>a</think>\n<reasoning>\nc</reasoning> b ", "b"),
        ("<think>never ended", ""),
        ("I think so.\n</think>\n\nb", "b"),
        ('{"text": "Close with </think>"}', '{"text": "Close with </think>"}'),
        ("Write <think>a</think> first.", "Write <think>a</think> first."),
    ],
)
def test_thinking_is_left_out(reply: str, rest: str) -> None:
    assert without_thought(reply) == rest


def test_items_of_a_list() -> None:
    assert list_items("Two:\n- a\n  b\n2) c\nDone.\n  d") == ["a\nb", "c"]


def read(text: str, **options: bool) -> list[str]:
    return texts_in(Completion(text), "PROMPT", **options)


@pytest.mark.parametrize(
    "reply",
    [
        "<PROMPT>Be kind.</PROMPT>",
        "<prompt>\n  Be kind.\n</Prompt>",
        '<PROMPT version="2"> Be kind. </PROMPT >',
        "I put it in <PROMPT> tags.\n<PROMPT>Be kind.</PROMPT>",
        "<PROMPT></PROMPT><PROMPT>Be kind.</PROMPT>",
        "<think>Is <PROMPT>no</PROMPT> good?</think>\n<PROMPT>Be kind.</PROMPT>",
        "<think>Is <PROMPT>no</PROMPT> good?</think>\n```\nBe kind.\n```",
        "Fine:\n<PROMPT>Be kind.",
        "<PROMPT>```\nBe kind.\n```</PROMPT>",
        '<PROMPT>"Be kind."</PROMPT>',
        '{"prompt": "Be kind."}',
        '{"reason": "too cold", "Prompt": "Be kind."}',
        '{"text": "Be kind.", "score": 7}',
        '["Be kind."]',
        '[{"prompt": "Be kind."}]',
        '{"prompts": ["Be kind."]}',
        '```json\n{"prompt": "Be kind."}\n```',
        "~~~text\nBe kind.\n~~~",
    ],
)
def test_reads_the_text_in_every_usual_form(reply: str) -> None:
    assert read(reply) == ["Be kind."]


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "  \n",
        "Be kind.",
        "<PROMPT></PROMPT>",
        "<PROMPT>...</PROMPT>",
        "<PROMPT>```\n\n```</PROMPT>",
        '{"prompt": ""}',
        '{"prompt": 3}',
        "[1, 2]",
        "{",
        "[" * 5000,
        '{"a": "x", "b": "y"}',
        "<PROMPT>cut <PROMPT>",
    ],
)
def test_finds_nothing_where_nothing_was_given(reply: str) -> None:
    assert read(reply) == []


def test_a_reply_that_was_cut_off_gives_only_what_is_complete() -> None:
    cut = Completion("<PROMPT>Be kind.</PROMPT><PROMPT>Be ki", "length", error="truncated at max_tokens")
    assert texts_in(cut, "PROMPT") == ["Be kind."]
    half = Completion("<PROMPT>Be ki", "length", error="truncated at max_tokens")
    assert texts_in(half, "PROMPT", bare=True) == []
    assert texts_in(Completion("Be ki", "length", error="truncated"), "PROMPT", bare=True) == []


@pytest.mark.parametrize(
    "reply",
    [
        "<PROMPT>One a.</PROMPT>\n<PROMPT>Two\nb.</PROMPT>",
        '["One a.", "Two\\nb."]',
        '[{"prompt": "One a."}, {"prompt": "Two\\nb."}]',
        '{"prompts": ["One a.", "Two\\nb."]}',
        "Some ideas:\n- One a.\n- Two\n  b.\nThat is all.",
        "1. One a.\n2) Two\n   b.\n\nDone.",
        "* One a.\n• Two\n\tb.",
        "```\nOne a.\n```\nor\n```\nTwo\nb.\n```",
    ],
)
def test_reads_lists(reply: str) -> None:
    assert read(reply, many=True) == ["One a.", "Two\nb."]


def test_json_inside_a_prompt_is_not_taken_for_an_answer() -> None:
    text = 'Answer with one of ["yes", "no"] or {"label": "x"}.'
    assert read(text) == []
    assert read(text, bare=True) == [text]
    assert read(f"<PROMPT>{text}</PROMPT>") == [text]


@pytest.mark.parametrize(
    "reply",
    [
        "The improved instruction follows:",
        "What should the prompt be about?",
        "First.\n\nSecond.",
        "Here it is:\nBe kind.",
        "Here it is:\n\nBe kind.",
        "Answer as:\n```json\n{}\n```",
        "Here it is:\n\nFirst.\n\nSecond.",
        '{"prompt": "Be ki',
        "<PROMPT>",
        "[broken",
        "long " * 400,
        "!!!",
        "<think>Be kind.",
    ],
)
def test_what_does_not_look_like_one_text_is_none(reply: str) -> None:
    assert read(reply, bare=True) == []


@pytest.mark.parametrize("reply", ["Be kind.", '"Be kind."', "Be kind.\nBe brief."])
def test_a_bare_text_is_one_paragraph_and_counts_when_it_was_asked_for_again(reply: str) -> None:
    assert read(reply, bare=True) == [reply.strip('"')]
    assert read(reply) == []


@pytest.mark.parametrize(
    "reply",
    [
        "<PROMPT>A first draft.</PROMPT> Better:\n<PROMPT>Be kind.</PROMPT>",
        "```\nA first draft.\n```\nBetter:\n```\nBe kind and brief, and never answer with a question.\n```",
        "Sure:\n<prompt>\nBe kind.\n</prompt>\nI hope this helps.",
        "Here:\n```markdown\nBe kind.\n```\nGood luck!",
        'Here it is:\n\n{"prompt": "Be kind.", "reason": "it was cold"}\nGood luck!',
        'Here it is:\n```json\n{"text": "Be kind, and never answer with a question."}\n```',
    ],
)
def test_what_may_be_meant_otherwise_counts_only_when_it_was_asked_for_again(reply: str) -> None:
    assert read(reply) == []
    assert read(reply, bare=True)[0].startswith("Be kind")


@pytest.mark.parametrize("key", ["text", "prompt", "instruction", "content", "team", "prompt_id"])
@pytest.mark.parametrize(
    "shape", ["```json\n{}\n```", "```json\n{}\n```\nNothing else.", "{}", "{}\nNothing else."]
)
def test_an_example_in_json_inside_a_text_is_never_the_text(key: str, shape: str) -> None:
    example = shape.replace("{}", json.dumps({key: "refund"}))
    reply = f"Read the message, and say which team it is for.\n\nAnswer as JSON, for example:\n{example}"
    assert read_tagged_text(Completion(reply), "INSTRUCTION", lenient=True).texts == []
    for tag in ("WORDING", "INSTRUCTION"):
        assert texts_in(Completion(reply), tag, many=True, bare=True) == []


MEMBERS = st.sampled_from(
    [
        *(
            "Be kind.",
            "a {b} {{c}} }}",
            "<role>x</role>",
            "<instruction>x</instruction>",
            "</b>",
            "<text>",
            "x < y > z",
        ),
        *(
            "```json\n{}\n```",
            "```\nx\n```",
            "```",
            "~~~\ny\n~~~",
            "````\n```\n````",
            '{"prompt": "x"}',
            "- item",
            "",
        ),
        *(
            "<INSTRUCTION>",
            "</INSTRUCTION>",
            "<INSTRUCTION>x</INSTRUCTION>",
            "<PROMPT>",
            "`code`",
            '"said"',
            "Here:",
            "[1]",
        ),
    ]
)
INSTRUCTIONS = st.builds(
    lambda head, parts, seps, tail: (
        head + "".join(p + s for p, s in zip(parts, seps, strict=False)) + tail
    ).strip(),
    st.sampled_from(["Sort it", "Do:\n"]),
    st.lists(MEMBERS, max_size=5),
    st.lists(st.sampled_from(["\n", " ", "\n\n"]), min_size=5, max_size=5),
    st.sampled_from(["", "\nThe end", " end"]),
)
WRAPPERS = [
    "<INSTRUCTION>{}</INSTRUCTION>",
    "<INSTRUCTION>\n{}\n</INSTRUCTION>",
    "Sure!\n\n<INSTRUCTION>\n{}\n</INSTRUCTION>\n\nI hope this helps.",
    "<think>Is <INSTRUCTION>no</INSTRUCTION> good?</think>\n<INSTRUCTION>{}</INSTRUCTION>",
    "<prompt>\n{}\n</prompt>",
    "<instruction>{}</instruction>",
    "```\n{}\n```",
    "```markdown\n{}\n```",
    "~~~~\n{}\n~~~~",
    "```xml\n<INSTRUCTION>\n{}\n</INSTRUCTION>\n```",
]


@given(INSTRUCTIONS, st.sampled_from(WRAPPERS))
def test_a_wrapped_instruction_comes_back_whole_or_is_refused_with_a_reason(text: str, wrapper: str) -> None:
    for reply in (wrapper.replace("{}", text), json.dumps({"prompt": text})):
        found = read_tagged_text(Completion(reply), "INSTRUCTION")
        assert found.texts == [text] if found.texts else found.problem


@given(INSTRUCTIONS)
def test_an_instruction_without_tags_is_never_cut(text: str) -> None:
    if "INSTRUCTION>" not in text and "PROMPT>" not in text:
        assert read_tagged_text(Completion(text), "INSTRUCTION").texts == []


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("<INSTRUCTION>\n<instruction>a</instruction>\n<instruction>b</instruction>\n</INSTRUCTION>",
         "<instruction>a</instruction>\n<instruction>b</instruction>"),
        ("```\na\n```json\n{}\n```\nb\n```", "a\n```json\n{}\n```\nb"),
        ("<INSTRUCTION>Put it in </INSTRUCTION> tags</INSTRUCTION>", None),
        ('Read it. For example:\n{"instruction": "refund"}', None),
        ("Sort it.\n```json\n{\"prompt\": \"refund\"}\n```\nNothing else.", None),
    ],
)  # fmt: skip
def test_only_what_encloses_an_instruction_is_taken_off(reply: str, text: str | None) -> None:
    assert read_tagged_text(Completion(reply), "INSTRUCTION").texts == ([] if text is None else [text])


def test_a_bare_text_may_begin_with_a_slot() -> None:
    assert read("{{b}} is to be sorted.", bare=True) == ["{{b}} is to be sorted."]


def test_broken_json_gives_its_text_and_cut_json_only_what_is_named() -> None:
    assert read("{'prompt': 'Be kind.',}") == ["Be kind."]
    cut = Completion('{"prompts": ["Be kind.", "Be br', "length")
    assert texts_in(cut, "PROMPT", many=True) == ["Be kind."]
    assert texts_in(Completion('{"why": "It is cold.", "prompt": "Be ki', "length"), "PROMPT") == []


YAML = """requirements:
  - critiques: [7]
    violates: i10
    instruction: null
  - critiques: [1, 4]
    violates: null
    instruction: Begin with the name.
no_demand: [2]
"""
READ = {
    "requirements": [
        {"critiques": [7], "violates": "i10", "instruction": None},
        {"critiques": [1, 4], "violates": None, "instruction": "Begin with the name."},
    ],
    "no_demand": [2],
}


@pytest.mark.parametrize("reply", [YAML, f"Sure:\n\n```yaml\n{YAML}```\nDone.", f"Sure, my answer:\n{YAML}"])
def test_yaml_with_entries_is_read_where_there_is_no_json(reply: str) -> None:
    assert json_values(reply) == [READ]


@pytest.mark.parametrize(
    "reply",
    ["Title: hello", "1. Be brief\n2. Note: be kind", "a: &x [1]\nb: [*x, *x]", "a: [1\nb: {", "Just prose."],
)
def test_prose_with_colons_names_and_broken_yaml_hold_no_entries(reply: str) -> None:
    assert not any(any(records(value)) for value in json_values(reply))


@pytest.mark.parametrize(
    "wrapped",
    [
        json.dumps(json.dumps(READ)),
        json.dumps(READ).replace('"', "&quot;"),
        "Here: " + json.dumps(READ).replace('{"', "{“").replace('":', "”:"),
    ],
)
def test_what_quoted_a_reply_is_taken_off(wrapped: str) -> None:
    assert json_values(wrapped) == [READ]


def test_records_are_the_innermost_objects() -> None:
    assert list(records({"answer": {"sets": [{"a": 1}, [{"b": 2}]]}, "c": 3})) == [{"a": 1}, {"b": 2}]
    assert list(records([1, "x"])) == []


def test_typographic_quotes_inside_a_text_stay() -> None:
    assert json_values('So: {"text": "Say “hi”, then [“more”]"}') == [{"text": "Say “hi”, then [“more”]"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 8 out of 10, "b": 1}', {"a": "8 out of 10", "b": 1}),
        ("{'a': 10^6, 'b': \"c: 4 of 5, d\"}", {"a": "10^6", "b": "c: 4 of 5, d"}),
        ('{"a": 4 # of 10\n}', {"a": 4}),
        ("{a: 4 b: 5}", {"a": 4, "b": 5}),
    ],
)
def test_a_number_that_goes_on_without_quotation_marks_is_a_text(text: str, value: object) -> None:
    assert json_values(text) == [value]


@pytest.mark.parametrize(
    "reply",
    [
        "<INSTRUCTION><![CDATA[Say <b>x</b> & y.]]></INSTRUCTION>",
        "<INSTRUCTION>\n<![CDATA[\nSay <b>x</b> & y.\n]]>\n</INSTRUCTION>",
        "**<INSTRUCTION>**\nSay <b>x</b> & y.\n**</INSTRUCTION>**",
        "**<INSTRUCTION>Say <b>x</b> & y.</INSTRUCTION>**",
    ],
)
def test_literal_text_of_xml_and_emphasised_tags_are_taken_off(reply: str) -> None:
    assert read_tagged_text(Completion(reply), "INSTRUCTION").texts == ["Say <b>x</b> & y."]


def test_marks_of_literal_text_inside_a_text_stay() -> None:
    text = "Escape it: <![CDATA[a]]> and <![CDATA[b]]>"
    assert read_tagged_text(Completion(f"<INSTRUCTION>{text}</INSTRUCTION>"), "INSTRUCTION").texts == [text]
    assert json_values('{"a": "<![CDATA[b]]>"}') == [{"a": "<![CDATA[b]]>"}]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Is it 3? Yes.</thinking>3", "3"),
        ("<thinking>Is it 3?</think>\n3", "3"),
        ("<Reasoning>\nIs it 3?\n</THOUGHT>\n\n3", "3"),
        ("[THINK]Is it 3?</think> 3", "3"),
        ("<think>a</thinking>\n<think>b</think>3", "3"),
        ("<think>It says <thinking>no</thinking> once.</reasoning>3", "3"),
        ("<think>a</thinking>b</think>3", "3"),
    ],
)
def test_a_closing_mark_of_another_name_ends_a_thought_that_none_of_its_own_does(
    text: str, answer: str
) -> None:
    assert split_thought(text).answer == answer


@pytest.mark.parametrize(
    "text", ["<think>It says <thinking>no</thinking>, and", "<think>The tag `</thinking>` is"]
)
def test_a_mark_that_closes_another_one_or_is_quoted_ends_no_thought(text: str) -> None:
    assert split_thought(text).cut


@pytest.mark.parametrize(
    ("finish", "words"), [("length", "token limit reached"), ("stop", "a thought without an end")]
)
def test_a_thought_without_an_end_says_what_may_have_cut_it(finish: str, words: str) -> None:
    parted = separate_thought(Completion("<think>a", finish))
    assert parted.finish == "length" and parted.text == "" and words in str(parted.error)
    assert join_thought(parted).text == "<think>a" and join_thought(parted).error is None
