"""The report's pictures: intervals on the sealed test, the learning curve, the method's own figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import whet.reporting.number_format as number_format
from whet.reporting.layout import details, note, table
from whet.reporting.markup import Html, el, join
from whet.reporting.record import STEP_INDEX, Record, ScoredPoint, finite_number, rows_of, side
from whet.reporting.svg import (
    XY,
    Frame,
    IntervalRow,
    Scale,
    dots,
    envelope,
    interval_plot,
    label,
    legend,
    marker,
    pad_range,
    path,
    running_mean,
    stairs,
    straight_line,
    svg,
)
from whet.stats import percent

LONGEST_NAME = 16
WIDE, NARROW = (880, 360), (360, 300)
PANEL = (400, 190)
MOST_PANELS = 10
FEW_DOTS = 200
NO_TEST = "none"
FIRST_PANELS = ("reward", "answer", "kl", "entropy", "length", "clip_fraction", "seconds", "memory")
MOST_ROWS = 200
FIGURES = {
    "reward": ("Training reward", "Mean training reward over the prompts or answers of a step. Its "
                                  "scale may differ from the reward of the task."),
    "answer": ("Reward of the answers", ("Mean reward of the answers of a step, without the method's "
                                        "reward for form.")),
    "format": ("Reward of the form", "Share of the texts of a step that have the required form."),
    "best": ("Best so far", "Highest training reward of any prompt up to this step."),
    "distinct": ("Different prompts", ("Number of different prompts that were sampled in a step. At "
                                      "1, the policy has settled.")),
    "entropy": ("Entropy", ("Entropy of the policy, in nats: high at first, near 0 if the policy "
                           "always writes the same text.")),
    "kl": ("KL divergence", "Divergence of the trained policy from its start, in nats per token."),
    "divergence": ("Divergence", "Divergence of the trained policy from its start, in nats per text."),
    "anchor_agreement": ("Anchors", "Agreement of the policy's own scores with people's on the anchors."),
    "own_score": ("Own score", "Mean score that the policy gives its own answers, on the scale of the judge."),
    "agreement": ("Agreement", "Share of people's judgements on validation inputs with which the policy agrees."),
    "pass_at_1": ("pass@1", "Probability that one answer to a problem of a step has the highest reward."),
    "pass_at_2": ("pass@2", "Probability that one of two answers to a problem has the highest reward."),
    "pass_at_4": ("pass@4", "Probability that one of four answers to a problem has the highest reward."),
    "pass_at_group": ("pass@group", "Share of the groups with an answer of the highest reward."),
    "length": ("Length", "Mean number of tokens in the texts of a step."),
    "clip_fraction": ("Clipped", "Share of the tokens whose change was cut by the bound of the update."),
    "loss": ("Loss", "Loss that the update of a step minimizes."),
    "clipped": ("Clipped", "Share of the choices whose change was cut by the bound of the update."),
    "value_loss": ("Error of the critic", "Squared error of the critic's forecast of the rewards."),
    "critic_loss": ("Error of the critic", "Squared error of the critic's forecast of the rewards."),
    "explained": ("Explained variance", ("Share of the variance of rewards that the critic predicted; "
                                        "1 means all of it.")),
    "equal_groups": ("Groups without a difference", ("Share of the groups in which all rewards were equal. Such "
                                                    "groups teach nothing.")),
    "gain": ("Gain", "Mean difference in reward that the texts of a step caused."),
    "first": ("Reward of the first try", "Mean reward of the answers before any reflection."),
    "turns": ("Turns", "Mean number of turns of a conversation in a step."),
    "weight": ("Weight of the divergence", "Weight of the penalty that keeps the policy near its start."),
    "programs": ("Programs", "Number of programs in the population."),
    "place": ("Place", "Position of the word that a step changed, counted from 0."),
    "update_seconds": ("Seconds of updates", "Total time of the updates up to this step."),
    "backbone_seconds": ("Seconds of the encoder", "Total time of the frozen encoder up to this step."),
    "seconds": ("Seconds", "Time of an update."),
    "memory": ("Memory", "Peak memory of the training up to this step, in GiB."),
}  # fmt: skip
"""The figures that methods log at their steps: the name and the meaning of each."""
SO_FAR = frozenset(("best", "update_seconds", "backbone_seconds", "memory"))
"""Figures that hold all steps up to theirs, of which a running mean would show something that never was."""


def _row(
    name: str, score: Mapping[str, object], shape: str, class_: str, digits: int, sign: bool = False
) -> IntervalRow | None:
    """The row of a score; None when the score has no numbers."""
    mean, low, high = (finite_number(score.get(key)) for key in ("mean", "low", "high"))
    if mean is None or low is None or high is None:
        return None
    say = number_format.difference if sign else number_format.reward_text
    ends = f"{number_format.reward_text(low, digits)} to {number_format.reward_text(high, digits)}"
    level = 1 - (finite_number(score.get("alpha")) or 0.05)
    made = f"{percent(level)}% interval" + (f", {score['method']}" if score.get("method") else "")
    return IntervalRow(name, mean, low, high, f"{say(mean, digits)}  [{ends}]", shape, class_, made)


def intervals(record: Record) -> Html | None:
    """Means of the sealed test with their intervals, and the intervals of the differences between them."""
    rows = draw_means(record)
    if len(rows) < 2:
        return None
    caption = f"Mean reward on the sealed test ({rows_of(side(side(record.result, 'best'), 'test'))})"
    figures = [interval_plot(caption, rows, "interval-test")]
    if gaps := interval_rows(record):
        picture = interval_plot("Differences on the same examples", gaps, "interval-gain", 0.0)
        figures.append(el("div", picture, _shares(side(record.result, "improvement")), class_="gain"))
    return el("div", figures, class_="pair")


def draw_means(record: Record) -> list[IntervalRow]:
    """Baseline, best and control on the sealed test."""
    control = side(record.result, "control")
    name = f"Control: {str(control.get('method'))[:LONGEST_NAME]}"
    sides = (
        ("Baseline", record.result, "baseline", "square", "baseline"),
        ("Best", record.result, "best", "circle", "best"),
        (name, control, "best", "diamond", "control"),
    )
    rows = [
        _row(title, side(side(result, key), "test"), shape, class_, record.digits)
        for title, result, key, shape, class_ in sides
    ]
    return [row for row in rows if row is not None]


def interval_rows(record: Record) -> list[IntervalRow]:
    """Best against baseline; of a run with a control also the control against the baseline, and best against the control."""
    control = side(record.result, "control")
    pairs = [pair for pair in record.result.get("pairs") or () if isinstance(pair, Mapping)]
    scores = (
        ("Best minus baseline", side(record.result, "improvement"), "circle", "best"),
        ("Control minus baseline", side(control, "improvement"), "diamond", "control"),
        *(("Best minus control", pair, "circle", "best") for pair in pairs[:1]),
    )
    rows = [
        _row(name, {**score, "mean": score.get("difference")}, shape, class_, record.digits, sign=True)
        for name, score, shape, class_ in scores
        if score.get("method") != NO_TEST
    ]
    return [row for row in rows if row is not None]


def _shares(gain: Mapping[str, object]) -> Html | None:
    """Show the numbers of test examples that got better, stayed equal and got worse, as a bar and in words."""
    kinds = (("up", "▲", "wins", "better"), ("same", "=", "ties", "equal"), ("down", "▼", "losses", "worse"))
    counts = [(kind, sign, word, gain.get(key)) for kind, sign, key, word in kinds]
    known = [(kind, f"{sign} {n:,} {word}", n) for kind, sign, word, n in counts if isinstance(n, int)]
    if not known:
        return None
    bars = [el("span", class_=kind, style=f"flex-grow:{n}") for kind, _, n in known if n > 0]
    words = el(
        "p", el("span", "Best against baseline:"), [el("span", t) for _, t, _ in known], class_="share-words"
    )
    return join(el("div", bars, class_="shares", aria_hidden="true"), words)


def learning_curve(record: Record) -> Html | None:
    """Validation of every candidate and of the incumbent against model calls, over training scores."""
    if not record.validated or len(record.validated) + len(record.trained) < 3:
        return None
    best = max((p.value for p in record.validated if p.incumbent), default=None)
    caption = (
        f"{number_format.plural(len(record.validated), 'candidate')} on {record.search_split}, "
        f"{number_format.plural(len(record.trained), 'training score')}; the best mean is "
        f"{number_format.reward_text(best, record.digits)} after {record.calls:,} model calls."
    )
    pictures = [
        svg(
            *size,
            "Learning curve: mean reward against model calls",
            caption,
            _curve(record, *size),
            name=f"curve-{name}",
            class_=name,
        )
        for name, size in (("wide", WIDE), ("narrow", NARROW))
    ]
    return join(
        el("figure", _legend(record, best), pictures, _curve_table(record)), _measured_again(record, best)
    )


def _measured_again(record: Record, best: float | None) -> Html | None:
    """Why the curve ends at another number than the verdict names, where it does."""
    if not record.measured_again:
        return None
    sides = [side(side(record.result, name), "validation") for name in ("baseline", "best")]
    before, after = (number_format.reward_text(score.get("mean"), record.digits) for score in sides)
    return note(
        f"During the search, the method compared prompts on {record.search_split}. After the search, "
        f"baseline and best were measured on all {number_format.count(sides[1].get('n'))} validation "
        f"rows: {before} and {after}."
    )


def _curve(record: Record, width: int, height: int) -> Html:
    baseline = _baseline(record)
    steps = _step_rewards(record)
    values = [p.value for p in (*record.validated, *record.trained, *steps)] + (
        [] if baseline is None else [baseline]
    )
    right = max(1, record.calls)
    frame = Frame(width, height, Scale(0, right, 52, width - 16), Scale(*pad_range(values), height - 52, 28))

    def place(point: ScoredPoint) -> XY:
        return frame.x(point.calls), frame.y(point.value)

    incumbents = [place(p) for p in record.validated if p.incumbent]
    parts = [
        frame.axes("model calls", width // 110, 6),
        label(0, 12, "mean reward", "start", "axis-label"),
        dots((place(p) for p in record.trained), _dots(record)),
    ]
    if len(steps) > 1:
        series = [(float(p.calls), p.value) for p in steps]
        mean = envelope(running_mean(series, max(1, len(series) // 20)), width)
        parts.append(path([(frame.x(x), frame.y(y)) for x, y in mean], "raw-line"))
    if baseline is not None:
        y = frame.y(baseline)
        parts.append(straight_line((frame.x.start, y), (frame.x.stop, y), "baseline-line"))
    if incumbents:
        parts.append(path(stairs(incumbents, frame.x(right)), "incumbent-line"))
    parts += [marker("diamond", *place(p), "candidate-mark") for p in record.validated if not p.incumbent]
    parts += [marker("circle", x, y, "mark best") for x, y in incumbents]
    return join(parts)


def _dots(record: Record) -> str:
    """The class of the training scores' dots: larger ones where they are few."""
    return "dots few" if len(record.trained) <= FEW_DOTS else "dots"


