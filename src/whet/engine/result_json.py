"""The types of result.json: what each function that makes a part of them returns.

docs/report.md says what each key means. A key that is `NotRequired` is absent where there is nothing to say, or in results of
older versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from whet.engine.plan_json import PlanJSON
from whet.errors import show_reward
from whet.types import JSON


class MeanJSON(TypedDict):
    """A mean of rewards with the ends of its 95% interval; None where no row was answered. `answered` of the `of` rows have an
    answer; `compared`: over how many of these the mean is, where the other prompt of a comparison has no answer to some.
    `mean_at_worst`, `low_at_worst`: that mean and its lower end if every row without an answer had the lowest reward;
    `..._at_best`: the highest."""

    mean: float | None
    low: float | None
    high: float | None
    n: int
    method: NotRequired[str | None]
    answered: NotRequired[int]
    of: NotRequired[int]
    compared: NotRequired[int]
    groups: NotRequired[int]
    cases: NotRequired[dict[str, float]]
    mean_at_worst: NotRequired[float]
    mean_at_best: NotRequired[float]
    low_at_worst: NotRequired[float]
    low_at_best: NotRequired[float]


class OptionalUsageJSON(TypedDict, total=False):
    """The optional parts of a usage."""

    cached: dict[str, int]
    cached_oldest: str
    refused: dict[str, int]
    estimated: dict[str, int]
    provider_tools: dict[str, int]
    gateway_cached: dict[str, int]
    cached_input_tokens: int
    reasoning_tokens: int
    price_unknown: list[str]
    not_priced: list[str]
    training_seconds: float
    parts: dict[str, UsageJSON]


class UsageJSON(OptionalUsageJSON):
    """Calls by role, tokens, US dollars (None: a price is not known) and seconds."""

    calls: dict[str, int]
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float


class PromptJSON(TypedDict):
    """A prompt: its source, and its messages where it is not one text."""

    prompt: str
    messages: NotRequired[list[list[str]]]


class OptionalSideJSON(TypedDict, total=False):
    """The origin of a prompt, and the digest of the weights that it needs."""

    operator: str
    system: str


class SideJSON(PromptJSON, OptionalSideJSON):
    """Baseline or best: the prompt, and what it earned; None where it was not measured."""

    id: str
    validation: MeanJSON | None
    test: MeanJSON | None


class ImprovementJSON(TypedDict):
    """The verdict of a test (`whet.stats.Improvement`). Only the first five keys are known where nothing was tested.

    With added rows `test` names their test, and `sealed` holds the verdict before them.
    """

    difference: float | None
    low: float | None
    high: float | None
    promoted: bool
    reason: str
    e_value: NotRequired[float]
    n: NotRequired[int]
    wins: NotRequired[int]
    losses: NotRequired[int]
    ties: NotRequired[int]
    p_value: NotRequired[float]
    clusters: NotRequired[int]
    alpha: NotRequired[float]
    method: NotRequired[str]
    more_examples: NotRequired[int | None]
    missing: NotRequired[int]
    withheld: NotRequired[bool]
    opening: NotRequired[int]
    test: NotRequired[str]
    rows: NotRequired[int]
    sealed: NotRequired[ImprovementJSON]


class SecondOpinionJSON(ImprovementJSON):
    """The verdict of another reward on the same answers."""

    reward: str
    judge: str | None
    baseline: MeanJSON
    best: MeanJSON


class LabelJSON(TypedDict):
    """The results on the rows of one label."""

    n: int
    right: int
    accuracy: float | None
    answers: int
    precision: float | None


class ConfusionJSON(TypedDict):
    """The number `n` of rows that were answered with `answer` where `target` was right."""

    target: str
    answer: str
    n: int


class LabelFiguresJSON(TypedDict):
    """Accuracy by label and the confusion matrix of a prompt."""

    n: int
    accuracy: float
    each: dict[str, LabelJSON]
    columns: list[str]
    matrix: list[list[int]] | None
    confusions: list[ConfusionJSON]


class LabelsJSON(TypedDict, total=False):
    """The figures by label of baseline and best; nothing for a task without labels."""

    labels: dict[str, LabelFiguresJSON]


class IdentityJSON(TypedDict):
    """The run and the models that answered."""

    task: str
    method: str
    seed: int
    models: dict[str, str]
    simulated: NotRequired[bool]


class ObjectiveJSON(TypedDict):
    """The verdict on one objective (`whet.stats.joint.ObjectiveVerdict`)."""

    goal: str
    baseline: float
    best: float
    difference: float
    low: float
    high: float
    bound: str
    p_better: float
    p_bound: float
    verdict: str


class FrontMeanJSON(TypedDict):
    """The mean of an objective on validation, and its lead over the baseline."""

    mean: float
    goal: NotRequired[Literal["max", "min"]]
    difference: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]
    holds: NotRequired[bool]


class DominatedJSON(TypedDict):
    """A validated prompt beside the front."""

    id: str
    validation: dict[str, FrontMeanJSON]


class FrontPointJSON(DominatedJSON):
    """A prompt on the front, and what the gate says of it."""

    prompt: str
    messages: list[list[str]]
    operator: str
    system: NotRequired[str]
    gate: str
    holds: bool


class ObjectiveFiguresJSON(TypedDict, total=False):
    """The part of a result about objectives; empty without objectives."""

    objectives: dict[str, ObjectiveJSON]
    front: list[FrontPointJSON]
    dominated: list[DominatedJSON]


class HistoryJSON(TypedDict):
    """The validation mean of a new best prompt over `n` rows, and the calls that had been made by then."""

    calls: int
    validation: float
    n: NotRequired[int]


class AblationOfRunJSON(TypedDict, total=False):
    """The part of a result about an ablation; empty without an ablation."""

    ablation: AblationJSON


class SealedRowJSON(TypedDict):
    """One row of the sealed test under one prompt."""

    id: str
    output: str
    reward: float
    parts: dict[str, float]
    critique: str | None
    error: str | None
    steps: NotRequired[list[dict[str, JSON]]]
    thought: NotRequired[str]


class SealedRowsJSON(TypedDict):
    """The event `final`: the rows of the sealed test under both prompts, and the rows themselves."""

    baseline: list[SealedRowJSON]
    best: list[SealedRowJSON]
    examples: NotRequired[list[dict[str, str | None]]]
    low: float
    high: float
    clusters: NotRequired[list[int]]
    weights: NotRequired[dict[str, float]]
    withheld: NotRequired[bool]


class EarnedJSON(TypedDict):
    """The mean on validation without a region's change, and what the change earned."""

    validation: float
    gain: float


