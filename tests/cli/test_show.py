"""What the line on stderr says while a run goes on."""

from __future__ import annotations

import time

import pytest

from whet.api import Progress
from whet.engine.progress import training_forecast
from whet.reporting.progress_display import curve, progress_line, training

FIGURES = {
    "step": 56, "best": 0.9, "distinct": 8.0, "loss": -0.1, "entropy": 1.2, "clip_fraction": 0.034, "tokens": 320.0,
    "length": 40.0,
    "kl": 0.8512, "grad_norm": 0.3, "seconds": 0.4, "memory": 0.612, "reward": 0.425, "equal_groups": 0.0,
}  # fmt: skip


def told(*steps: dict[str, float]) -> Progress:
    progress = Progress(phase="search", baseline=0.0, best=0.5)
    for step in steps:
        progress.on_event("step", step)
    return progress


def test_a_line_says_of_training_what_a_person_wants_and_no_more() -> None:
    shown = progress_line(told(FIGURES), 42.0)
    assert shown == (
        "search · best 0.500 (baseline 0.000) · step 57 · training reward 0.42 · kl 0.85 · entropy 1.2 · length 40 · "
        "3% clipped · 0.6 GiB · 42 s"
    )


def test_pace_is_the_mean_over_the_last_steps_and_the_curve_has_all_rewards() -> None:
    progress = told(*({**FIGURES, "step": i, "reward": i / 10} for i in range(3)))
    progress.times.clear()
    progress.times.extend([10.0, 10.5, 12.0])
    assert training(progress, 200) == [
        "step 3 of 200",
        "training reward 0.20 ▁▅█",
        "kl 0.85 ▁▁▁",
        "entropy 1.2 ▁▁▁",
        "length 40 ▁▁▁",
        "3% clipped",
        "1 s a step",
        "about 3.28 min of training left",
        "0.6 GiB",
    ]


def test_only_the_newest_steps_are_timed_and_the_clock_is_the_steps_own() -> None:
    before = time.monotonic()
    progress = told(*({"step": float(i)} for i in range(40)))
    assert len(progress.times) == 10 and before <= progress.times[0] <= progress.times[-1] <= time.monotonic()


def test_a_method_without_weights_shows_its_steps_and_what_it_calls_its_answer() -> None:
    progress = told({"step": 0, "answer": 0.25, "programs": 2}, {"step": 1, "answer": 0.75, "programs": 3})
    progress.times.clear()
    assert training(progress, 0) == ["step 2", "training reward 0.75 ▁█"]


def test_the_first_step_foretells_time_and_dollars_of_the_training() -> None:
    """90 s a step, 30 of them of the policy, at $1.20 an hour: 60 steps are 1.5 h and $0.60."""
    first = {"steps": 60, "left": 59, "step": 90.0, "trained": 30.0, "price": 1.2}
    assert training_forecast(first, 0.61) == (
        "training: by the first step, which took 90 s, 60 steps of training take about 90 min and $0.6 for the policy ($1.2 an "
        "hour); 0.6 GiB so far"
    )
    said: list[str] = []
    Progress(say=said.append).on_event("training_forecast", {**first, "price": 0.0})
    assert said == ["training: by the first step, which took 90 s, 60 steps of training take about 90 min"]


def in_training(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> tuple[Progress, list[str]]:
    """A training of which steps began at these seconds; the clock then stands at the last of them."""
    now, said = [0.0], list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress(
        phase="search", say=said.append, trains="a language model that rewords every input (LoRA), hf/tiny"
    )
    for step, now[0] in enumerate(seconds[:-1]):
        progress.on_event("training", {"step": step, "steps": 60, "recorded": False})
    now[0] = seconds[-1]
    return progress, said


def test_the_first_step_of_a_training_is_shown_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, said = in_training(monkeypatch, 100.0, 190.0)
    assert said == ["training: a language model that rewords every input (LoRA), hf/tiny, 60 steps"]
    assert (
        progress_line(progress, 190.0)
        == "search · training step 1 of 60 · this step has taken 90 s · 3.17 min"
    )


def test_a_time_left_is_said_of_a_training_only_while_its_steps_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alike, _ = in_training(monkeypatch, 0.0, 10.0, 20.0, 25.0)
    assert training(alike, 60) == ["training step 3 of 60", "10 s a step", "about 9.58 min of training left"]
    hangs, _ = in_training(monkeypatch, 0.0, 10.0, 20.0, 80.0)
    assert training(hangs, 60) == ["training step 3 of 60", "10 s a step", "this step has taken 60 s"]
    uneven, _ = in_training(monkeypatch, 0.0, 10.0, 100.0, 101.0)
    assert training(uneven, 60) == ["training step 3 of 60", "50 s a step"]


def test_steps_whose_answers_are_recorded_say_nothing_of_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, said = in_training(monkeypatch, 0.0)
    for step in (30, 31):
        progress.on_event("training", {"step": step, "steps": 60, "recorded": True})
    assert training(progress, 60) == ["training step 32 of 60"] and said[0].endswith("from step 31 of 60 on")
    progress.on_event("training", None)
    assert training(progress, 0) == []


def test_after_the_search_the_line_is_about_the_proof() -> None:
    progress = told(FIGURES)
    progress.phase = "sealed test"
    assert "reward" not in progress_line(progress, 1.0)


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""), ([0.3], ""), ([0.2, 0.2, 0.2], "▁▁▁"), ([0.0, 1.0], "▁█"), ([1, 0], "█▁"),
        (range(8), "▁▂▃▄▅▆▇█"), ([0, 0, 1, 1, 0, 1], "▁█▅"),
    ],
)  # fmt: skip
def test_the_curve_is_of_blocks_each_the_mean_of_its_values(values: list[float], drawn: str) -> None:
    assert curve(values, 3 if len(values) == 6 else 16) == drawn


def test_a_long_curve_keeps_its_width() -> None:
    assert len(curve([i % 7 for i in range(1003)])) == 16


def test_a_reward_that_is_not_the_tasks_is_named() -> None:
    progress = told({"step": 0, "reward": -0.41, "signal": "accuracy + likelihood"})  # type: ignore[dict-item]
    assert training(progress, 0)[1] == "training reward (accuracy + likelihood) -0.41"
