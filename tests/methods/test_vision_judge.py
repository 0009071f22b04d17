"""self_rewarding with a judge that sees pixels: what it is not fooled by, and when its drift ends the training.

The painter is a stand-in for a policy: for each request it chooses among four SVG answers. One shows the circle that is wanted.
One shows a circle of another colour. Two look right only in their source: the circle is covered by a white rectangle, or only
named. Both judges are simulated: `eyes` decodes the PNG file that it gets and counts pixels of the wanted colour, `reader`
reads the source. A share `noise` of the verdicts of each is reversed.

    pytest tests/methods/test_vision_judge.py -m long -s
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")
pytest.importorskip("PIL", reason="pictures need Pillow: pip install 'whet[images]'")
pytest.importorskip("resvg_py", reason="SVG is painted by resvg-py: pip install 'whet[images]'")

from PIL import Image
from scipy import stats
from tests.environments.worlds import Scripted
from tests.methods.test_dpo import Judging

from whet.environments.environment import Environment
from whet.errors import SearchStopped, UsageError
from whet.methods.self_rewarding import Config, self_rewarding
from whet.prompt import Prompt
from whet.rewards.judge import IGNORE, Judge
from whet.rewards.verifiers.svg_pixels import render_png
from whet.testing.runs import MeteredRun
from whet.types import Example, Request
from whet_client.media import MARK, contents_of

COLOURS = {"red": "#ff0000", "blue": "#0000ff", "green": "#00ff00", "purple": "#800080"}
START = Prompt.parse("Paint it as SVG: {{input}}")
RUBRIC = "The picture shows a circle of the colour that was asked for."
CONFIG = Config(rounds=6, inputs=8, group=4, judgements=1, lr=20.0, scorer="judge", anchors=24)


def draw(inside: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">{inside}</svg>'


def circle(colour: str) -> str:
    return f'<circle cx="50" cy="50" r="30" fill="{COLOURS[colour]}"/>'


def answers_to(colour: str) -> dict[str, str]:
    """The menu of the painter for a request."""
    other = next(name for name in COLOURS if name != colour)
    return {
        "right": draw(circle(colour)),
        "other": draw(circle(other)),
        "covered": draw(circle(colour) + '<rect width="100" height="100" fill="white"/>'),
        "named": draw(f'<desc>fill="{COLOURS[colour]}"</desc>'),
    }


def shows(file: bytes, colour: str) -> bool:
    """Whether a picture has a circle's worth of pixels of a colour."""
    with Image.open(io.BytesIO(file)) as image:
        pixels = np.asarray(image.convert("RGB").resize((32, 32)), dtype=float)
    wanted = np.array([int(COLOURS[colour][at : at + 2], 16) for at in (1, 3, 5)])
    return bool((np.abs(pixels - wanted).max(-1) < 40).mean() > 0.1)


def colour_in(text: str) -> str:
    return next(name for name in COLOURS if f"a {name} circle" in text)


def noisy(right: bool, request: Request, noise: float, seed: int) -> bool:
    """A verdict that is reversed with chance `noise`, drawn anew for each row, sample and seed of the world."""
    asked = f"{seed}|{request.messages[-1].content}|{request.seed}|{request.sample}"
    return right != (int.from_bytes(hashlib.sha256(asked.encode()).digest()[:8]) / 2**64 < noise)


def verdict(good: bool) -> str:
    return f'{{"explanation": "so", "score": {5 if good else 1}}}'


class Eyes:
    """Sees pixels. From its call number `sane` on, it takes every colour for another one."""

    def __init__(self, noise: float = 0.0, sane: float = float("inf"), seed: int = 0) -> None:
        self.noise, self.sane, self.seed, self.calls = noise, sane, seed, 0

    def __call__(self, request: Request) -> str:
        self.calls += 1
        text = request.messages[-1].content
        assert "<svg" not in text, "the source is not shown"
        ((_, file),) = contents_of(text[MARK.search(text).start() :])  # type: ignore[union-attr]
        right = shows(file, colour_in(text))
        return verdict(noisy(right == (self.calls <= self.sane), request, self.noise, self.seed))


def reader(noise: float = 0.0, seed: int = 0) -> Callable[[Request], str]:
    """Reads the source."""

    def judge(request: Request) -> str:
        text = request.messages[-1].content
        return verdict(noisy(f'fill="{COLOURS[colour_in(text)]}"' in text, request, noise, seed))

    return judge


