"""The simulators: deterministic, honest about what they are, imperfect in the ways that their laws say."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
from benchmarks.simulated import SIMULATORS as SIMULATED
from benchmarks.simulated import load as simulated
from benchmarks.simulated.generator import RulesGenerator, split_request
from benchmarks.simulated.language import Stance, sentences
from benchmarks.simulated.points import understand_request
from benchmarks.simulated.rules import BY_ID, RULES, first, stances
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import UsageError
from whet.instructions.answers import NO_DEMAND, VAGUE, Known, Requirement
from whet.instructions.consolidate import consolidate
from whet.instructions.questions import SCHEMA, Critique, question
from whet.instructions.reader import read_critiques
from whet.instructions.rewrite import Failing, rewrite
from whet.models.addresses import resolve
from whet.models.language_model import LanguageModel
from whet.models.scripted import SIMULATORS as OWN
from whet.models.scripted import Scripted, chance, load, shuffle
from whet.prompt import Prompt
from whet.run import MemoryRun
from whet.types import Message, Request

POINTS = {
    "type": "object",
    "properties": {
        "points": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "why": {"type": ["string", "null"]}},
                "required": ["text"],
            },
        }
    },
    "required": ["points"],
}


def ask(*texts: str, **fields: Any) -> Request:
    """A request: a user message, or a system message and a user message."""
    roles = ("user",) if len(texts) == 1 else ("system", "user")
    return Request(tuple(Message(role, text) for role, text in zip(roles, texts, strict=True)), **fields)


async def said(model: Scripted, *texts: str, **fields: Any) -> str:
    """The first completion's text."""
    return (await model.generate(ask(*texts, **{"max_tokens": 100_000, **fields})))[0].text


@pytest.mark.parametrize("address", [*(f"scripted/{n}" for n in OWN), *(f"simulated/{n}" for n in SIMULATED)])
async def test_every_simulator_is_a_labelled_model(address: str) -> None:
    model = resolve(f"{address}?seed=3")
    assert isinstance(model, LanguageModel)
    assert model.simulated and model.local and model.address == f"{address}?seed=3"
    assert model.can_generate or model.can_score
    if model.can_generate:
        first_time = await model.generate(ask("Some prompt", "A page for a zoo.", n=3))
        again = await resolve(f"{address}?seed=3").generate(ask("Some prompt", "A page for a zoo.", n=3))
        assert first_time == again and len(first_time) == 3
        later = await model.generate(ask("Some prompt", "A page for a zoo.", sample=2))
        assert later[0].text == first_time[2].text
        assert all(c.usage.output_tokens == model.count_tokens(c.text) for c in first_time)
    else:
        with pytest.raises(UsageError, match="cannot generate"):
            await model.generate(ask("x"))
    if not model.can_score:
        with pytest.raises(UsageError, match="cannot score"):
            await model.score([], [], [])
    await model.close()
    await model.close()


