"""embedded/tiny: what ships, what it follows, what it writes, and how it was made."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tools.embedded.clauses import ATTRIBUTES, BY_NAME, CLAUSES, transform

from whet.errors import UsageError
from whet.models.language_model import BatchModel, LanguageModel
from whet.prompt import Prompt
from whet.replies import join_thought
from whet.types import Message, Request

torch = pytest.importorskip("torch", reason="embedded/tiny needs torch: pip install 'whet[hf]'")
pytest.importorskip("transformers", reason="embedded/tiny needs transformers: pip install 'whet[hf]'")

from tools.embedded import tinyforms  # noqa: E402
from tools.embedded.tinydata import chat_text, instruction, make_tokenizer, pick_clauses  # noqa: E402
from tools.embedded.tinymeasure import (  # noqa: E402
    FORMATS,
    is_obeyed,
    line,
    request,
    sample_conversations,
    similarity,
    well_formed,
)

from whet.models.addresses import resolve  # noqa: E402
from whet.models.embedded import TINY  # noqa: E402

SHA256 = "58610143d12e61ed353f581e21456f574ab5ad948c621d50360c348d9b72ab7a"


@pytest.fixture(scope="module")
def tiny() -> Any:
    torch.set_num_threads(1)
    return resolve("embedded/tiny")


def answers(tiny: Any, requests: list[Request], thoughts: bool = False) -> list[str]:
    from whet.models.huggingface_generate import generate_batch

    found = [found[0] for found in generate_batch(tiny.weights, requests, 256)]
    return [(join_thought(one) if thoughts else one).text for one in found]


@pytest.mark.parametrize(
    ("text", "names", "wanted"),
    [
        ("dog house red", ["capitals", "reversed", "hyphens", "exclamation", "arrow"], "> RED-HOUSE-DOG!"),
        ("dog house red", [], "dog house red"),
        ("dog house red", ["without first", "twice", "commas", "quotes"], '"house, house, red, red"'),
        ("dog house red", ["shortened", "backwards", "titled", "note"], "note: Od Oh Er"),
        ("dog house", ["rotated", "doubled letters", "slashes", "stars"], "*hhoouussee/ddoogg*"),
        ("dog house", ["echo", "capital ends", "brackets", "question", "hash"], "# (doG housE doG housE)?"),
        ("dog house", ["exclamation", "period"], "dog house."),
        ("dog house", ["without last", "period"], "dog."),
    ],
)
def test_clauses_act_in_their_order_and_the_last_of_an_attribute_wins(
    text: str, names: list[str], wanted: str
) -> None:
    assert transform(text, names) == wanted


def test_the_table_has_three_clauses_an_attribute_and_no_wording_twice() -> None:
    assert Counter(c.attribute for c in CLAUSES) == dict.fromkeys(ATTRIBUTES, 3)
    wordings = [text for c in CLAUSES for text in (*c.wordings, *c.held, c.name)]
    assert len(set(wordings)) == len(wordings)
    for clause in CLAUSES:
        assert transform("dog house red", [clause.name]) != "dog house red"


def test_obedience_is_judged_against_the_line_without_the_clause() -> None:
    assert is_obeyed("DOG-HOUSE", "dog house", ["capitals", "hyphens"], "capitals")
    assert is_obeyed("DOG HOUSE", "dog house", ["capitals", "hyphens"], "capitals")
    assert not is_obeyed("dog-house", "dog house", ["capitals", "hyphens"], "capitals")
    assert is_obeyed("dog-house", "dog house", ["capitals", "hyphens"], "hyphens")
    assert similarity("abcd", "abxx") == 0.5


def test_what_ships_is_what_was_measured() -> None:
    assert hashlib.sha256((TINY / "model.safetensors").read_bytes()).hexdigest() == SHA256
    sizes = {path.name: path.stat().st_size for path in TINY.iterdir()}
    assert sizes.keys() == {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"}
    assert sizes["model.safetensors"] < 8_000_000


def test_it_is_a_local_model_that_writes_and_scores(tiny: Any) -> None:
    assert isinstance(tiny, LanguageModel) and isinstance(tiny, BatchModel)
    assert (tiny.address, tiny.local, tiny.simulated) == ("embedded/tiny", True, False)
    assert (tiny.can_generate, tiny.can_score) == (True, True)


async def test_closing_one_does_not_close_another() -> None:
    first, second = resolve("embedded/tiny"), resolve("embedded/tiny")
    await first.close()
    (found,) = await second.generate(Request((Message("user", "dog house"),), max_tokens=4))
    assert found.usage.output_tokens > 0
    await second.close()


def test_an_unknown_name_gets_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r'Did you mean "tiny"\?.*embedded/encoder, embedded/mlm, embedded/tiny'
    ):
        resolve("embedded/tinny")


@pytest.mark.parametrize(
    "text", ["Grüße, 你好! €5 \t\n\n x", "<|end|>", "capital letters", "{{input}} \x00 🙂", ""]
)
def test_the_tokenizer_encodes_any_text(tiny: Any, text: str) -> None:
    ids = tiny.weights.encode(text)
    assert tiny.weights.tokenizer.decode(ids) == text
    assert not set(ids) & set(range(5))


def test_known_words_are_one_token_and_others_are_letters(tiny: Any) -> None:
    assert tiny.count_tokens("Reverse the words") == 3
    assert tiny.count_tokens("zephyr") == 6


def test_the_shipped_tokenizer_and_template_are_those_of_the_training(tiny: Any) -> None:
    made = make_tokenizer(tinyforms.TEXTS)
    assert json.loads(made.to_str()) == json.loads((TINY / "tokenizer.json").read_text())
    turns = (Message("system", "be careful"), Message("user", "dog"), Message("assistant", "dog"))
    for count in (1, 2):
        assert tiny.weights.text(turns[:count]) == chat_text(turns[:count])
    assert tiny.weights.text(turns) == chat_text(turns[:2]) + "dog"


@pytest.mark.parametrize("each", [2, pytest.param(6, marks=pytest.mark.long)])
def test_it_follows_single_clauses_on_words_it_never_read(tiny: Any, each: int) -> None:
    rng = random.Random(5)
    cases = [(c, line(rng)) for c in CLAUSES for _ in range(each)]
    asked = {
        "trained": [request(instruction(rng, [c]), text) for c, text in cases],
        "held": [request(instruction(rng, [c], held=True), text) for c, text in cases],
        "none": [request("", text) for _, text in cases],
    }
    wanted = [transform(text, [c.name]) for c, text in cases]
    share = {
        column: sum(a == b for a, b in zip(answers(tiny, requests), wanted, strict=True)) / len(cases)
        for column, requests in asked.items()
    }
    assert share["trained"] >= 0.85
    assert share["held"] >= 0.65
    assert share["none"] <= 0.05


def test_it_follows_each_of_four_clauses_more_often_than_all(tiny: Any) -> None:
    rng = random.Random(6)
    cases = [([c.name for c in pick_clauses(rng, 4)], line(rng)) for _ in range(40)]
    said = [request(instruction(rng, [BY_NAME[n] for n in names]), text) for names, text in cases]
    found = answers(tiny, said)
    kept = [
        is_obeyed(a, text, names, n) for a, (names, text) in zip(found, cases, strict=True) for n in names
    ]
    exact = [a == transform(text, names) for a, (names, text) in zip(found, cases, strict=True)]
    assert sum(kept) / len(kept) >= 0.9
    assert sum(exact) / len(exact) < sum(kept) / len(kept)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=pytest.mark.long) if one in ("operations", "r1") else one for one in FORMATS],
)
def test_it_writes_every_format_and_varies(tiny: Any, kind: str) -> None:
    found = sample_conversations(
        lambda requests: answers(tiny, list(requests), thoughts=True), kind, random.Random(7), 24
    )
    right = [text for text in found if well_formed(kind, text)]
    assert len(right) >= 18
    if kind != "kind":
        assert len(set(right)) >= 15


@pytest.mark.parametrize(
    ("kind", "text", "right"),
    [
        ("prl", "<think>So.</think><answer>Use capitals.</answer>", True),
        ("prl", "<think>So.</think>Use capitals.", False),
        ("keywords", "capitals; twice", True),
        ("keywords", "a; b; c; d", False),
        ("r1", "<think>x</think><interaction_prompt>y</interaction_prompt>", True),
        ("r1", "<think>x</think><interaction_prompt>y</answer>", False),
        ("operations", '[{"op": "add", "text": "use capitals"}]', True),
        ("operations", '[{"op": "modify", "text": "use capitals"}]', False),
        ("operations", '[{"op": "add", "text": "use capitals}]', False),
        ("kind", "tool", True),
        ("kind", "house", False),
        ("rewrite", " ", False),
    ],
)
def test_a_format_is_recognised(kind: str, text: str, right: bool) -> None:
    assert well_formed(kind, text) is right


async def test_scores_are_the_sum_of_the_tokens_log_probabilities(tiny: Any) -> None:
    from transformers import AutoModelForCausalLM

    direct = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    prompt, choices = Prompt.parse("{{input}}\nThe words are of the kind"), ["animal", "food", "tool"]
    scores = await tiny.score([prompt], [{"input": "olive plum"}], [choices])
    asked = (Message("user", "olive plum\nThe words are of the kind"),)
    prefix = tiny.weights.read(asked)[1]
    for at, choice in enumerate(choices):
        ids = tiny.weights.encode(choice)
        with torch.no_grad():
            rows = direct(input_ids=torch.tensor([prefix + ids])).logits[0].double().log_softmax(-1)
        wanted = sum(float(rows[len(prefix) + i - 1, token]) for i, token in enumerate(ids))
        assert scores.logprobs[0, 0, at] == pytest.approx(wanted, abs=1e-3)


async def test_a_batch_answers_as_one_by_one(tiny: Any) -> None:
    rng = random.Random(8)
    asked = [request(instruction(rng, pick_clauses(rng, 2)), line(rng, 2)) for _ in range(3)]
    asked += [request(asked[0].messages[0].content, line(rng), temperature=1.0) for _ in range(2)]
    asked += [Request(asked[0].messages, 1.0, 8, n=3, seed=4), Request(asked[1].messages, 0.0, 5, n=2)]
    together = await tiny.generate_batch(asked)
    assert [len(found) for found in together] == [1] * 5 + [3, 2]
    assert [await tiny.generate(one) for one in asked] == together
    assert together[-1][0] == together[-1][1]
    assert await tiny.generate_batch([]) == []


def test_the_training_forward_is_the_models_own() -> None:
    from tools.embedded.tinytrain import Forward, TinyTrainingSettings, batches, build

    settings = TinyTrainingSettings(width=32, inner=48, layers=2, heads=2, tokens=512, seed=3)
    made = make_tokenizer(tinyforms.TEXTS)
    model = build(settings, made.get_vocab_size())
    ids, learnt = next(batches(made, settings))
    length = ids.shape[1]
    mask = torch.full((length, length), -torch.inf, dtype=torch.bfloat16).triu(1)
    with torch.no_grad():
        found = Forward(model)(ids, mask).float()
        wanted = model.model(input_ids=ids).last_hidden_state
    assert found[learnt].numpy() == pytest.approx(wanted[learnt].numpy(), abs=0.06)


def test_only_the_tokens_of_the_answer_are_learnt() -> None:
    from tools.embedded.tinytrain import END, TinyTrainingSettings, batches

    made = make_tokenizer(tinyforms.TEXTS)
    speaks = made.token_to_id("<|assistant|>")
    for _, (ids, learnt) in zip(range(4), batches(made, TinyTrainingSettings(tokens=1024)), strict=False):
        for row, asked in zip(ids.tolist(), learnt.tolist(), strict=True):
            if not any(asked):
                continue
            start = asked.index(True)
            end = len(asked) - asked[::-1].index(True)
            assert all(asked[start:end]) and row[start] == speaks and row[end] == END
            assert row[end + 1 :] == [0] * len(row[end + 1 :])


def test_a_trained_folder_is_loaded_as_any_other(tmp_path: Path) -> None:
    from tools.embedded.tinytrain import TinyTrainingSettings, build, load_start, save

    made = make_tokenizer(tinyforms.TEXTS)
    settings = TinyTrainingSettings(width=32, inner=48, layers=1, heads=2)
    model = build(settings, made.get_vocab_size())
    save(tmp_path / "out", model, made)
    again = build(TinyTrainingSettings(width=32, inner=48, layers=1, heads=2, seed=9), made.get_vocab_size())
    load_start(again, tmp_path / "out")
    one, other = model.lm_head.weight, again.lm_head.weight
    assert other.detach().numpy() == pytest.approx(one.detach().numpy(), abs=1e-3)
    loaded: Any = resolve(f"hf/{tmp_path / 'out'}")
    found = answers(loaded, [Request((Message("user", "dog"),), 0.0, 3)])
    assert len(found) == 1 and loaded.weights.limit == 512


def test_the_rate_rises_stays_and_falls_to_zero() -> None:
    from tools.embedded.tinytrain import TinyTrainingSettings, rate_at

    settings = TinyTrainingSettings(steps=1000, cooldown=0.4)
    rates = [rate_at(step, settings) for step in (0, 49, 99, 500, 600, 800, 1000)]
    assert rates == [0.01, 0.5, 1.0, 1.0, 1.0, 0.5, 0.0]