def make_task(pixels: bool, anchors: Sequence[str]) -> Environment:
    """Requests, each with an answer that a person has scored by its look."""
    rows = []
    for i in range(36):
        colour, kind = [*COLOURS][i % 4], anchors[i // 4 % len(anchors)]
        wanted = f"a {colour} circle for card {i}"
        row = {
            "input": wanted,
            "output": answers_to(colour)[kind],
            "quality": 5 if kind == "right" else 1,
        }
        rows.append(Example(f"row-{i}", {"input": wanted}, None, row, wanted))
    reward: Any = Judge(RUBRIC, human="quality", reference=IGNORE, pixels=pixels)
    task: Any = Scripted(lambda request: "")
    return Environment(task, reward, tuple(rows[:24]), tuple(rows[24:]))


async def train(
    pixels: bool, judge: Callable[[Request], str], seed: int = 0, anchors: Sequence[str] = ("right", "other")
) -> tuple[Any, str, MeteredRun]:
    """The painter after its training, and why it ended early."""
    painter: Any = Judging(lambda conversation: [*answers_to(colour_in(conversation[-1].content)).values()])
    env, why = make_task(pixels, anchors), ""
    run = MeteredRun({"task": env.model, "judge": cast(Any, Scripted(judge))}, seed)
    try:
        await self_rewarding(run, env, painter, START, CONFIG)
    except SearchStopped as error:
        why = str(error)
    return painter, why, run


def chances(painter: Any) -> Mapping[str, float]:
    """How often the painter gives each kind of answer, by what it shows."""
    kinds = [*answers_to("red")]
    menus = [[*answers_to(colour).values()] for colour in COLOURS]
    means = np.mean([painter.probabilities(menu) for menu in menus], axis=0)
    return dict(zip(kinds, means.tolist(), strict=True))


def test_the_kinds_of_answers_look_as_they_are_called() -> None:
    for colour in COLOURS:
        seen = {kind: shows(render_png(answer), colour) for kind, answer in answers_to(colour).items()}
        assert seen == {"right": True, "other": False, "covered": False, "named": False}


async def test_a_judge_that_sees_pixels_teaches_pictures_and_one_that_reads_is_fooled() -> None:
    sees, why, run = await train(True, Eyes())
    reads, _, _ = await train(False, reader())
    assert not why and chances(sees)["right"] > 0.6
    assert chances(reads)["covered"] + chances(reads)["named"] > chances(reads)["right"]
    agreements = [cast(Any, value)["anchor_agreement"] for name, value in run.logged if name == "step"]
    assert agreements == [1.0] * 6


async def test_anchors_that_only_look_right_in_their_source_stop_a_judge_that_reads() -> None:
    painter, why, _ = await train(False, reader(), anchors=("right", "covered", "named"))
    assert "the judge's scores cannot be told from chance" in why
    assert chances(painter)["right"] == 0.25


async def test_a_judge_that_turns_around_is_asked_again_and_ends_the_training() -> None:
    """Anchors, answers and anchors of the first round, and one validation are judged rightly; then colours are exchanged."""
    _, why, run = await train(True, Eyes(sane=24 + 32 + 24 + 24))
    assert "the judge's scores agree with people's on the anchors by -" in why and "drifts" in why
    assert len([name for name, _ in run.logged if name == "step"]) == 2


async def test_an_answer_without_a_picture_has_the_lowest_score_and_costs_no_call() -> None:
    from whet.types import Completion

    env, eyes = make_task(True, ("right",)), Scripted(Eyes())
    run = MeteredRun({"task": env.model, "judge": cast(Any, eyes)})
    graded = await env.reward.grade(run, env.train[0], Completion("A red circle."))
    assert (
        graded.value == 0.0
        and graded.critique == "The answer holds no picture: there is no <svg> with an end."
    )
    assert eyes.asked == 0


async def test_a_policy_that_reads_texts_only_cannot_judge_pictures() -> None:
    env, painter = make_task(True, ("right", "other")), Judging(lambda conversation: [""])
    run = MeteredRun({"task": env.model})
    with pytest.raises(UsageError, match="set scorer to judge"):
        await self_rewarding(run, env, painter, START, Config())  # type: ignore[arg-type]


@pytest.mark.long
async def test_the_lead_of_a_judge_that_sees_pixels_over_seeds() -> None:
    """A tenth of the verdicts is reversed. The control sees the same answers as source, with the same anchors and seeds."""
    kinds: dict[bool, list[Mapping[str, float]]] = {True: [], False: []}
    ended = {True: 0, False: 0}
    for seed in range(10):
        for pixels in kinds:
            judge = Eyes(0.1, seed=seed) if pixels else reader(0.1, seed)
            painter, why, _ = await train(pixels, judge, seed)
            ended[pixels] += bool(why)
            kinds[pixels].append(chances(painter))
    for pixels, found in kinds.items():
        print(
            f"pixels={pixels}: ended by the alarm {ended[pixels]}, "
            + ", ".join(f"{kind} {fmean(one[kind] for one in found):.3f}" for kind in found[0])
        )
    leads = [one["right"] - other["right"] for one, other in zip(kinds[True], kinds[False], strict=True)]
    half = stats.t.ppf(0.975, len(leads) - 1) * stats.sem(leads)
    print(f"lead {fmean(leads):+.3f} [{fmean(leads) - half:+.3f}, {fmean(leads) + half:+.3f}]")
    assert fmean(leads) - half > 0.2
