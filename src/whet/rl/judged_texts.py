"""Answers that people judged, in the rows of a task, and direct alignment of a policy with them: DPO, IPO, KTO and PMPO.

No reward model and no sample of the policy: the losses read the log-probabilities of the judged answers themselves. A row has
`pairs`, a list of [preferred, other], and `thumbs`, a list of [answer, true or false].

    DPO   Rafailov et al. 2023, arXiv:2305.18290, eq. 7      of pairs
    IPO   Azar et al. 2023, arXiv:2310.12036, eq. 17         of pairs
    KTO   Ethayarajh et al. 2024, arXiv:2402.01306, eq. 8    of thumbs; a pair is a thumb up and a thumb down
    PMPO  Abdolmaleki et al. 2024, arXiv:2410.04166, eq. 10  of the same, or of thumbs of one kind only

The equations stand in `whet.rl.losses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl import losses
from whet.rl.policy_model import PolicyModel, Sample, Update
from whet.types import Example
from whet_client.storable import show_value

DirectLoss = Literal["dpo", "ipo", "kto", "pmpo"]
OF_PAIRS = ("dpo", "ipo")
PAIRS, THUMBS = "pairs", "thumbs"


@dataclass(frozen=True)
class JudgedText:
    """An answer to `question` (the number of a row), and whether people called it good."""

    question: int
    sample: Sample
    good: bool


@dataclass(frozen=True)
class JudgedTexts:
    """People's judgements as samples of a policy: `pairs` (preferred, other), and single `thumbs`. `left_out`: judgements of
    answers that are too long for the policy."""

    pairs: Sequence[tuple[JudgedText, JudgedText]]
    thumbs: Sequence[JudgedText]
    left_out: int = 0

    def units(self, loss: DirectLoss) -> list[tuple[JudgedText, ...]]:
        """The units of a loss: pairs, or single answers, into which `kto` and `pmpo` split pairs."""
        if loss in OF_PAIRS:
            return [*self.pairs]
        return [(one,) for one in (*(text for pair in self.pairs for text in pair), *self.thumbs)]


def judgements_of(example: Example) -> tuple[list[tuple[str, str]], list[tuple[str, bool]]]:
    """The pairs and the thumbs of a row. Raises UsageError, naming the row, for other values."""
    pairs, thumbs = (_read_list(example, column) for column in (PAIRS, THUMBS))
    for pair in pairs:
        if not all(isinstance(text, str) for text in pair):
            raise UsageError(
                f"{example.place}: {PAIRS} must hold [preferred, other], two texts; this is {show_value(pair)}."
            )
    for thumb in thumbs:
        if not (isinstance(thumb[0], str) and isinstance(thumb[1], bool)):
            raise UsageError(
                f"{example.place}: {THUMBS} must hold [answer, true or false]; this is {show_value(thumb)}."
            )
    return [(a, b) for a, b in pairs], [(text, good) for text, good in thumbs]


def _read_list(example: Example, column: str) -> list[Any]:
    value = example.row.get(column)
    values = [] if value is None else value
    if not isinstance(values, list) or not all(
        isinstance(value, list) and len(value) == 2 for value in values
    ):
        raise UsageError(
            f"{example.place}: {column} must be a list of lists with two values; this is {show_value(value)}."
        )
    return values


def check_judgements(rows: Sequence[Example], loss: DirectLoss) -> None:
    """Raise UsageError where the rows hold nothing that a loss can learn from."""
    read = [judgements_of(row) for row in rows]
    pairs, thumbs = sum(len(one) for one, _ in read), {good for _, own in read for _, good in own}
    if loss in OF_PAIRS and not pairs:
        hint = " They have thumbs: choose config.loss=kto." if thumbs else ""
        raise UsageError(
            f"loss={loss} learns from pairs of answers, and no training row has any in the column {PAIRS}.{hint}"
        )
    if loss == "pmpo" and not pairs and not thumbs:
        raise UsageError(
            f"loss=pmpo learns from good or bad answers, and no training row has any in the columns {THUMBS} and {PAIRS}."
        )
    if loss == "kto" and not pairs and len(thumbs) < 2:
        raise UsageError(
            f"loss=kto learns from good and bad answers, and the training rows do not have both in the columns {THUMBS} and "
            f"{PAIRS}."
        )


def read_judged(policy: PolicyModel, start: Prompt, rows: Sequence[Example]) -> JudgedTexts:
    """The judgements of rows as samples, each an answer to the start prompt with the row's input."""
    pairs, thumbs, left_out = [], [], 0
    for number, row in enumerate(rows):
        conversation = start.render(row)

        def text(
            answer: str, good: bool, number: int = number, question: Any = conversation
        ) -> JudgedText | None:
            sample = policy.demonstrate(question, answer)
            fits = len(sample.prompt) + len(sample.tokens) <= policy.body.weights.limit
            return JudgedText(number, sample, good) if fits else None

        own_pairs, own_thumbs = judgements_of(row)
        for better, worse in own_pairs:
            one, other = text(better, True), text(worse, False)
            if one is None or other is None:
                left_out += 1
            else:
                pairs.append((one, other))
        for answer, good in own_thumbs:
            thumb = text(answer, good)
            if thumb is None:
                left_out += 1
            else:
                thumbs.append(thumb)
    return JudgedTexts(pairs, thumbs, left_out)