class AblationJSON(TypedDict):
    """The mean of the best prompt over `n` validation rows, and without each changed region by name."""

    whole: float
    n: int
    without: dict[str, EarnedJSON]


class ReadabilityJSON(TypedDict):
    """The perplexity of the deployed text, or the reason why there is none."""

    perplexity: float | None
    reader: NotRequired[str]
    texts: NotRequired[int]
    reason: NotRequired[str]


class GainJSON(TypedDict):
    """A paired difference with the ends of its 95% interval over `n` rows."""

    difference: float
    low: float
    high: float
    n: NotRequired[int]


class RunTransferJSON(TypedDict):
    """The prompt of a run with another model, or the reason why it was not tried."""

    model: str
    test: MeanJSON | None
    gain: NotRequired[GainJSON]
    usage: NotRequired[CallsJSON]
    failed: NotRequired[int]
    reason: NotRequired[str]


class CallsJSON(TypedDict):
    """Calls by role and US dollars."""

    calls: dict[str, int]
    cost_usd: float | None
    price_unknown: NotRequired[list[str]]
    not_priced: NotRequired[list[str]]


class TrialAnswersJSON(TypedDict):
    """The reward of each row, and the places of the rows without an answer."""

    rewards: list[float]
    unanswered: list[int]


class TrialJSON(TrialAnswersJSON):
    """One prompt with another model on the rows of a split: what it earned on each row."""

    task: str
    method: str
    status: str
    prompt: str
    id: str
    split: str
    models: dict[str, str]
    simulated: bool
    score: MeanJSON
    failed: int
    error: NotRequired[str]
    usage: UsageJSON


class DifferenceJSON(TypedDict):
    """The difference of two methods on the same rows, with its interval and its test."""

    difference: float | None
    low: float
    high: float
    p: float
    n: int
    of: int
    clusters: int
    alpha: float
    method: str


class PairJSON(DifferenceJSON):
    """Two methods, or a method and the start prompt, and `p` adjusted for all pairs."""

    a: str
    b: str
    p_adjusted: float