@pytest.mark.parametrize(
    ("address", "options", "message"),
    [
        ("scripted/ecko", {}, 'Did you mean "echo"'),
        ("scripted/labels", {"word": "x"}, 'Did you mean "words"'),
        ("scripted/labels", {"base": "1.5"}, "base=1.5 is not a number between 0.0 and 1.0"),
        ("simulated/rules-generator", {"rules": "101"}, "whole number between 1 and 100"),
        ("simulated/rules-optimizer", {"capacity": "many"}, "capacity=many is not a whole number"),
        ("scripted/labels", {"cues": "yes:"}, "does not read as"),
        ("scripted/labels", {"words": " , "}, "words separated by"),
    ],
)
def test_bad_names_and_options_are_refused_with_the_fix(
    address: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(address, options=options)


async def test_latency_truncation_stop_and_address() -> None:
    model = resolve("scripted/constant?text=one+two+END+three&latency=0.05")
    start = time.perf_counter()
    completion = (await model.generate(ask("x", stop=("END",))))[0]
    assert time.perf_counter() - start >= 0.045
    assert completion.text == "one two " and completion.finish == "stop"
    cut = (await model.generate(ask("x", max_tokens=2)))[0]
    assert cut.text == "one two " and cut.finish == "length" and cut.error
    assert (await load("echo").generate(ask("a", "b{c}")))[0].text == "b{c}"


async def test_labels_follow_their_law_and_score_agrees_with_generate() -> None:
    model = load("labels", {"harmful": "quickly"})
    inputs = [f"The {i}th soup was {'good' if i % 2 else 'awful'}" for i in range(400)]
    truth = ["positive" if i % 2 else "negative" for i in range(400)]
    before: set[int] = set()
    for prompt, expected in (
        ("Say which.", 0.5),
        ("Read carefully.", 0.625),
        ("Carefully: single evidence, tone?", 1.0),
        ("Quickly but carefully: single evidence, tone", 0.9),
    ):
        answers = [await said(model, prompt, text) for text in inputs]
        right = {i for i in range(400) if answers[i] == truth[i]}
        assert abs(len(right) / 400 - expected) < 0.07
        if expected in (0.625, 1.0):
            assert before <= right
        before = right
        scores = await model.score(
            [Prompt.parse(prompt)], [{"input": t} for t in inputs[:50]], [("positive", "negative")] * 50
        )
        assert np.allclose(np.exp(scores.logprobs).sum(-1), 1)
        best = [("positive", "negative")[i] for i in scores.logprobs[0].argmax(-1)]
        assert best == answers[:50]


async def test_phrases_climb_the_labels_task() -> None:
    optimizer, model = load("phrases"), load("labels")
    best = "Classify."
    for loop in range(12):
        request = f"Improve this prompt ({loop}):\n{best}\nGive 4 new prompts, each in <prompt>...</prompt>."
        reply = await said(optimizer, request)
        proposals = [part.split("</prompt>")[0] for part in reply.split("<prompt>")[1:]]
        assert len(proposals) == 4
        best = max([best, *proposals], key=model.accuracy)  # type: ignore[attr-defined]
    assert model.accuracy(best) == 1.0  # type: ignore[attr-defined]


def test_simulators_of_the_benchmarks_are_models_of_another_package() -> None:
    assert resolve("simulated/rules-generator?rules=10").address == "simulated/rules-generator?rules=10"
    with pytest.raises(
        UsageError, match=r'no simulator "scripted/scorer".*Those of the benchmarks are at simulated/NAME'
    ):
        load("scorer")
    with pytest.raises(UsageError, match=r'no simulator "simulated/scorr"\. Did you mean "scorer"'):
        simulated("scorr")


async def test_scorer_has_the_optimum_that_it_declares() -> None:
    model: Any = simulated("scorer")
    words, quality = model.optimum(3)
    rng = np.random.default_rng(0)
    others = [" ".join(rng.choice(sorted(model.weights), 3, replace=False)) for _ in range(200)]
    inputs = [{"input": f"Plate {i} tasted {'great' if i % 3 else 'dull'}"} for i in range(300)]
    labels = [("negative", "positive")] * 300
    scores = await model.score([Prompt.parse(t) for t in (" ".join(words), *others)], inputs, labels)
    assert scores.logprobs.shape == (201, 300, 2) and scores.tokens.shape == (300, 2)
    assert np.allclose(np.exp(scores.logprobs).sum(-1), 1)
    truth = np.array([1 if i % 3 else 0 for i in range(300)])
    accuracy = (scores.logprobs.argmax(-1) == truth).mean(axis=1)
    assert accuracy[0] == accuracy.max()
    assert abs(accuracy[0] - model.accuracy(quality)) < 0.06
    assert max(model.quality(other) for other in others) <= quality


# The generator.


async def share(model: Scripted, prompt: str, rules: int, pages: int = 150) -> tuple[float, float]:
    """Mean share of rules followed, and share of pages that follow all."""
    found = []
    for number in range(pages):
        page = json.loads(await said(model, prompt, f"A page for shop {number} in Leeds."))
        found.append([rule.holds(page) for rule in first(rules)])
    return float(np.mean(found)), float(np.mean([all(row) for row in found]))


async def test_one_stated_rule_is_followed_and_the_others_stay() -> None:
    model = simulated("rules-generator", {"rules": "50"})
    plain = json.loads(await said(model, "You write pages.", "A page for a zoo."))
    rule = next(r for r in first(50) if not r.holds(plain))
    for wording in rule.wordings:
        page = json.loads(await said(model, f"You write pages.\n- {wording}", "A page for a zoo."))
        assert rule.holds(page)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("Keep titles to a maximum of 60 characters, please.", Stance.STATED),
        ("Titles mustn't exceed sixty characters.", Stance.STATED),
        ("Under no circumstances may a title be longer than 60 characters.", Stance.STATED),
        ("Limit each `title` to 60 letters, not 80.", Stance.STATED),
        ("Keep titles to a maximum of 90 characters.", Stance.CONTRARY),
        ("Do not keep titles within 60 characters.", Stance.CONTRARY),
        ("The title is longer than 60 characters.", Stance.HINT),
        ("The title should be friendly.", Stance.NONE),
    ],
)
def test_wordings_are_recognised_with_values_and_negation(instruction: str, expected: Stance) -> None:
    assert BY_ID["title_length"].stance(instruction) is expected


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("Exclamation marks have no place on the page.", Stance.STATED),
        ("Please refrain from exclamation marks.", Stance.STATED),
        ("Use exclamation marks to sound lively.", Stance.CONTRARY),
        ("There was an exclamation mark at the end.", Stance.HINT),
    ],
)
def test_bans_are_recognised(instruction: str, expected: Stance) -> None:
    assert BY_ID["no_exclamation"].stance(instruction) is expected


