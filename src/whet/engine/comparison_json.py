"""The types of what is said of several runs: comparisons, transfers, lists of runs, and advice."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from whet.engine.plan_json import CountRangeJSON, DollarRangeJSON, PlanJSON, TrainingCostJSON
from whet.engine.result_json import GainJSON, MeanJSON, PairJSON, RunJSON, UsageJSON


class ObjectiveSummaryJSON(TypedDict):
    """Means over the runs of a method of one objective, and how often the gate's verdict was which."""

    goal: str
    baseline: float
    best: float
    low: float
    high: float
    verdicts: dict[str, int]


class ReasonsJSON(TypedDict, total=False):
    """Why figures are missing, each reason once."""

    reasons: list[str]


class ReadabilitySummaryJSON(ReasonsJSON):
    """The median perplexity of the texts of a method, over `runs` of them."""

    perplexity: float | None
    runs: int


class TriedJSON(TypedDict, total=False):
    """The figures of a prompt with another model; `answered` of `of` rows enter the means."""

    answered: int
    of: int
    test_low: float
    test_high: float
    gain_difference: float
    gain_low: float
    gain_high: float
    calls: float
    cost_usd: float | None
    price_unknown: list[str]
    not_priced: list[str]


class TransferSummaryJSON(ReasonsJSON, TriedJSON):
    """The figures of a method's prompts with another model, as means over `runs` prompts."""

    model: str
    runs: int
    unanswered: int
    test_mean: float | None


class MethodSummaryJSON(TypedDict):
    """One method over its runs. `cost_usd` is None where the dollars of a run are not known, or its models have no price
    (`not_priced`). `answered` of `of` sealed rows of the tested runs enter the means."""

    method: str
    runs: int
    tested: int
    answered: NotRequired[int]
    of: NotRequired[int]
    unanswered: int
    test_mean: float | None
    test_low: float | None
    test_high: float | None
    test_min: float | None
    test_max: float | None
    baseline_test: float | None
    promoted: int
    calls: float
    cost_usd: float | None
    price_unknown: list[str]
    not_priced: NotRequired[list[str]]
    objectives: NotRequired[dict[str, ObjectiveSummaryJSON]]
    readability: ReadabilitySummaryJSON
    transfer: NotRequired[TransferSummaryJSON]


class WrittenJSON(TypedDict):
    """The prompt as written with the other model of a comparison."""

    model: str
    test: MeanJSON | None
    usage: UsageJSON | None


class WrittenOfComparisonJSON(TypedDict, total=False):
    """The part of a comparison about the prompt as written; empty without another model."""

    transfer: WrittenJSON


class ShardJSON(TypedDict):
    """The place of a shard in its comparison: part `number` of `of`, counted from 1, of the runs of all methods with `seeds`
    seeds from `seed` on; `fingerprint` is that of the task."""

    number: int
    of: int
    methods: list[str]
    seeds: int
    seed: int
    fingerprint: str
    limits: dict[str, float | None]
    alpha: float
    alpha_policy: NotRequired[str]


class OptionalComparisonJSON(WrittenOfComparisonJSON, total=False):
    """The optional parts of a comparison."""

    status: str
    warnings: list[str]
    pairs: list[PairJSON]
    beside_start: list[PairJSON]
    plan: PlanJSON | None
    folder: str
    shard: ShardJSON
    missing: list[str]


class ComparisonJSON(OptionalComparisonJSON):
    """The result of a comparison."""

    task: str
    runs: list[RunJSON]
    methods: list[MethodSummaryJSON]


class RunRowJSON(TypedDict):
    """A run folder in one row: its kind, its state, its result; the mean is over `n` of `of` rows."""

    run: str
    task: str | None
    method: str | None
    seed: int | None
    status: str
    split: str
    mean: float | None
    n: int | None
    answered: NotRequired[int | None]
    of: NotRequired[int | None]
    test: float | None
    promoted: bool | None
    calls: int
    cost_usd: float | None
    price_unknown: list[str]
    not_priced: NotRequired[list[str]]


class TeamRunJSON(RunRowJSON):
    """A run of a team in one row: on which `machine` its folder lies, and when it `began` and `changed`, in
    seconds since 1970."""

    machine: str
    began: float
    changed: float


class HomeJSON(TypedDict):
    """The means of both prompts with the model of the run; absent for training rows."""

    model: str
    baseline: NotRequired[MeanJSON | None]
    best: NotRequired[MeanJSON | None]


class AdvisedTestJSON(TypedDict):
    """The gain that a task's test rows can show."""

    rows: int
    opening: int
    alpha: float
    needed: int
    possible: bool
    gain: dict[str, float | None]
    power: str
    minimum_effect: float
    rows_for_worth: int | None
    worth: float


class AdvisedRewardJSON(TypedDict):
    """Range, labels and critiques of a reward, and the problem that keeps it from guiding a search."""

    name: str
    low: float
    high: float
    labels: list[str]
    label_like: list[str]
    critiques: str
    problem: str | None


class AdvisedStartJSON(MeanJSON):
    """The mean of the start prompt on some rows of a split."""

    split: str
    simulated: bool


class AdvisedPlanJSON(PlanJSON):
    """The plan of a run with nothing else said, and which method it is."""

    method: str


class GainIntervalJSON(TypedDict):
    """The possible gain of a prompt, in units of the reward, with the ends of its interval. `basis`: the whole range of the
    reward (`range`), what the start prompt leaves of it (`start`), or what the best prompt of a pilot gains on fresh rows
    (`pilot`)."""

    estimate: float | None
    low: float
    high: float
    basis: Literal["range", "start", "pilot"]