def _step_rewards(record: Record) -> list[ScoredPoint]:
    """Mean reward of each training step, where it is on the scale of what is validated."""
    low, high = finite_number(record.final.get("low")), finite_number(record.final.get("high"))
    inside = all(
        (low is None or p.value >= low) and (high is None or p.value <= high) for p in record.rewards
    )
    return record.rewards if inside and not record.trained else []


def _baseline(record: Record) -> float | None:
    """The baseline's mean on the rows that the search validated on, else that of the result."""
    if record.start is not None and record.start.validation is not None:
        return record.start.validation
    return finite_number(side(side(record.result, "baseline"), "validation").get("mean"))


def _legend(record: Record, best: float | None) -> Html:
    digits = record.digits
    entries: list[tuple[Html, str]] = [
        (
            join(straight_line((0, 8), (28, 8), "incumbent-line"), marker("circle", 14, 8, "mark best")),
            f"best so far on {record.search_split} ({number_format.reward_text(best, digits)} at the end)",
        ),
    ]
    if not all(p.incumbent for p in record.validated):
        entries.append((marker("diamond", 14, 8, "candidate-mark"), "validated, not better"))
    if record.trained:
        entries.append((dots([(14, 8)], _dots(record)), "training score of a candidate"))
    if len(_step_rewards(record)) > 1:
        entries.append(
            (straight_line((0, 8), (28, 8), "raw-line"), "reward of the training steps, running mean")
        )
    baseline = _baseline(record)
    if baseline is not None:
        text = f"baseline ({number_format.reward_text(baseline, digits)})"
        entries.append((straight_line((0, 8), (28, 8), "baseline-line"), text))
    return el("figcaption", legend(entries))