@pytest.mark.long
async def test_the_law_of_the_generator() -> None:
    states = "\n".join(f"- {rule.statement}" for rule in first(25))
    model = simulated("rules-generator", {"rules": "25", "seed": "1"})
    baseline, _ = await share(model, "You write pages.", 25)
    assert abs(baseline - 0.52) < 0.05
    good, accuracy = await share(model, states, 25)
    assert good > 0.985 and accuracy > 0.9
    padding = "\n".join(f"- Remark {number}: mind the general mood of our readers." for number in range(900))
    diluted, worse = await share(model, f"{states}\n{padding}", 25)
    assert worse < accuracy - 0.1 and diluted < good
    contrary = "\n".join(f"- {rule.critiques[0]}" for rule in first(25))
    hinted, _ = await share(model, contrary, 25)
    assert baseline < hinted < good - 0.1


async def test_one_of_two_contradicting_instructions_wins() -> None:
    wins = []
    for seed in range(60):
        model = simulated("rules-generator", {"rules": "10", "seed": str(seed), "lapse": "0"})
        assert isinstance(model, RulesGenerator)
        prompt = "- Keep titles within 60 characters.\n- Titles have up to 90 characters."
        understood = model.understand(prompt)
        wins.append(understood.stance["title_length"])
    assert set(wins) == {Stance.STATED, Stance.CONTRARY}
    assert wins.count(Stance.CONTRARY) > 25


def test_a_single_message_ends_with_the_request() -> None:
    prompt, page = split_request(ask("Prompt.\n- Rule.\nA page for a zoo."))
    assert (prompt, page) == ("Prompt.\n- Rule.", "A page for a zoo.")


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=300), st.text(max_size=300))
async def test_any_prompt_and_any_request_give_a_page(prompt: str, request: str) -> None:
    page = json.loads(await said(simulated("rules-generator", {"rules": "10"}), prompt, request))
    assert isinstance(page, dict) and "title" in page


# The optimizer.

CRITIQUES = [rule.critiques[number % 3] for number, rule in enumerate(first(30))]


def complaints(count: int) -> str:
    """A request with labelled critiques about the first rules."""
    listed = "\n".join(f"[{number}] {critique}" for number, critique in enumerate(CRITIQUES[:count]))
    prompt = "You write pages.\n- Be brief."
    return f"You look after instructions.\n\nCurrent prompt:\n{prompt}\n\nCritiques:\n{listed}\n"


def stated(text: str) -> set[str]:
    """Ids of the rules that a text states."""
    return {rule for s in sentences(text) for rule, stance in stances(s) if stance is Stance.STATED}


PERFECT = {name: "0" for name in ("drop", "middle", "garble", "repeat", "misnumber", "off_format", "forget")}


def perfect() -> MemoryRun:
    """A run whose optimizer makes no mistakes."""
    return MemoryRun({"optimizer": simulated("rules-optimizer", PERFECT)})


def critiques_of(*texts: str) -> list[Critique]:
    return [Critique(text, f"p{number}") for number, text in enumerate(texts)]


async def test_a_perfect_optimizer_covers_every_point_in_any_form() -> None:
    model = simulated("rules-optimizer", PERFECT)
    wanted = {rule.id for rule in first(8)}
    points = json.loads(await said(model, complaints(8), schema=POINTS))["points"]
    assert [point["why"] for point in points] == CRITIQUES[:8]
    assert stated("\n".join(point["text"] for point in points)) == wanted
    assert stated(await said(model, complaints(8))) == wanted
    tagged = await said(model, complaints(8) + "Put the list into <list>...</list>.")
    assert tagged.startswith("<list>- ") and tagged.endswith("</list>")
    whole = await said(model, complaints(8) + "Write the new prompt between <START> and <END>.")
    assert whole.startswith("<START>You write pages.\n- Be brief.\n- ") and whole.endswith("<END>")
    assert stated(whole) == wanted
    single = {"type": "object", "properties": {"instructions": {"type": "string"}}}
    assert stated(json.loads(await said(model, complaints(8), schema=single))["instructions"]) == wanted
    single = {"type": "object", "properties": {"prompt": {"type": "string"}}}
    assert "Be brief." in json.loads(await said(model, complaints(8), schema=single))["prompt"]


