"""The classifier of rendered images: what it reads is in the pixels, and a wording that sharpens its sight helps."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.image_classifier import SHAPES, Classifier, accuracy, arm, draw, match, read_png, to_png


def test_shapes_are_read_from_the_pixels() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (16, 16, 3)).astype(np.uint8)
    assert (read_png(to_png(pixels)) == pixels).all()
    drawn = [draw(rng) for _ in range(20)]
    assert [SHAPES[int(match(file).argmax())] for file, _ in drawn] == [shape for _, shape in drawn]


def test_the_best_wording_classifies_better_than_the_start() -> None:
    classifier = Classifier(0)
    best = " ".join(phrase for phrase, worth in classifier.worth.items() if worth > 0)
    worst = " ".join(phrase for phrase, worth in classifier.worth.items() if worth < 0)
    means = [accuracy(classifier, text, 0, n=60) for text in (worst, "What is it?", best)]
    assert means[0] < means[1] < means[2] and means[2] > 0.9


@pytest.mark.long
def test_ipo_finds_a_wording_for_the_images() -> None:
    assert arm("likelihood", 0) > accuracy(Classifier(0), "What is it?", 0) + 0.2
