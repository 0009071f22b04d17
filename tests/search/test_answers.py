"""What a critique says about one example's answer is not taken for a rule; what it says besides is kept."""

from __future__ import annotations

from whet.search.answers import without_answers
from whet.types import Example, Rollout


def rollouts(*rows: tuple[str, str, str | None]) -> tuple[list[Rollout], dict[str, Example]]:
    examples = {str(i): Example(str(i), {}, target) for i, (target, _, _) in enumerate(rows)}
    made = [
        Rollout("p", str(i), output, 0.0, critique=critique) for i, (_, output, critique) in enumerate(rows)
    ]
    return made, examples


def critiques(*rows: tuple[str, str, str | None]) -> list[str | None]:
    return [r.critique for r in without_answers(*rollouts(*rows))]


def test_right_answers_alone_are_dropped() -> None:
    assert critiques(
        ("7", "It is 12. Sure.", 'The answer "It is 12. Sure." should be "7".'),
        ("9", "It is 3.", 'The answer "It is 3." should be "9".'),
        ("yes", "no", None),
    ) == [None, None, None]


def test_what_is_said_besides_is_kept() -> None:
    assert critiques(
        ("7", "12", "Expected 7, got 12. Round to the nearest integer."),
        ("9", "3.2", "Expected 9, got 3.2. Give no decimals."),
    ) == ["Round to the nearest integer.", "Give no decimals."]


def test_a_rule_that_holds_a_target_by_chance_is_kept() -> None:
    rule = "Write at most 7 words."
    assert critiques(("7", "a", rule), ("9", "b", rule), ("7", "c", "Say yes.")) == [rule, rule, "Say yes."]


def test_one_target_for_all_is_a_rule() -> None:
    said = 'Every answer should be "OK".'
    assert critiques(("OK", "a", said), ("OK", "b", said)) == [said, said]