async def test_critiques_are_read_into_requirements() -> None:
    rules = first(9)
    pages = (" ".join(CRITIQUES[:4]), "- " + "\n- ".join(CRITIQUES[4:9]), CRITIQUES[0])
    others = (
        "What a lovely page.",
        "Something is not right here.",
        "Please call customers by their first name.",
    )
    known = [Known("i1", rules[0].statement), Known("i2", "Be brief.")]
    reading = await read_critiques(perfect(), critiques_of(*pages, *others), known, "You write pages.")
    new = {r.text: r.critiques for r in reading.requirements if r.text}
    assert [(r.violates, r.critiques) for r in reading.requirements if not r.text] == [("i1", (0, 2))]
    assert {rule: new[text] for text in new for rule in stated(text)} == {
        rule.id: (0 if number < 4 else 1,) for number, rule in enumerate(rules) if number
    }
    assert new[others[2]] == (5,)
    assert reading.dismissed == {3: NO_DEMAND, 4: VAGUE} and reading.unread == ()


async def test_a_known_instruction_that_wants_the_contrary_is_named() -> None:
    known = [Known("i7", "Keep titles within 90 characters.")]
    reading = await read_critiques(perfect(), critiques_of("The title is longer than 60 characters."), known)
    (requirement,) = reading.requirements
    assert requirement.contradicts == "i7" and stated(requirement.text) == {"title_length"}


async def test_without_a_schema_the_form_in_the_text_is_answered() -> None:
    request = question(critiques_of(*CRITIQUES[:5]), [Known("i1", first(1)[0].statement)], "")
    reply = json.loads(await said(simulated("rules-optimizer", PERFECT), request))
    assert [entry["existing"] for entry in reply["requirements"]] == ["i1", *[None] * 4]
    assert [entry["critiques"] for entry in reply["requirements"]] == [[n] for n in range(1, 6)]


async def test_proposals_of_one_meaning_become_one_and_contradictions_are_named() -> None:
    rules = first(6)
    texts = [text for rule in rules for text in rule.wordings[:3]]
    known = [Known("i1", rules[0].wordings[3]), Known("i2", "Keep titles within 90 characters.")]
    merged = await consolidate(perfect(), [Requirement(t, (n,)) for n, t in enumerate(texts)], known)
    assert [r.violates for r in merged.requirements if not r.text] == ["i1"]
    kept = [r for r in merged.requirements if r.text]
    assert sorted(rule for r in kept for rule in stated(r.text)) == sorted(rule.id for rule in rules[1:])
    assert all(len(r.critiques) == 3 for r in kept)
    assert merged.contradictions == ((rules[0].wordings[3], known[1].text),)


async def test_what_is_still_violated_gets_another_wording() -> None:
    rules = first(4)
    failing = [
        Failing(f"i{n}", rule.wordings[0], rule.wordings[1:3], rule.critiques[:1])
        for n, rule in enumerate(rules)
    ]
    texts = await rewrite(perfect(), [*failing, Failing("i9", "Be kind.")])
    assert {key: stated(text) for key, text in texts.items()} == {
        **{f"i{n}": {rule.id} for n, rule in enumerate(rules)},
        "i9": set(),
    }
    assert all(texts[item.id] not in (item.text, *item.tried) for item in failing)


async def test_points_are_found_in_json_and_in_flowing_text() -> None:
    rows = "\n".join(json.dumps({"output": '{"title": "x"}', "critique": text}) for text in CRITIQUES[:4])
    flowing = " ".join(CRITIQUES[:4])
    for request in (
        f"Rows:\n{rows}\nWrite instructions.",
        f"Feedback:\n{flowing}",
        json.dumps({"prompt": "You write pages.", "critiques": CRITIQUES[:4]}),
    ):
        points = understand_request(request).points
        assert {point.rule for point in points} == {rule.id for rule in first(4)}