def _curve_table(record: Record) -> Html:
    points = sorted(record.validated, key=lambda p: (not p.incumbent, p.calls))[:MOST_ROWS]
    rows = [
        [f"{p.calls:,}", number_format.reward_text(p.value, record.digits), "yes" if p.incumbent else "no"]
        for p in sorted(points, key=lambda p: p.calls)
    ]
    head = ["Model calls", "Mean reward", "Best so far"]
    caption = f"Candidates on {record.search_split}, in order"
    return details("The numbers of this picture", table(caption, head, rows))


def step_figures(record: Record) -> Html | None:
    """One small chart for each figure that the method logged at its steps, the reward first."""
    logged = dict.fromkeys(k for step in record.steps for k in step if k != STEP_INDEX)
    names = [*(k for k in FIRST_PANELS if k in logged), *(k for k in logged if k not in FIRST_PANELS)][
        :MOST_PANELS
    ]
    panels = [_panel(i, name, record.steps) for i, name in enumerate(names)]
    shown = [panel for panel in panels if panel is not None]
    return el("div", shown, class_="panels") if shown else None


def _panel(i: int, name: str, steps: Sequence[Mapping[str, float]]) -> Html | None:
    series = [(step[STEP_INDEX], step[name]) for step in steps if name in step]
    if len(series) < 2:
        return None
    width, height = PANEL
    x = Scale(*_wide_enough(series[0][0], series[-1][0]), 68, width - 10)
    frame = Frame(width, height, x, Scale(*pad_range(y for _, y in series), height - 46, 12))
    window = 1 if name in SO_FAR else max(1, len(series) // 20)
    place: Callable[[XY], XY] = lambda p: (frame.x(p[0]), frame.y(p[1]))  # noqa: E731
    drawn = [place(p) for p in envelope(series, width)]
    parts = [frame.axes("step", 4, 4), path(drawn, "raw-line" if window > 1 else "incumbent-line")]
    if window > 1:
        parts.append(
            path([place(p) for p in envelope(running_mean(series, window), width)], "incumbent-line")
        )
    last = f"{series[-1][1]:.4g}"
    ends = f"last step: {last}" + (f"; bold line: mean of {window} steps" if window > 1 else "")
    title, meaning = FIGURES.get(name, (name.replace("_", " "), ""))
    summary = f"{title} over {number_format.plural(len(series), 'step')}, from {series[0][1]:.4g} to {last}."
    caption = el("figcaption", title, el("small", ends), meaning and note(meaning))
    return el("figure", caption, svg(width, height, title, summary, *parts, name=f"step-{i}"))


def _wide_enough(first: float, last: float) -> tuple[float, float]:
    return (first, last) if last > first else (first, first + 1.0)