class ControlJSON(TypedDict):
    """The control run of a run."""

    method: str
    best: SideJSON
    improvement: ImprovementJSON
    usage: UsageJSON
    run: str


class MoreJSON(TypedDict):
    """Rows that were added to a finished run, and what both prompts earned on them."""

    rows: int
    baseline: MeanJSON
    best: MeanJSON
    usage: UsageJSON


class OpeningsJSON(TypedDict, total=False):
    """The number of this opening of the test rows, and the number of these rows that an earlier run had learned from; also the
    rule that shares out their alpha, unless it is `strict`."""

    test_openings: int
    test_rows_seen: int
    test_rows_seen_by: str
    alpha_policy: str


class CasesJSON(TypedDict, total=False):
    """The sealed test of each case of a task made of several."""

    aggregate: str
    cases: dict[str, dict[str, Any]]


class OptionalRunJSON(LabelsJSON, ObjectiveFiguresJSON, OpeningsJSON, CasesJSON, total=False):
    """The optional parts of a result. `run`, `recorded` and `ended` are not in the file."""

    second_opinion: SecondOpinionJSON
    plan: PlanJSON
    control: ControlJSON
    pairs: list[PairJSON]
    more: MoreJSON
    ablation: AblationJSON
    run: str
    recorded: bool
    ended: str
    readability: ReadabilityJSON
    transfer: RunTransferJSON


class RunJSON(IdentityJSON, OptionalRunJSON):
    """The result of a run. Of a plan only `plan` is known beside the identity, `status` and `warnings`."""

    status: str
    ended_by: NotRequired[str]
    tested: NotRequired[bool]
    baseline: NotRequired[SideJSON]
    best: NotRequired[SideJSON]
    improvement: NotRequired[ImprovementJSON]
    usage: NotRequired[UsageJSON]
    history: NotRequired[list[HistoryJSON]]
    warnings: list[str]


class AgreementJSON(TypedDict):
    """The agreement of a judge with people over `n` answers: `kind` is spearman or kappa; the ends are those of the 95%
    interval."""

    reward: str
    kind: str
    value: float
    low: float
    high: float
    n: int


class OptionalEvaluationJSON(TypedDict, total=False):
    """The optional entries of an evaluation. `run`, `rows` (the file of its rows), `recorded` and `ended` are not in the
    file."""

    rows: str
    labels: LabelFiguresJSON
    agreement: list[AgreementJSON]
    plan: PlanJSON
    seed: int
    run: str
    recorded: bool
    ended: str


class EvaluationJSON(OptionalEvaluationJSON):
    """The result of an evaluation of one prompt on one split; of a plan only `plan` is known beside what was asked."""

    prompt: NotRequired[str]
    messages: NotRequired[list[list[str]]]

    task: str
    method: str
    status: str
    id: NotRequired[str]
    split: str
    models: dict[str, str]
    simulated: NotRequired[bool]
    score: NotRequired[MeanJSON]
    parts: NotRequired[dict[str, float]]
    failed: NotRequired[int]
    usage: NotRequired[UsageJSON]
    warnings: list[str]


def answered_rows(answered: int | None, of: int | None, compared: int | None) -> str:
    """Say how many rows enter a mean, if these are not all; else ''.

    >>> answered_rows(45, 45, None), answered_rows(39, 45, None), answered_rows(45, 45, 39)
    ('', '39 of 45 answered', '39 of 45 answered by both')
    """
    if compared is not None:
        return f"{compared} of {of} answered by both"
    return "" if of is None or answered == of else f"{answered} of {of} answered"


def show_gaps(score: Mapping[str, Any]) -> str:
    """The note after a mean over fewer rows than there are.

    >>> show_gaps({"answered": 39, "of": 45}), show_gaps({"n": 45})
    (' (39 of 45 answered)', '')
    """
    gaps = answered_rows(score.get("answered"), score.get("of"), score.get("compared"))
    return gaps and f" ({gaps})"


def describe_agreement(one: AgreementJSON) -> str:
    """One sentence on how far a judge agrees with people."""
    low, high = show_reward(one["low"], 2), show_reward(one["high"], 2)
    return (
        f"the reward {one['reward']} agrees with the human scores: {one['kind']} {show_reward(one['value'], 2)} "
        f"(95% interval {low} to {high}) over {one['n']} answers"
    )
