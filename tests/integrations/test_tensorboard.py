"""TensorBoard gets the curves of a training and the figures of its result."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.integrations import tensorboard
from whet.integrations.figures import read_figures

pytest.importorskip("tensorboardX")


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars of the only file of events: length (8), its check (4), the event, the check of that (4)."""
    from tensorboardX.proto.event_pb2 import Event

    (file,) = folder.iterdir()
    data, at = file.read_bytes(), 0
    read: dict[str, list[tuple[int, float]]] = {}
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        event = Event.FromString(data[at + 12 : at + 12 + size])
        at += 16 + size
        for value in event.summary.value:
            if value.HasField("simple_value"):
                read.setdefault(value.tag, []).append((event.step, round(value.simple_value, 5)))
    return read


@dataclass(frozen=True)
class Steps:
    """No settings of its own."""


async def train(run: Any, env: Any, policy: Any, start: Any, config: Steps) -> whet.Candidate:
    """Note what a training notes at its steps."""
    for step in range(3):
        run.log("step", {"step": step, "reward": step / 4, "kl": 0.5, "clip_fraction": 0.125})
    return whet.Candidate(start)


def test_the_curves_of_a_training_are_written_and_written_anew(tmp_path: Path) -> None:
    result = whet.optimize(
        "Repeat the number.",
        data=[{"input": f"number {i}", "target": str(i)} for i in range(30)],
        reward="exact_match",
        lm=lambda messages: messages[-1].content.partition("number 1")[2],
        method=whet.Method(whet.methods.MethodEntry("train", "Notes steps"), train, Steps),
        run=tmp_path / "runs" / "numbers",
    )
    assert ("training.kl", 2, 0.5) in read_figures(result).training
    for run in (result, result.run):
        folder = tensorboard.log(run, tmp_path / "events")
        assert folder == tmp_path / "events" / "numbers"
        read = scalars(folder)
        assert read["training.reward"] == [(0, 0.0), (1, 0.25), (2, 0.5)]
        assert read["training.clip_fraction"] == [(step, 0.125) for step in range(3)]
        assert result.best.test is not None
        assert read["best.test.mean"] == [(0, round(result.best.test.mean, 5))]