def direct_advantages(
    loss: DirectLoss,
    logprobs: Sequence[float],
    reference: Sequence[float],
    good: Sequence[bool],
    *,
    beta: float,
    baseline: float = 0.0,
    weight_good: float = 0.5,
) -> tuple[list[float], float]:
    """For each text the advantage whose policy gradient, a mean over texts, is the gradient of a loss; and the loss, a mean.

        A_i = -n dL / d log pi_i        n: number of texts, L: mean loss of the pairs, or of the texts

    The texts of pairs follow each other, the preferred one first. `baseline` is the z of KTO, whose weights balance the two kinds
    (`losses.kto_weights`). `weight_good` is the alpha of PMPO, whose divergence counts good and bad texts alike, however many
    there are of each. One pair at the reference under DPO with beta 0.1: A = 2 x 0.1 x sigmoid(0) = 0.1 and -0.1.
    """
    now = torch.tensor([*logprobs], dtype=torch.float64, requires_grad=True)
    base = torch.tensor([*reference], dtype=torch.float64)
    mean = _losses(loss, now, base, torch.tensor([*good]), beta, baseline, weight_good).mean()
    (gradient,) = torch.autograd.grad(mean, now)
    return (-gradient * len(now)).tolist(), float(mean.detach())


def _losses(
    loss: DirectLoss,
    now: Tensor,
    base: Tensor,
    good: Tensor,
    beta: float,
    baseline: float,
    weight_good: float,
) -> Tensor:
    if loss == "pmpo":
        divergence = losses.reference_divergence(now, base)
        of_kinds = [divergence[kind].mean() for kind in (good, ~good) if bool(kind.any())]
        return losses.pmpo(now, good, torch.stack(of_kinds), weight_good, beta)
    if loss == "kto":
        ups = int(good.sum())
        return losses.kto(now, base, good, baseline, beta, *losses.kto_weights(ups, len(good) - ups))
    of_pairs = losses.dpo if loss == "dpo" else losses.ipo
    return of_pairs(now[::2], now[1::2], base[::2], base[1::2], beta)


def align(
    policy: PolicyModel,
    units: Sequence[tuple[JudgedText, ...]],
    loss: DirectLoss,
    *,
    beta: float,
    lr: float,
    weight_good: float = 0.5,
) -> dict[str, float]:
    """One step of Adam down the mean loss of a batch of pairs or texts (`JudgedTexts.units`); its figures, `loss` among them."""
    texts = [text for unit in units for text in unit]
    samples = [text.sample for text in texts]
    logprobs, reference = _whole(policy.logprobs(samples)), _whole(policy.reference_logprobs(samples))
    advantages, value = direct_advantages(
        loss,
        logprobs,
        reference,
        [text.good for text in texts],
        beta=beta,
        baseline=mismatched_baseline(policy, texts) if loss == "kto" else 0.0,
        weight_good=weight_good,
    )
    settings = Update(lr, loss="reinforce", aggregation="constant", length=1)
    return {**policy.update(samples, advantages, settings), "loss": value}


def mismatched_baseline(policy: PolicyModel, texts: Sequence[JudgedText]) -> float:
    """The z of KTO (`losses.kto_baseline`): of the batch's answers, each behind the question of the next text that has another
    one. 0 where fewer than two are."""
    moved = zip(texts, (*texts[1:], *texts[:1]), strict=True)
    samples = [
        Sample(
            one.sample.text, other.sample.prompt, one.sample.tokens, one.sample.logprobs, one.sample.own, True
        )
        for one, other in moved
        if one.question != other.question
        and len(other.sample.prompt) + len(one.sample.tokens) <= policy.body.weights.limit
    ]
    if len(samples) < 2:
        return 0.0
    rows = policy.logprobs(samples), policy.reference_logprobs(samples)
    return float(losses.kto_baseline(*(torch.tensor(_whole(row)) for row in rows)))


def direct_agreement(policy: PolicyModel, judged: JudgedTexts) -> float | None:
    """The share of judgements that a policy agrees with by its gain d = log pi - log reference: pairs whose preferred text gained
    more; without pairs the share of (good, bad) texts in this order. Ties count one half; None without judgements."""
    ups, downs = ([one for one in judged.thumbs if one.good is good] for good in (True, False))
    both = list(judged.pairs) or [(up, down) for up in ups for down in downs]
    if not both:
        return None
    texts = list({id(text): text for pair in both for text in pair}.values())
    samples = [text.sample for text in texts]
    now, base = _whole(policy.logprobs(samples)), _whole(policy.reference_logprobs(samples))
    gains = {id(text): a - b for text, a, b in zip(texts, now, base, strict=True)}
    differences = [gains[id(one)] - gains[id(other)] for one, other in both]
    return sum(0.5 if d == 0 else float(d > 0) for d in differences) / len(differences)


def _whole(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(row) for row in rows]
