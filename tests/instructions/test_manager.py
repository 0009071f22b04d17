"""One step of learning after another: what enters, what is rewritten, what leaves, and that nothing of it is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.instructions.optimizer import constant, critiques, entry, form, numbered, run_with

from whet.instructions.answers import EXAMPLE
from whet.instructions.contradictions import Contradictions
from whet.instructions.critiques import CritiqueBatch
from whet.instructions.effects import Effects
from whet.instructions.manager import InstructionManager
from whet.instructions.questions import Critique
from whet.instructions.rewrite import Failing, rewrite
from whet.prompt import Prompt
from whet.prompt.events import Event
from whet.prompt.instructions import fold_events
from whet.prompt.ledger import render_instructions
from whet.types import Completion

START = Prompt.parse(
    "You answer letters.\n<!-- whet:begin -->\n- Be kind.\n<!-- whet:end -->\nSign: {{name}}"
)


def judged(
    *texts: str, answers: int = 20, reward: float = 0.5, each: int = 1, private: tuple[str, ...] = ()
) -> CritiqueBatch:
    """Critiques of the first answers, `each` answers behind every one."""
    of = tuple(tuple((n * each + k) % answers for k in range(each)) for n in range(len(texts)))
    spread = [reward + (0.01 if n % 2 else -0.01) for n in range(answers)]
    return CritiqueBatch(tuple(critiques(*texts)), of, tuple(spread), private)


async def step(
    manager: InstructionManager, rollout: CritiqueBatch, reply: Any, most: int | None = None
) -> list[tuple[str, Any]]:
    run, _ = run_with(reply)
    await manager.step(run, rollout, most, "now")
    assert render_instructions(fold_events(manager.history())) == manager.prompt.region_text()
    return run.logged


def reads(answer: Any) -> Any:
    """Reads like that, finds no doubles and rewrites nothing."""
    return lambda stage, text: answer if stage == "read" else {}


def texts(manager: InstructionManager) -> list[str]:
    return [i.text for i in manager.ledger.active]


async def test_a_model_that_copied_the_form_once_is_not_shown_it_again() -> None:
    manager, forms = InstructionManager(START), []

    def answer(stage: str, text: str) -> Any:
        forms.append(EXAMPLE in text)
        copied = form(entry((1,), None, EXAMPLE))
        return copied if EXAMPLE in text else Completion(f"- State the price in line {len(forms)}.")

    for _ in range(3):
        await step(manager, judged("no price!", "too long"), answer, most=6)
    assert forms[0] and len(forms) > 3 and not any(forms[1:])
    assert "State the price in line 2." in texts(manager)


async def test_a_model_that_manages_no_form_drafts_nothing_from_a_few_rows() -> None:
    manager = InstructionManager(START, manages=False)
    reply = constant("<INSTRUCTION>Be brief.</INSTRUCTION>")
    for count, after in ((5, ["Be kind."]), (6, ["Be kind.", "Be brief."])):
        rows = critiques(*(f"Input: {n}\nAnswered: x" for n in range(count)), row=True)
        rollout = replace(judged(*(c.text for c in rows)), critiques=tuple(rows))
        logged = await step(manager, rollout, reply)
        assert any(name == "stage" for name, _ in logged) == (count > 5)
        assert texts(manager) == after


DRAFTS = [
    "Name the section.",
    "Write one word only.",
    "Sort by topic, please.",
    "Say what it is about!",
    "Choose a label.",
]


async def drafting(earned: list[float], trials: bool = True) -> tuple[InstructionManager, list[list[str]]]:
    """Roll-outs with these rewards, and a model that writes the next draft after each: the drafts that stood in each of them."""
    manager, shown, drafts = InstructionManager(START, manages=False), [], iter(DRAFTS)
    for reward in earned:
        shown.append(list(manager.standing().values()))
        rows = critiques(*(f"Input: {n}\nAnswered: x" for n in range(8)), row=True)
        rollout = replace(judged(*(c.text for c in rows), reward=reward), critiques=tuple(rows))
        await step(manager, rollout, lambda stage, text: Completion(f"- {next(drafts)}"))
        assert manager.settled == bool(manager.drafts.waiting)
        if trials:
            manager.plan_trial()
    return manager, [[text for text in texts if text in DRAFTS] for texts in shown]


async def test_a_draft_takes_the_place_of_the_one_before_it_and_the_better_one_stays() -> None:
    manager, shown = await drafting([0.1, 0.5, 0.3, 0.7, 0.7])
    assert shown == [[], *([text] for text in DRAFTS[:4])]
    await manager.finish(run_with(constant({}))[0], None)
    assert texts(manager) == ["Be kind.", DRAFTS[3]], (
        "0.5, not 0.3, then 0.7, as good as that, and one untried"
    )


async def test_a_draft_that_no_roll_out_can_try_leaves() -> None:
    manager, shown = await drafting([0.1, 0.5, 0.5, 0.5], trials=False)
    assert shown[1:] == [DRAFTS[:1]] * 3
    assert len(texts(manager)) == 3 and manager.standing().keys() == {"i1", "i2"}


async def test_requirements_become_instructions_and_only_the_region_changes() -> None:
    manager = InstructionManager(START)
    await step(
        manager,
        judged("no price!", "too long"),
        reads(form(entry((1,), None, "State the price."), no_demand=[2])),
    )
    assert texts(manager) == ["Be kind.", "State the price."]
    new = manager.ledger.active[-1]
    assert (new.critiques, new.evidence, new.sources, new.author) == (
        ("no price!",),
        ("row 1",),
        1,
        "optimizer",
    )
    assert manager.prompt.source.startswith("You answer letters.\n") and manager.prompt.source.endswith(
        "\nSign: {{name}}"
    )


async def test_a_contradiction_with_the_surroundings_or_with_a_person_is_reported_and_changes_nothing() -> (
    None
):
    manager = InstructionManager(START)
    answer = form(entry((1, 2, 3, 4), None, "Be rude.", "i1"), entry((1,), None, "Do not sign.", "context"))
    logged = await step(manager, judged(*"abcd"), reads(answer))
    assert texts(manager) == ["Be kind."]
    conflicts = [value for name, value in logged if name == "conflict"]
    assert {(c["first"], c["second"]) for c in conflicts} >= {("Be rude.", "Be kind.")} and len(
        conflicts
    ) == 2


async def test_what_is_demanded_three_times_as_often_replaces_what_a_model_wrote() -> None:
    """1 of 20 wanted miles before; 2 of 20 and then 6 more of 20 want kilometres while miles stand."""
    manager = InstructionManager(START)
    await step(manager, judged("one"), reads(form(entry((1,), None, "Use miles."))))
    contrary = form(entry((1, 2), None, "Use kilometres.", "i2"))
    await step(manager, judged("two", "three"), reads(contrary))
    assert texts(manager) == ["Be kind.", "Use miles."]
    more = form(entry((1, 2, 3, 4, 5, 6), None, "Use kilometres.", "i2"))
    await step(manager, judged(*"abcdef"), reads(more))
    assert texts(manager) == ["Be kind.", "Use kilometres."]


async def test_who_wants_the_contrary_gets_it_for_a_try_and_loses_it_where_more_object_to_that() -> None:
    """Of 20 answers 3 wanted miles; they are silent now, while 1 of 20 wants kilometres in every round."""
    manager = InstructionManager(START)
    await step(manager, judged("a", "b", "c"), reads(form(entry((1, 2, 3), None, "Use miles."))))
    for n in range(3):
        await step(manager, judged(f"voice {n}"), reads(form(entry((1,), None, "Use kilometres.", "i2"))))
    assert texts(manager) == ["Be kind.", "Use kilometres."]
    await step(manager, judged("d", "e", "f"), reads(form(entry((1, 2, 3), None, "Use miles!", "i3"))))
    assert texts(manager) == ["Be kind.", "Use miles!"]
    for n in range(9):
        await step(manager, judged(f"again {n}"), reads(form(entry((1,), None, "Use kilometres!", "i4"))))
    assert texts(manager) == ["Be kind.", "Use miles!"]


async def test_a_misread_demand_gives_way_to_those_who_want_the_contrary() -> None:
    manager = InstructionManager(START)
    await step(manager, judged("a", "b"), reads(form(entry((1, 2), None, "Do not name the price."))))
    for n in range(2):
        voices = judged(*(f"voice {n}.{m}" for m in range(4)))
        await step(manager, voices, reads(form(entry((1, 2, 3, 4), None, "Name the price.", "i2"))))
    assert texts(manager) == ["Be kind.", "Name the price."]
    await step(manager, judged(), reads(form()))
    assert texts(manager) == ["Be kind.", "Name the price."]


async def test_in_the_last_step_nothing_is_replaced_that_could_not_be_tried_any_more() -> None:
    manager = InstructionManager(START)
    await step(manager, judged("a", "b"), reads(form(entry((1, 2), None, "Use miles."))))
    voices = judged("c", "d", "e")
    run, _ = run_with(reads(form(entry((1, 2, 3), None, "Use kilometres.", "i2"))))
    await manager.step(run, voices, None, "end", last=True)
    assert texts(manager) == ["Be kind.", "Use miles."]


async def test_a_repeated_complaint_and_a_piece_of_somebodys_data_do_not_enter() -> None:
    secret = "Mrs Eleanor Abernathy of 12 Larkspur Lane wrote to us"
    manager = InstructionManager(START)
    answer = form(
        entry((1,), None, "The letter about my bike was rude!"), entry((1,), None, f"Mention that {secret}.")
    )
    await step(
        manager,
        judged("The letter about my bike was rude!", private=(f"Hello! {secret} again.",)),
        reads(answer),
    )
    assert texts(manager) == ["Be kind."]


async def test_what_is_still_violated_is_rewritten_and_the_text_that_did_best_stays() -> None:
    manager, vague = InstructionManager(START), "Mind the length."

    def reply(stage: str, text: str) -> Any:
        if stage == "rewrite":
            assert vague in text and "so long" in text
            return {"rewrites": [{"instruction_id": "i2", "text": "Write at most 80 words."}]}
        known = "[i2]" in text
        return form(entry(tuple(numbered(text)), "i2" if known else None, None if known else vague))

    complaints = [f"so long {n}" for n in range(8)]
    for _ in range(4):
        await step(manager, judged(*complaints), reply)
    assert texts(manager) == ["Be kind.", "Write at most 80 words."]
    run, _ = run_with(reply)
    await manager.finish(run, 0)
    assert texts(manager)[-1] == vague, "the second text was violated as often, and was seen less"
    assert manager.ledger["i2"].effect is not None or manager.effects.before("i2")[1] > 0


async def test_a_fall_of_the_reward_tries_without_what_was_added_last() -> None:
    """A regression is noticed: the harmful instruction is left out, the reward recovers, it expires."""
    manager, quiet = InstructionManager(START), reads(form(vague=[1]))
    await step(
        manager, judged("x", reward=0.8), reads(form(entry((1,), None, "Write everything backwards.")))
    )
    logged = await step(manager, judged("y", reward=0.2), quiet)
    assert [name for name, _ in logged].count("regression") == 1
    manager.plan_trial()
    assert manager.left_out == {"i2"} and "backwards" not in manager.prompt.region_text()
    assert "backwards" in render_instructions(manager.ledger)
    await step(manager, judged("z", reward=0.8, answers=60), quiet)
    assert texts(manager) == ["Be kind."]
    assert "not missed" in manager.ledger["i2"].reason


async def test_without_measuring_the_harm_stays() -> None:
    """The ablation."""
    manager, quiet = InstructionManager(START, measures=False), reads(form(vague=[1]))
    await step(
        manager, judged("x", reward=0.8), reads(form(entry((1,), None, "Write everything backwards.")))
    )
    for reward in (0.2, 0.2, 0.2):
        await step(manager, judged("y", reward=reward), quiet)
        manager.plan_trial()
    assert "Write everything backwards." in manager.prompt.region_text()


async def test_doubles_are_merged_where_it_consolidates_and_stay_where_it_does_not() -> None:
    first = form(entry((1,), None, "Quote prices in euros."), entry((2,), None, "Give the price in euro."))

    def reply(stage: str, text: str) -> Any:
        if stage == "consolidate":
            return {"duplicates": [{"ids": ["i2", "i3"], "best": "i3"}], "contradictions": []}
        return first if "[i2]" not in text else form(no_demand=[1])

    for consolidates, left in ((True, 2), (False, 3)):
        manager = InstructionManager(START, consolidates=consolidates)
        await step(manager, judged("a", "b"), reply)
        await step(manager, judged("c"), reply)
        assert len(texts(manager)) == left


async def test_lists_of_right_answers_become_one_that_loses_none() -> None:
    first = form(entry((1,), None, "Answer cat or dog."), entry((2,), None, "Answer dog or owl."))
    whole = "Answer cat, dog or owl."

    def reply(stage: str, text: str) -> Any:
        if stage == "consolidate":
            return {"duplicates": [{"ids": ["i2", "i3"], "best": "i3", "merged": whole}]}
        return first if "[i2]" not in text else form(no_demand=[1])

    manager = InstructionManager(START)
    await step(manager, judged("a", "b"), reply)
    await step(manager, judged("c"), reply)
    assert texts(manager) == ["Be kind.", whole]
    assert manager.ledger["i3"].sources == 2
    await manager.finish(run_with(constant({}))[0], 0)
    assert texts(manager) == ["Be kind.", whole]


async def test_the_reader_is_told_what_was_tried_and_taken_out_and_why() -> None:
    manager = InstructionManager(START)
    await step(manager, judged("a"), reads(form(entry((1,), None, "State the price."))))
    asked = []

    def reply(stage: str, text: str) -> Any:
        asked.append(text)
        return form(no_demand=[1]) if stage == "read" else {}

    await step(manager, judged("b"), reply)
    manager._expire(["i2"], "not missed in 30 answers without it", "now")
    await step(manager, judged("c"), reply)
    told = "\n- State the price. (not missed in 30 answers without it)\n"
    assert [told in text for text in asked] == [False, True]


async def test_a_roll_out_without_instructions_is_measured_and_teaches_nothing() -> None:
    manager = InstructionManager(START)
    await step(manager, judged("a"), reads(form(entry((1,), None, "State the price."))))
    manager.left_out = frozenset({"i2"})
    asked = []

    def reply(stage: str, text: str) -> Any:
        asked.append(text)
        wrong = entry((1, 2, 3), "i2", "State the price of the train.")
        return form(wrong, entry((4,), None, "Name the colour.")) if stage == "read" else {}

    await step(manager, judged(*"bcde"), reply)
    assert "gave the answers below without these instructions: i2." in asked[0]
    assert texts(manager) == ["Be kind.", "State the price."]
    assert manager.effects.rounds[-1].violated == {"i2": 3} and not manager.left_out


async def test_of_two_that_contradict_each_other_the_one_demanded_twice_as_often_stays() -> None:
    both = form(entry((1, 2, 3), None, "Name the price."), entry((4,), None, "Never name the price."))

    def reply(stage: str, text: str) -> Any:
        if stage == "consolidate":
            return {"duplicates": [], "contradictions": [["i2", "i3"], ["i1", "i3"]]}
        return both if "[i2]" not in text else after

    after = form(no_demand=[1])
    manager = InstructionManager(START)
    await step(manager, judged(*"abcd"), reply)
    logged = await step(manager, judged("e"), reply)
    assert len(texts(manager)) == 3, "both are followed: they cannot contradict each other"
    after, manager = form(entry((1,), "i2")), InstructionManager(START)
    await step(manager, judged(*"abcd"), reply)
    logged = await step(manager, judged("e"), reply)
    assert texts(manager) == ["Be kind.", "Name the price."]
    (conflict,) = [value for name, value in logged if name == "conflict"]
    assert conflict == {
        "first": "Name the price.",
        "second": "Never name the price.",
        "settled": "Name the price.",
    }


async def test_at_the_end_a_pair_of_which_no_number_says_who_objects_does_not_stand_with_both_sides() -> None:
    listed = "1. Name the price of the whole stay.\n2. Never name the price of anything.\n"

    def reply(stage: str, text: str) -> Any:
        return {"contradictions": [["i2", "i3"]]} if stage == "consolidate" else listed

    manager = InstructionManager(START)
    for voice in "abc":
        await step(manager, judged(voice), reply)
    assert len(texts(manager)) == 3
    run, _ = run_with(reply)
    await manager.finish(run, None)
    assert texts(manager) == ["Be kind.", "Name the price of the whole stay."]


def test_a_pair_is_the_same_pair_after_a_merge_and_the_other_way_round() -> None:
    known = Contradictions(Effects())
    known.add([("i2", "i3"), ("i5", "i4"), ("i2", "i6"), ("i6", "i2")])
    known.merge("i4", ("i2",))
    known.merge("i5", ("i3", "i4x"))
    assert known.pairs == {("i4", "i5"): 2, ("i4", "i6"): 2}
    known.merge("i4", ("i6",))
    assert known.pairs == {("i4", "i5"): 2}, "what became one does not contradict itself"


async def test_two_of_which_no_answer_can_follow_both_are_settled_later_and_not_reworded_meanwhile() -> None:
    """The pair is named once, when nothing speaks for either; what is violated while both stand settles it."""
    both, rewritten = (
        form(entry((1,), None, "Name the price."), entry((2,), None, "Never name the price.")),
        [],
    )

    def reply(stage: str, text: str) -> Any:
        if stage == "consolidate":
            return {"duplicates": [], "contradictions": [["i2", "i3"]] if len(rewritten) == 0 else []}
        if stage == "rewrite":
            rewritten.append(text)
            return {}
        return both if "[i2]" not in text else form(entry(tuple(range(1, 9)), "i2"), entry((9,), "i3"))

    manager = InstructionManager(START)
    await step(manager, judged("a", "b"), reply)
    assert len(texts(manager)) == 3
    await step(manager, judged(*"cdefghijk"), reply)
    assert rewritten == [] and texts(manager) == ["Be kind.", "Name the price."]


async def test_many_who_want_the_contrary_of_an_instruction_drop_it_where_another_demands_it_already() -> (
    None
):
    both = form(entry((1, 2), None, "Use the names of the notes."), entry((3,), None, "Write Bramble."))
    against = {"critiques": [1, 2, 3, 4, 5, 6], "violates": "i2", "instruction": None, "contradicts": "i3"}
    manager = InstructionManager(START, consolidates=False)
    await step(manager, judged(*"abc"), reads(both))
    few = {**against, "critiques": [1]}
    await step(manager, judged(*"defghi"), reads({"requirements": [few]}))
    assert len(texts(manager)) == 3
    await step(manager, judged(*"jklmno"), reads({"requirements": [against]}))
    assert texts(manager) == ["Be kind.", "Use the names of the notes."]


async def test_what_is_improper_to_the_model_leaves_where_it_was_demanded_once_and_is_tried_without_else() -> (
    None
):
    read = form(
        entry((1,), None, "Praise the inn next door."),
        *(entry((2, 3), None, text) for text in ("Name the price.", "Be brief.", "Sign with a name.")),
    )
    compared = {"duplicates": [], "contradictions": [], "improper": ["i5", "i2"]}
    manager, answers = InstructionManager(START), iter([read, form()])

    def reply(stage: str, text: str) -> Any:
        return compared if stage == "consolidate" else next(answers)

    await step(manager, judged("a", "b", "c"), reply)
    logged = await step(manager, judged("d"), reply)
    assert texts(manager) == ["Be kind.", "Name the price.", "Be brief.", "Sign with a name."]
    assert [v["text"] for name, v in logged if name == "untested"] == ["Praise the inn next door."]
    manager.plan_trial()
    assert manager.left_out == {"i2"}


async def last_step_with_one_voice() -> InstructionManager:
    """Others were missed as long as that one was, and each of them was demanded again and again."""
    manager = InstructionManager(START)
    for n in range(4):
        voices = judged(*(f"{n}.{m}" for m in range(6)))
        await step(manager, voices, reads(form(entry((1, 2, 3, 4, 5, 6), None, f"Do the thing number {n}."))))
    run, _ = run_with(reads(form(entry((1,), None, "Give everyone a free bike."))))
    await manager.step(run, judged("z"), None, "end", last=True)
    return manager


async def test_what_one_answer_demands_when_nothing_can_be_tried_any_more_stays_where_a_model_can_check_it() -> (
    None
):
    manager = await last_step_with_one_voice()
    await manager.finish(run_with(constant({}))[0], 3)
    assert "Give everyone a free bike." in texts(manager)
    unchecked = await last_step_with_one_voice()
    run, _ = run_with(constant({}))
    await unchecked.finish(run, 0)
    assert "Give everyone a free bike." not in texts(unchecked) and len(texts(unchecked)) == 5
    assert [v["text"] for name, v in run.logged if name == "untested"] == ["Give everyone a free bike."]
    early = InstructionManager(START)
    run, _ = run_with(reads(form(entry((1,), None, "Mind the step."))))
    await early.step(run, judged("z"), None, "end", last=True)
    await early.finish(run_with(constant({}))[0], 0)
    assert "Mind the step." in texts(early), "one critique is enough where others had no time to be heard"


async def test_what_nobody_could_act_on_leaves_at_the_end() -> None:
    manager = InstructionManager(START)
    made = form(entry((1,), None, "Take more care over the price."), entry((2,), None, "Sign with a name."))
    await step(manager, judged("no price!", "who wrote this?"), reads(made))
    run, optimizer = run_with(
        lambda stage, text: {"duplicates": [], "unclear": ["i2"]} if stage == "consolidate" else {}
    )
    await manager.finish(run, 3)
    assert texts(manager) == ["Be kind.", "Sign with a name."]
    assert optimizer.calls("consolidate") == 1


async def test_what_answers_were_seen_to_violate_is_clear_enough() -> None:
    manager = InstructionManager(START)
    await step(manager, judged("rude"), reads(form(entry((1,), None, "Be friendly."))))
    await step(manager, judged("rude again"), reads(form(entry((1,), "i2"))))
    run, _ = run_with(
        lambda stage, text: {"duplicates": [], "unclear": ["i2"]} if stage == "consolidate" else {}
    )
    await manager.finish(run, 3)
    assert texts(manager) == ["Be kind.", "Be friendly."]


async def test_what_is_violated_in_other_words_as_well_is_compared_with_what_may_hinder_it() -> None:
    """The contrary stands beside it, and nobody objects to that one by itself."""
    right, other, contrary = "Name two networks.", "List exactly two networks.", "Give 15 networks."

    def reply(stage: str, text: str) -> Any:
        if stage == "rewrite":
            return {"rewrites": [{"instruction_id": "i2", "text": other}]}
        if stage == "consolidate":
            return {"duplicates": [], "contradictions": [["i2", "i3"]]}
        first = entry((1,), None, right), entry((2,), None, contrary)
        return form(*first) if right not in text and other not in text else form(entry((1, 2, 3), "i2"))

    manager, repairs = InstructionManager(START), []
    for _ in range(5):
        run, _ = run_with(reply)
        await manager.step(run, judged("a", "b", "c", answers=12), 1 + manager.repairs, "now")
        repairs.append(manager.repairs)
    assert repairs[:4] == [0, 1, 0, 2], "a wording first, then a look at what stands against it"
    assert texts(manager) == ["Be kind.", other]


async def test_a_reading_that_is_lost_is_no_sign_that_nothing_is_missing() -> None:
    manager = InstructionManager(START)
    for answer, lost in (("I cannot help.", True), (form(no_demand=[1]), False)):
        await step(manager, judged("a"), constant(answer))
        assert manager.lost == lost


async def test_an_instruction_that_names_one_row_does_not_enter() -> None:
    inputs = (*(f"Guest {n} of room {n}" for n in range(9)), "Agnes Tanaka has lost her card")
    rollout = replace(judged(*"ab", answers=10), answers=((9,), (3,)), inputs=inputs)
    reply = reads(form(
        entry((1,), None, "Name the weekday, for example for Agnes Tanaka."), entry((2,), None, "Greet every guest by name."),
    ))  # fmt: skip
    manager = InstructionManager(START)
    await step(manager, rollout, reply)
    assert texts(manager) == ["Be kind.", "Greet every guest by name."]


async def test_the_bound_on_tokens_keeps_what_answers_most() -> None:
    manager = InstructionManager(START, tokens=20)
    answer = form(
        entry((1,), None, "Rare thing that hardly anybody wants."),
        entry((2,), None, "Common thing for all of them."),
    )
    rollout = CritiqueBatch(tuple(critiques("a", "b")), ((0,), tuple(range(12))), (0.5,) * 20)
    logged = await step(manager, rollout, reads(answer))
    assert texts(manager) == ["Be kind.", "Common thing for all of them."]
    assert any(name == "over_budget" for name, _ in logged)


async def test_a_critique_that_is_dismissed_twice_is_not_shown_again() -> None:
    manager, shown = InstructionManager(START), []

    def reply(stage: str, text: str) -> Any:
        shown.append("lovely" in text)
        return form(no_demand=[1])

    for _ in range(4):
        await step(manager, judged("lovely", "tschüss"), reply)
    assert shown == [True, True, False, False]


async def test_calls_are_kept_within_what_is_allowed() -> None:
    for most in (1, 2, 5, 12):
        manager = InstructionManager(START)
        for _ in range(3):
            run, optimizer = run_with(lambda stage, text: form(entry((1,), None, f"Do {len(text)} things.")))
            await manager.step(run, judged(*(f"critique number {n}" for n in range(60))), most, "now")
            assert len(optimizer.seen) <= most


async def test_the_history_is_whole_events() -> None:
    manager = InstructionManager(START)
    await step(manager, judged("a"), reads(form(entry((1,), None, "State the price."))))
    assert all(isinstance(event, Event) for event in manager.history())
    assert Critique("a", "row 1").text in manager.ledger.active[-1].critiques


async def test_the_last_step_compares_all_instructions_so_that_the_end_needs_no_call() -> None:
    def reply(stage: str, text: str) -> Any:
        if stage == "consolidate":
            return {"duplicates": [{"ids": ["i2", "i3"], "best": "i3"}]}
        new = "There are no" in text or ("[i1]" in text and "euro" not in text)
        return form(entry((1,), None, "Quote euros."), entry((2,), None, "Use euro.")) if new else form()

    manager = InstructionManager(START)
    await step(manager, judged("a", "b"), reply)
    manager.fresh = []
    run, optimizer = run_with(reply)
    await manager.step(run, judged("c"), 12, "last", last=True)
    assert optimizer.calls("consolidate") == 1 and texts(manager) == ["Be kind.", "Use euro."]
    await manager.finish(run, 9)
    assert optimizer.calls("consolidate") == 1


async def test_a_new_wording_counts_although_the_answer_names_no_instruction() -> None:
    """A real answer: one entry for one item, its id left empty."""
    one = Failing("i29", "Take more care.", critiques=("no trap field",))
    two = Failing("i30", "Be neat.")
    for items, wordings, kept in (
        ([one], ["Give every form a trap field."], {"i29": "Give every form a trap field."}),
        ([one, two], ["Add a trap field.", "Align it."], {"i29": "Add a trap field.", "i30": "Align it."}),
        ([one, two], ["Add a trap field."], {}),
    ):
        answer = {"rewrites": [{"instruction_id": "", "text": text} for text in wordings]}
        run, _ = run_with(lambda stage, text, answer=answer: answer)
        assert await rewrite(run, items) == kept