async def test_an_ordinary_optimizer_is_bounded_and_imperfect() -> None:
    covered, garbled, wrong, repeated, off = [], 0, 0, 0, 0
    request = question(critiques_of(*CRITIQUES), [Known("i1", "Be brief.")], "You write pages.")
    for seed in range(160):
        model = simulated("rules-optimizer", {"seed": str(seed)})
        reply = await said(model, request, schema=SCHEMA)
        try:
            entries = json.loads(reply)["requirements"]
        except ValueError:
            off += 1
            assert len(stated(reply)) > 4
            continue
        own = [entry for entry in entries if entry["instruction"] != "Be brief."]
        repeated += len(entries) - len(own)
        covered.append(len(stated("\n".join(e["instruction"] for e in own)) & {r.id for r in first(30)}))
        assert len(own) <= 12
        garbled += sum(not stated(entry["instruction"]) for entry in own)
        wrong += sum(
            stated(entry["instruction"]) == {first(30)[number - 2].id}
            for entry in own
            for number in entry["critiques"]
        )
    assert 8 < np.mean(covered) < 12
    assert garbled > 15 and wrong > 15 and repeated > 3 and 0 < off < 15


async def test_an_ordinary_optimizer_overlooks_doubles_and_joins_what_is_not_one() -> None:
    proposals = [Requirement(text) for rule in first(8) for text in rule.wordings[:2]]
    counts = []
    for seed in range(30):
        run = MemoryRun({"optimizer": simulated("rules-optimizer", {"seed": str(seed)})})
        merged = await consolidate(run, proposals, [])
        counts.append(len(merged.requirements))
    assert min(counts) < 8 < max(counts) and 6 < np.mean(counts) < 12


async def test_unknown_complaints_are_covered_too() -> None:
    model = simulated("rules-optimizer", PERFECT)
    reply = await said(model, "Feedback:\nThe reply was far too rude to the customer.")
    assert "far too rude" in reply
    assert await said(model, "Improve the prompt: be nice.") != ""


async def test_rewriting_a_long_prompt_forgets() -> None:
    listed = "\n".join(f"- {rule.statement}" for rule in RULES)
    request = f"<prompt>\n{listed}\n</prompt>\nRewrite the whole prompt in <new>...</new>."
    kept = [
        len(stated(await said(simulated("rules-optimizer", {"seed": str(s)}), request))) for s in range(20)
    ]
    assert 55 < np.mean(kept) < 90
    assert len(stated(await said(simulated("rules-optimizer", PERFECT), request))) == 100


JSON_SCHEMAS = st.recursive(
    st.sampled_from([{"type": t} for t in ("string", "integer", "number", "boolean", "null")])
    | st.just({"enum": ["a", "b"]})
    | st.just({"const": 3}),
    lambda inner: (
        st.builds(lambda i: {"type": "array", "items": i, "maxItems": 3}, inner)
        | st.builds(
            lambda p: {"type": "object", "properties": p, "required": list(p)},
            st.dictionaries(st.sampled_from(["text", "op", "id", "reason", "prompts", "items", "x"]), inner),
        )
        | st.builds(lambda i: {"anyOf": [i, {"type": "null"}]}, inner)
    ),
    max_leaves=6,
)


def fits(value: Any, schema: Any) -> bool:
    """Whether a value obeys the little language of schemas above."""
    if "anyOf" in schema:
        return any(fits(value, s) for s in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if "const" in schema:
        return bool(value == schema["const"])
    kind = schema["type"]
    if kind == "array":
        return isinstance(value, list) and len(value) <= 3 and all(fits(v, schema["items"]) for v in value)
    if kind == "object":
        return isinstance(value, dict) and all(fits(value.get(k), s) for k, s in schema["properties"].items())
    kinds: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
    return value is None if kind == "null" else isinstance(value, kinds[kind])


@settings(max_examples=150, deadline=None)
@given(JSON_SCHEMAS, st.text(max_size=200))
async def test_any_schema_is_obeyed(schema: dict[str, Any], text: str) -> None:
    reply = await said(simulated("rules-optimizer", PERFECT), complaints(3) + text, schema=schema)
    assert fits(json.loads(reply), schema)


@pytest.mark.parametrize(
    "parts", [(), ("",), (3, "a question"), (0.5, None, "na\u00efve \ud800"), (("t", 1), "x" * 300)]
)
def test_items_are_shuffled_by_the_chance_of_each(parts: tuple[object, ...]) -> None:
    order = sorted(range(30), key=lambda i: chance(*parts, i))
    assert shuffle(range(30), *parts) == order != list(range(30))
