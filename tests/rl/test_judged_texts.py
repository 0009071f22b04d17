"""Direct alignment with judged answers: what rows hold, the gradient of each loss by hand, and that a network learns it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.environments.worlds import examples  # noqa: E402 - after the checks for extras
from tests.rl.tiny_llama import save  # noqa: E402

from whet.errors import SearchStopped, UsageError  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.rewards.preference.judged import HeldOut  # noqa: E402
from whet.rl.credit import check_divergence, text_divergence  # noqa: E402
from whet.rl.judged_texts import (  # noqa: E402
    JudgedText,
    align,
    check_judgements,
    direct_advantages,
    direct_agreement,
    judgements_of,
    mismatched_baseline,
    read_judged,
)
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample  # noqa: E402
from whet.types import Example  # noqa: E402

START = Prompt.parse("write {{input}}")


def row(**columns: Any) -> Example:
    """A row with columns beside its input."""
    (one,) = examples(1)
    return replace(one, row={**one.row, **columns})


def test_the_gradients_of_one_judgement_by_hand() -> None:
    """At the reference, beta 0.1, m = d = z = 0. DPO: beta sigmoid(0) = 0.05 for each side, times n = 2. IPO: (m - 5)^2 has the
    slope -10, times 2. KTO with weights 1: the slope of sigmoid(0.1 d) is 0.1 / 4 = 0.025, mean of 2 texts, times 2."""
    both = [True, False]
    for loss, slope, value in (("dpo", 0.1, math.log(2)), ("ipo", 20.0, 25.0), ("kto", 0.025, 0.5)):
        advantages, mean = direct_advantages(loss, [-3.0, -4.0], [-3.0, -4.0], both, beta=0.1)  # type: ignore[arg-type]
        assert advantages == pytest.approx([slope, -slope]) and mean == pytest.approx(value), loss
    off, _ = direct_advantages("dpo", [-3.0, -4.0], [-3.0, -14.0], both, beta=0.1)
    assert off[0] == pytest.approx(0.2 / (1 + math.exp(-1.0))), "m = -10: the pair is the wrong way round"


def test_kto_balances_thumbs_and_compares_with_its_baseline() -> None:
    """Three good, one bad: the weight of the bad one is 3. z = 10, beta 0.1: sigmoid'(-1) = 0.19661 for good texts, the same for
    the bad one."""
    good = [True, True, True, False]
    advantages, _ = direct_advantages("kto", [-1.0] * 4, [-1.0] * 4, good, beta=0.1, baseline=10.0)
    slope = 0.1 * 0.19661193
    assert advantages == pytest.approx([slope, slope, slope, -3 * slope], rel=1e-6)


def test_pmpo_balances_thumbs_and_holds_on_to_the_reference() -> None:
    """Three good, one bad, weight_good 0.25, beta 2. At the reference the divergence has no slope: 0.25 / 3 for good texts, -0.75
    for the bad one, times n = 4. It ends at exp(d) = 1 + 2 x 0.25 / 2 for good texts, and 1 - 2 x 0.75 / 2 for the bad one."""
    good = [True, True, True, False]
    at_start, _ = direct_advantages("pmpo", [-1.0] * 4, [-1.0] * 4, good, beta=2.0, weight_good=0.25)
    assert at_start == pytest.approx([1 / 3, 1 / 3, 1 / 3, -3.0])
    ends = [math.log(1.25)] * 3 + [math.log(0.25)]
    at_end, _ = direct_advantages("pmpo", ends, [0.0] * 4, good, beta=2.0, weight_good=0.25)
    assert at_end == pytest.approx([0.0] * 4, abs=1e-12)


@pytest.mark.parametrize("good", [True, False])
def test_pmpo_learns_from_one_kind_alone(good: bool) -> None:
    """Of one kind the divergence counts whole: beta 2, weight 0.5: it ends at exp(d) = 1 +- 0.5 / 2."""
    end = math.log(1.25 if good else 0.75)
    (left,), _ = direct_advantages("pmpo", [end - 3], [-3.0], [good], beta=2.0)
    assert left == pytest.approx(0.0, abs=1e-12)
    (first,), _ = direct_advantages("pmpo", [-3.0], [-3.0], [good], beta=2.0)
    assert first == pytest.approx(0.5 if good else -0.5)
    check_judgements([row(thumbs=[["a", good]])], "pmpo")


def test_rows_hold_pairs_and_thumbs() -> None:
    assert judgements_of(row(pairs=[["a", "b"]], thumbs=[["c", False]])) == ([("a", "b")], [("c", False)])
    assert judgements_of(row()) == ([], [])
    for columns in ({"pairs": "ab"}, {"pairs": [["a"]]}, {"pairs": [["a", 1]]}, {"thumbs": [["a", 1]]}):
        with pytest.raises(UsageError, match="must"):
            judgements_of(row(**columns))


def test_what_a_loss_cannot_learn_from_is_refused() -> None:
    thumbs = [row(thumbs=[["a", True], ["b", False]])]
    with pytest.raises(UsageError, match=r"config\.loss=kto"):
        check_judgements(thumbs, "dpo")
    check_judgements(thumbs, "kto")
    with pytest.raises(UsageError, match="good and bad"):
        check_judgements([row(thumbs=[["a", True]])], "kto")
    with pytest.raises(UsageError, match="learns from pairs"):
        check_judgements([row()], "ipo")
    with pytest.raises(UsageError, match="good or bad"):
        check_judgements([row()], "pmpo")


@pytest.fixture
def policy(tmp_path: Path) -> PolicyModel:
    torch.set_num_threads(1)
    return PolicyModel.open(f"hf/{save(tmp_path, sharpness=1.0)}", LoraSettings(rank=2), seed=1)


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto", "pmpo"])
def test_a_network_learns_to_prefer_what_people_prefer(policy: PolicyModel, loss: Any) -> None:
    rows = [
        row(input="a b", pairs=[["c a", "b b"]]),
        row(input="b c", pairs=[["c b", "a a"], ["c c", "a b"]]),
    ]
    judged = read_judged(policy, START, rows)
    units = judged.units(loss)
    assert len(units) == (6 if loss in ("kto", "pmpo") else 3) and direct_agreement(policy, judged) == 0.5
    beta = 2.0 if loss == "pmpo" else 0.1
    first = align(policy, units, loss, beta=beta, lr=0.02)["loss"]
    for _ in range(4):
        last = align(policy, units, loss, beta=beta, lr=0.02)["loss"]
    assert last < first and direct_agreement(policy, judged) == 1.0


def test_answers_that_are_too_long_are_left_out(policy: PolicyModel) -> None:
    judged = read_judged(
        policy, START, [row(pairs=[["a " * 200, "b"]], thumbs=[["c", True], ["a " * 200, True]])]
    )
    assert (len(judged.pairs), len(judged.thumbs), judged.left_out) == (0, 1, 2)


def test_the_baseline_of_kto_is_that_of_answers_to_other_questions() -> None:
    """Answers move behind the next question; log pi - log reference there is 2 and 4: z = 3. Equal questions give none."""

    class KnownRatios:
        class body:
            class weights:
                limit = 100

        def logprobs(self, samples: Any) -> Any:
            return [[2.0 * s.tokens[0]] for s in samples]

        def reference_logprobs(self, samples: Any) -> Any:
            assert all(s.prompt != s.tokens for s in samples), (
                "each stands behind the question of another one"
            )
            return [[0.0] for _ in samples]

    texts = [
        JudgedText(q, Sample("", (q,), (token,), (0.0,), (True,), True), True)
        for q, token in ((1, 1), (2, 2))
    ]
    known: Any = KnownRatios()
    assert mismatched_baseline(known, texts) == 3.0
    assert mismatched_baseline(known, [replace(one, question=1) for one in texts]) == 0.0


def test_the_divergence_of_texts_by_hand() -> None:
    """Tokens with log pi - log reference of 0.5 and -0.5, and one of another party: k3 = e^-0.5 + 0.5 - 1, e^0.5 - 0.5 - 1."""

    class KnownReference:
        def reference_logprobs(self, samples: Any) -> Any:
            return [[-1.5, -0.5, -9.0], [-1.0, -1.0, -1.0]]

    same = Sample("", (1,), (1, 2, 3), (-1.0,) * 3, (True, True, False), True)
    known: Any = KnownReference()
    by_hand = (math.exp(-0.5) - 0.5 + math.exp(0.5) - 1.5) / 2
    assert text_divergence(known, [same, same]) == pytest.approx(by_hand)
    check_divergence(3.0, 0.0)
    check_divergence(3.0, 3.0)
    with pytest.raises(SearchStopped, match=r"3.1 nats a text .* limit is 3"):
        check_divergence(3.1, 3.0)


def test_the_divergence_that_held_out_agreement_supports_by_hand() -> None:
    """0.7 [0.6, 0.8]: 2 log(0.2 / 0.1) = 1.386 nats; at that divergence the half width is 0.1 x exp(0.693) = 0.2."""
    one = HeldOut(0.7, 0.6, 0.8, 0.2, 0.25, 0.05, 100, 0, 50)
    assert one.supported_kl == pytest.approx(1.3862944)
    assert replace(one, low=0.49).supported_kl == 0.0
    assert replace(one, low=0.7).supported_kl == math.inf
