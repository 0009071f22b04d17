"""The types of the plan of a run: what is said before anything is paid."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

End = Literal["expected", "most"]
ENDS: tuple[End, End] = ("expected", "most")


class CountRangeJSON(TypedDict):
    """A number that is expected, and the most; None where nothing bounds it."""

    expected: int | None
    most: int | None


class DollarRangeJSON(TypedDict):
    """US dollars that are expected, and the most; None where nothing bounds them, or where a price is not known."""

    expected: float | None
    most: float | None


class PromotionJSON(TypedDict):
    """Whether the sealed rows can promote anything, and which gain the opening that a run would be can show."""

    possible: bool
    rows: int
    needed: int
    opening: NotRequired[int]
    alpha: NotRequired[float]
    gain: NotRequired[float | None]
    gain_some_worse: NotRequired[float | None]
    hardly: NotRequired[bool]
    scale: NotRequired[float]
    rows_for_scale: NotRequired[int | None]
    margins: NotRequired[dict[str, int]]


class SearchSizeJSON(TypedDict):
    """Steps of a search, prompts of a step, rows of a prompt, and task calls of them all."""

    steps: int
    prompts: int
    rows: int
    calls: int


class FirstCallJSON(TypedDict):
    """A limit that leaves less than a first call of the optimizer takes."""

    limit: str
    left: float
    takes: float
    bound: int


class RowsUsedJSON(TypedDict):
    """The number of validation rows that a run uses, the number that there are, and the number that it should have at least."""

    rows: int
    of: int
    least: NotRequired[int]


class OutputLimitJSON(TypedDict):
    """Bytes of the longest target, and a limit on the tokens of an answer that would do."""

    longest_target: int
    enough: int


class LookJSON(TypedDict):
    """The opening that an evaluation of the test rows is, and what it leaves to a later run."""

    opening: int
    alpha_without: float
    alpha_after: float


class PlannedControlJSON(TypedDict):
    """The method of the control, and what is kept for it of the limits."""

    method: str
    kept: dict[str, float | None]


class AddedJSON(TypedDict):
    """Rows that would be added, and the answers that are asked for."""

    rows: int
    answers: int


class PlannedBatchesJSON(TypedDict):
    """Calls that are expected to go out in batches, and the share of their price that they cost."""

    calls: int
    share: float


class PlannedStudyJSON(TypedDict):
    """The prompts of a study, and the rows of a split that are answered under each."""

    prompts: int
    rows: int
    split: str


class MemoryJSON(TypedDict):
    """Bytes that a training takes at most in one process, by a formula: the model, what learns (gradients and Adam), the largest
    pass (activations and predictions), what vLLM reserves where it writes the texts, and all of it."""

    weights: int
    learning: int
    passes: int
    sampler: int
    total: int


class TrainingCostJSON(TypedDict):
    """The resources of a policy's training on this machine, before its first step. `step_seconds`: work of the policy for one
    of the `steps`, as the run `measured_in` took it; `gpu_hours`: of all steps, which a limit may end earlier; `cost_usd`: of
    these at the policy's price. None: not known, and `unknown` says why."""

    policy: str
    processes: int
    memory: MemoryJSON | None
    steps: int | None
    step_seconds: float | None
    measured_in: str | None
    gpu_hours: float | None
    cost_usd: float | None
    unknown: dict[str, str]


class PlanJSON(TypedDict, total=False):
    """The plan of a run: what it will take. It is shown before anything is paid. `sent`: bytes of each local model that a machine
    of the Ray cluster gets from this one if it has no copy."""

    calls: dict[str, CountRangeJSON]
    tokens: CountRangeJSON
    cost_usd: DollarRangeJSON
    price_unknown: dict[str, str]
    limits: dict[str, float]
    default_limit: bool
    output_limit: OutputLimitJSON | None
    tokens_by_characters: bool
    tokens_counted: bool
    tokens_measured: bool
    promotion: PromotionJSON
    first_call: FirstCallJSON
    first_round: int
    search: SearchSizeJSON
    validation: RowsUsedJSON
    no_labels: str
    ablation: int
    control: PlannedControlJSON
    methods: list[str]
    models: dict[str, str]
    default_policy: bool
    training: TrainingCostJSON
    default_model: str
    missing_keys: list[str]
    look: LookJSON
    added: AddedJSON
    aggregate: str
    cases: list[dict[str, Any]]
    study: PlannedStudyJSON
    batch: PlannedBatchesJSON
    sent: dict[str, int]
    runs: int
    all_calls: int | None
    model: str
