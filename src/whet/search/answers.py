"""Critiques that only state the right answer of their own example teach nothing about other examples."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from whet.rewards.text import targets_of
from whet.types import Example, Rollout

TARGET, OUTPUT = "\N{SYMBOL FOR START OF TEXT}", "\N{SYMBOL FOR END OF TEXT}"
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[^\d]):\s+|;\s+")
_SHOWN = 200


def without_answers(rollouts: Sequence[Rollout], examples: Mapping[str, Example]) -> list[Rollout]:
    """Rollouts whose critiques lack the sentences that only name the right answer.

    A sentence names the answer when it holds the example's own target, and the same sentence occurs with another
    target elsewhere: `"12" should be "7"` beside `"3" should be "9"`. What such a critique says besides is kept.
    """
    split = [_sentences(r, examples[r.example_id]) for r in rollouts]
    targets: dict[str, set[str]] = {}
    for rollout, sentences in zip(rollouts, split, strict=True):
        for skeleton, _ in sentences:
            targets.setdefault(skeleton, set()).update(_targets(examples[rollout.example_id])[:1])
    kept = []
    for rollout, sentences in zip(rollouts, split, strict=True):
        general = [
            text for skeleton, text in sentences if TARGET not in skeleton or len(targets[skeleton]) < 2
        ]
        shortened = len(general) < len(sentences)
        kept.append(replace(rollout, critique="\n".join(general) or None) if shortened else rollout)
    return kept


def _targets(example: Example) -> list[str]:
    return [] if example.target is None else [t for t in targets_of(example) if t.strip()]


def _sentences(rollout: Rollout, example: Example) -> list[tuple[str, str]]:
    """Sentences of a critique as (skeleton, text): in a skeleton answer and target are marks."""
    if not rollout.critique:
        return []
    text, output = rollout.critique, rollout.output.strip()
    shown = output if len(output) <= _SHOWN else output[:_SHOWN] + "…"
    text = text.replace(json.dumps(shown, ensure_ascii=False), OUTPUT)
    if output:
        text = re.sub(rf"(?<!\w){re.escape(output)}(?!\w)", OUTPUT, text)
    found = []
    for sentence in filter(str.strip, _SENTENCE.split(text)):
        skeleton = sentence
        for target in _targets(example):
            skeleton = re.sub(rf"(?<!\w){re.escape(target)}(?!\w)", TARGET, skeleton)
        found.append((skeleton, sentence.replace(OUTPUT, json.dumps(shown, ensure_ascii=False)).strip()))
    return found