class MonthsJSON(TypedDict):
    """Months until a run has paid back, the ends belong to those of the gain; None: never, or not known without a price."""

    estimate: float | None
    low: float | None
    high: float | None


class GainMonthsJSON(TypedDict):
    """A gain, in units of the reward, and the months after which it has paid a run back."""

    gain: float
    months: float | None


class PayBackJSON(TypedDict):
    """The return of a run: dollars of one more right answer and of a run, the largest possible gain (`most`), the smallest gain
    that the test shows, and the smallest gain that pays back within twelve months (`least_gain`)."""

    answers_per_month: float
    gain_value: float
    cost_usd: float | None
    gain: GainIntervalJSON
    months: MonthsJSON
    most: GainMonthsJSON
    least_shown: GainMonthsJSON | None
    least_gain: float | None
    summary: str


class PilotPromptJSON(MeanJSON):
    """A prompt of a pilot and its mean reward."""

    name: str


class CallCostJSON(TypedDict):
    """US dollars of a call on average, with its 95% interval."""

    mean: float
    low: float
    high: float


class PilotJSON(TypedDict, total=False):
    """A few prompts on some training rows (or their plan alone): standard deviations of the prompts' true means (`spread`) and of
    answers to one prompt (`noise`), the prompt that is best on one part of the rows, and what it gains on the others.
    `call_cost_usd`: what a call of each role cost."""

    status: str
    simulated: bool
    prompts: list[PilotPromptJSON]
    spread: float
    noise: float
    best: str
    best_mean: float
    gain: GainIntervalJSON
    picked_on: int
    measured_on: int
    call_cost_usd: dict[str, CallCostJSON]
    usage: UsageJSON
    run: str
    plan: PlanJSON
    summary: str


DecisionName = Literal["mend", "write", "learn", "search", "train", "nothing"]


class DecisionJSON(TypedDict):
    """The recommendation and its reasons: mend data or reward, write by hand, learn from critiques, search, train weights, or
    nothing."""

    name: DecisionName
    action: str
    reasons: list[str]


class FamilyCostJSON(TypedDict):
    """The cost of a run of a family, by the plan of its first fitting method: expected, and at most. None: nothing bounds it,
    or a price is not known. `cost_interval`: of the expected dollars, where a pilot measured what a call costs. `training`:
    memory and hours of a policy; `training_summary` says them, and is empty where nothing is trained."""

    family: DecisionName
    method: str
    calls: CountRangeJSON
    tokens: CountRangeJSON
    cost_usd: DollarRangeJSON
    cost_interval: CallCostJSON | None
    training: TrainingCostJSON | None
    training_summary: str
    summary: str


class AdviceJSON(TypedDict):
    """The features of a task, and what they mean for a search."""

    task: str
    status: str
    pays: bool | None
    verdict: str
    decision: DecisionJSON
    pay_back: PayBackJSON | None
    pilot: PilotJSON | None
    families: list[FamilyCostJSON]
    rows: dict[str, int]
    test: AdvisedTestJSON
    reward: AdvisedRewardJSON
    model: str | None
    model_note: str | None
    start: AdvisedStartJSON | None
    plan: AdvisedPlanJSON | None
    plan_missing: str | None
    methods: list[dict[str, str]]
    unfit: list[dict[str, str]]
    first: list[str]
    warnings: list[str]


class TransferJSON(TypedDict):
    """The result of a transfer."""

    task: str
    method: str
    run: str
    split: str
    home: HomeJSON
    models: list[ModelTransferJSON]
    usage: UsageJSON
    warnings: list[str]
    status: NotRequired[str]
    plans: NotRequired[list[PlanJSON]]


class EffectJSON(TypedDict):
    """An effect in a matrix of transfers, with the ends of its interval; None where no row was answered in all its cells."""

    difference: float | None
    low: float
    high: float
    p_adjusted: float


class MatrixCellJSON(TypedDict):
    """The prompt that a run found for `origin`, used on `model`, and what it gains there over the start prompt."""

    origin: str
    model: str
    run: str
    score: MeanJSON
    start: MeanJSON
    gain: GainJSON


class MatrixVarianceJSON(TypedDict):
    """Parts of the variance of the cells, and which share of all the home advantage has."""

    model: float
    origin: float
    home: float
    rest: float
    home_low: float
    home_high: float
    share_of_home: float | None


class MatrixFiguresJSON(TypedDict, total=False):
    """The figures of a matrix of transfers, once all rows are answered."""

    simulated: bool
    verdict: str
    cells: list[MatrixCellJSON]
    home: EffectJSON
    effects: dict[str, dict[str, EffectJSON]]
    variance: MatrixVarianceJSON | None


class MatrixJSON(MatrixFiguresJSON):
    """The result of a matrix of transfers; `folder` holds its page."""

    task: str
    method: str
    status: str
    split: str
    rows: int
    folder: str
    runs: dict[str, str]
    plans: list[PlanJSON]
    usage: UsageJSON
    warnings: list[str]


class AgainstHomeJSON(TypedDict, total=False):
    """The gain of both prompts with the run's own model over the start prompt with this model. It is measured on the sealed
    rows only."""

    home: dict[str, GainJSON]


class ModelTransferJSON(AgainstHomeJSON):
    """Start prompt and best prompt of a run with one model."""

    model: str
    simulated: bool
    baseline: MeanJSON
    best: MeanJSON
    gain: GainJSON
    usage: UsageJSON
