"""`whet study sensitivity`: what each sentence or word carries, shared values, other forms, and the units themselves."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whet
from tests.cli.test_compare import Whet, asked, paid, url
from tests.cli.test_compare import ledger as ledger
from tests.cli.test_compare import server as server
from tests.cli.test_compare import whet as command
from tests.cli.test_transfer import OPRO, RUN, openings, state
from tests.study.test_components import write_study
from whet._util.words import sentence_ends, word_ends
from whet.api.study.sensitivity import spread_of_means
from whet.api.study.units import keep_units, other_forms, split_units
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.stats.shapley import coalitions_of, order_error, sample_orders, shapley_weights

command, state = command, state
TEXT = "Be kind.\nGive only the number. Stay calm!"


def test_the_sentence_that_carries_the_reward_of_a_prompt_is_found_and_paid_once(
    tmp_path: Path, command: Whet, server: str, ledger: Path, state: Path
) -> None:
    write_study(tmp_path)
    (tmp_path / "new.md").write_text(
        f"You answer questions.\n<!-- whet:begin -->\n{TEXT}\n<!-- whet:end -->\n"
    )
    words = ("study", "sensitivity", "new.md", "--task", "task", "--base-url", url(server, "units"))
    planned = json.loads(command(*words, "--dry-run", "--json")[1])
    assert planned["status"] == "planned" and asked(ledger, "units")["test"] == 0
    code, out, err = command(*words, "--json")
    assert code == 0, err
    assert "plan: 3 sentences left out one at a time" in err
    found = json.loads(out)
    units = {row["text"].strip(): row for row in found["units"]}
    assert list(units) == ["Be kind.", "Give only the number.", "Stay calm!"]
    assert units["Give only the number."]["difference"] == 1.0 and units["Give only the number."]["low"] > 0
    assert units["Be kind."]["difference"] == units["Stay calm!"]["difference"] == 0.0
    assert all(row["difference"] == 0.0 for row in found["forms"]) and found["spread"]["across"] == 0.0
    prompts = found["plan"]["study"]["prompts"]
    assert paid(found) == asked(ledger, "units")["test"] == 10 * prompts and openings(state) == 0
    assert json.loads(command(*words, "--json")[1])["recorded"]
    assert asked(ledger, "units")["test"] == 10 * prompts
    shown = command(*words)[1]
    assert '1 of 3 sentences carries or costs reward: "Give only the number." +1.000' in shown
    page = (Path(found["run"]) / "report.html").read_text()
    assert (
        'class="heat carries shown" style="--share: 1.00" title="+1.000">Give only the number. </span>'
        in page
    )


def test_the_best_prompt_of_a_run_is_studied_with_the_models_of_the_run(
    tmp_path: Path, command: Whet, server: str, ledger: Path, state: Path
) -> None:
    write_study(tmp_path)
    base = ("--base-url", url(server, "run"))
    assert command("optimize", "task", *OPRO[:-1], "200", *base)[0] == 0
    before = openings(state)
    code, out, err = command("study", "sensitivity", RUN, "--unit", "word", *base, "--json")
    assert code == 0, err
    found = json.loads(out)
    best = {row["text"].strip(" .\n"): row["difference"] for row in found["units"]}
    assert best["only"] == 1.0 and {value for word, value in best.items() if word != "only"} == {0.0}
    assert found["models"]["task"] == "openai/test" and openings(state) == before


def test_what_cannot_be_studied_is_refused(tmp_path: Path, command: Whet, server: str) -> None:
    write_study(tmp_path)
    words = ("study", "sensitivity", "task/prompt.md", "--base-url", url(server, "no"))
    code, _, err = command(*words)
    assert code == 2 and "Name the task with --task FOLDER" in err
    assert 'no run "nothing"' in command("study", "sensitivity", "nothing")[2]
    code, _, err = command(*words, "--task", "task", "--max-calls", "5")
    assert code == 2 and "--max-calls 5 does not pay for" in err
    assert "rows are only for a final prompt" in command(*words, "--task", "task", "--split", "test")[2]
    (tmp_path / "task" / "prompt.md").write_text("<!-- whet:begin -->\n{{input}}\n<!-- whet:end -->\n")
    code, _, err = command(*words, "--task", "task")
    assert code == 2 and "has no sentence that can be left out" in err


def test_sentences_that_say_the_same_share_their_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def either(messages: Any) -> str:
        text = messages[0].content
        return "yes" if "alpha" in text or "beta" in text else "no"

    rows = [{"input": f"row {i}", "target": "yes"} for i in range(60)]
    task = whet.Task.of("Say alpha. Say beta. Say gamma.\n{{input}}", data=rows, reward="exact_match")
    found = whet.study_sensitivity(task.prompt, task=task, lm=either, shapley=200, forms=False)
    assert [one.difference for one in found.units] == [0.0, 0.0, 0.0]
    alpha, beta, gamma = found.units
    assert alpha.shapley is not None and beta.shapley is not None and alpha.shapley_error is not None
    assert alpha.shapley + beta.shapley == pytest.approx(1.0) and gamma.shapley == pytest.approx(
        0.0, abs=1e-9
    )
    assert abs(alpha.shapley - 0.5) < 4 * alpha.shapley_error < 0.2
    assert found.spread is None and found.report.is_file()


def test_shapley_values_of_all_orders_are_exact_and_drawn_ones_come_near() -> None:
    def worth(coalition: frozenset[int]) -> float:
        return 0.1 * len(coalition) + 0.3 * ({0, 1} <= coalition) - 0.2 * (2 in coalition)

    exact = np.array([0.25, 0.25, -0.1])
    for orders in (
        [list(order) for order in permutations(range(3))],
        sample_orders(3, 400, random.Random(1)),
    ):
        coalitions = coalitions_of(orders)
        weights = shapley_weights(orders, {coalition: i for i, coalition in enumerate(coalitions)})
        values = np.array([worth(coalition) for coalition in coalitions])
        found, error = (weights @ values).mean(axis=0), order_error(values, weights)
        assert len(coalitions) == 8 and found.sum() == pytest.approx(worth(frozenset({0, 1, 2})))
        assert np.all(np.abs(found - exact) <= 4 * error + 1e-9)
        if len(orders) == 6:
            assert found == pytest.approx(exact)
    assert np.isnan(order_error(values, weights[:1])).all()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two? Three!", ["One. ", "Two? ", "Three!"]),
        ("It costs 3.50, e.g. now. Then", ["It costs 3.50, e.g. now. ", "Then"]),
        ("「はい。」と言う。次。", ["「はい。」", "と言う。", "次。"]),
        ("a line\r\nnext", ["a line\r\n", "next"]),
        ("क्या? हाँ। ठीक", ["क्या? ", "हाँ। ", "ठीक"]),
        ("", []),
    ],
)
def test_sentences_end_where_unicode_says(text: str, sentences: list[str]) -> None:
    ends = sentence_ends(text)
    assert [text[a:b] for a, b in zip([0, *ends], ends, strict=False)] == sentences
    assert "".join(text[a:b] for a, b in zip([0, *word_ends(text)], word_ends(text), strict=False)) == text


def test_units_cover_the_text_and_keep_slots_numbers_and_bullets() -> None:
    text = "# Rules:\nBe kind. Be\u00a0brief!\n\n1. Read {{doc}}. Well.\n2. Go on.\n* "
    for kind in ("sentence", "word"):
        units = split_units(text, kind)  # type: ignore[arg-type]
        assert "".join(unit.text for unit in units) == text
        assert [unit.text for unit in units if unit.fixed and "{{doc}}" in unit.text]
    sentences = [unit.text for unit in split_units(text, "sentence")]
    assert "2. Go on.\n* " in sentences and "Be\u00a0brief!\n\n" in sentences
    words = [unit.text for unit in split_units(text, "word")]
    assert "# Rules:\n" in words and "brief!\n\n" in words and "1. " in words and "on.\n* " in words
    assert [unit.text for unit in split_units("Go.\n- Stop", "word")] == ["Go.\n", "- Stop"]
    prompt = Prompt.parse(f"<!-- whet:begin -->\n{text}\n<!-- whet:end -->")
    units = split_units(prompt.region_text(), "sentence")
    left = keep_units(prompt, units, [], None)
    assert left is not None and left.text.strip() == "1. Read {{doc}}."
    alone = Prompt.parse("<!-- whet:begin -->\nOne. Two.\n<!-- whet:end -->")
    assert keep_units(alone, split_units(alone.region_text(), "sentence"), [], None) is None


def test_other_forms_keep_every_word_and_slot() -> None:
    text = "Rules for {{doc}}:\nBe kind. Be brief.\nUse {{doc}} well."
    forms = dict(other_forms(text, split_units(text, "sentence"), 0))
    assert forms["headings in capitals"].startswith("RULES FOR {{doc}}:\nBe kind.")
    assert forms["order reversed"] == "Rules for {{doc}}:\nBe brief. Be kind.\nUse {{doc}} well."
    for name, form in forms.items():
        same = form.casefold().replace("- ", "")
        assert sorted(same.split()) == sorted(text.casefold().split()), name
    assert dict(other_forms("今日は。", split_units("今日は。", "sentence"), 0)) == {"bullets": "- 今日は。"}


def test_the_spread_across_halves_is_nothing_where_form_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    ranges, across = [], []
    for _ in range(200):
        found = spread_of_means((rng.random((40, 8)) < 0.5).astype(float))
        ranges.append(found["range"])
        across.append(found["across"])
    assert np.mean(ranges) > 0.15 and abs(np.mean(across)) < 3 * np.std(across) / np.sqrt(200)
    apart = (rng.random((400, 2)) < [0.3, 0.7]).astype(float)
    assert spread_of_means(apart)["across"] == pytest.approx(0.4, abs=0.1)
    assert spread_of_means(np.full((3, 2), np.nan)) == {"range": None, "across": None, "n": 0}


def test_a_number_of_orders_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="number of orders"):
        whet.study_sensitivity("Be kind.", task="x", shapley=-1)


def test_answers_that_a_study_lacks_or_cannot_grade_are_warned_of_in_their_own_words(tmp_path: Path) -> None:
    rows = [{"input": f"Dish {i}", "target": "kind"} for i in range(20)]

    class Provider:
        version, calls, dry = "1", Counter[str](), True

        def __call__(self, messages: list[whet.Message]) -> str:
            text = messages[-1].content
            self.calls[text[-6:]] += 1
            if text.endswith("Dish 3") and self.dry:
                raise whet.ProviderError("HTTP 400: Your credit balance is too low", status=400)
            return "kind"

    model = Provider()

    def reward(example: dict[str, Any], output: str) -> float:
        return 1 / 0 if example["input"] == "Dish 5" else 1.0

    task = whet.Task.of(
        f"{TEXT}\n{{{{input}}}}",
        data={
            "train": rows,
            "validation": [{"input": "Dish 98", "target": "kind"}],
            "test": [{"input": "Dish 99", "target": "kind"}],
        },
        reward=reward,
    )

    def study() -> Any:
        return whet.study_sensitivity(
            task.prompt, task=task, split="train", lm=model, root=tmp_path, progress=False
        )

    found = study()
    lacking, failed = found["warnings"][-2:]
    assert "rollouts have no answer" in lacking and "Your credit balance is too low" in lacking
    assert "failed and count as the lowest reward; the first" in failed and "ZeroDivisionError" in failed
    assert found["unanswered"] == model.calls["Dish 4"] > 1
    model.calls.clear()
    model.dry = False
    again = study()
    assert again["unanswered"] == 0 and set(model.calls) == {"Dish 3"}, "no answer is paid for twice"
    model.calls.clear()
    assert study()["recorded"] and not model.calls
