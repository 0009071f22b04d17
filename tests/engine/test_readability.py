"""How a found text reads: what is read, in which pieces, and with what weight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.rl.test_stimulus import Lines, small
from whet.engine.readability import PASSAGE, PASSAGES, readability, texts_of
from whet.errors import UsageError
from whet.methods.dsp import with_hints
from whet.prompt import Prompt
from whet.types import Message, Scores


class ByFirstLetter:
    """Reads a whole text at once; its perplexity is 2, 4, 8 for a text that begins with a, b, c."""

    address, simulated, local, can_generate, can_score = "test/letters", True, True, True, True

    def __init__(self) -> None:
        self.read: list[str] = []

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        (text,) = continuations[0]
        self.read.append(text)
        value = -math.log(2.0 ** ("abc".index(text[0]) + 1))
        return Scores(np.array([[[value]]]), np.ones((1, 1), dtype=np.int64))


async def read(*texts: str) -> tuple[dict[str, Any], ByFirstLetter]:
    reader = ByFirstLetter()
    return await readability(reader, texts), reader  # type: ignore[arg-type]


async def test_the_median_is_over_rows_and_each_text_is_read_once() -> None:
    found, reader = await read("a", "b", "b", "c", "c", "c", "c")
    assert found["perplexity"] == pytest.approx(8) and found["texts"] == 3
    assert reader.read == ["a", "b", "c"]


async def test_long_texts_are_read_in_passages() -> None:
    long = " ".join(["a"] * PASSAGE + ["b"] * PASSAGE + ["c"] * 3)
    found, reader = await read(long)
    assert found["perplexity"] == pytest.approx(4)
    assert [len(text.split()) for text in reader.read] == [PASSAGE, PASSAGE, 3]


async def test_of_very_many_passages_every_nth_is_read() -> None:
    _, reader = await read(*(f"a{i:04}" for i in range(3 * PASSAGES)))
    assert len(reader.read) == PASSAGES and reader.read[1] == "a0003"


async def test_a_text_without_words_has_a_reason() -> None:
    found, _ = await read(" {{input}} ", "")
    assert found["perplexity"] is None and "no words" in found["reason"]


async def test_what_is_read_is_the_editable_text_of_every_region() -> None:
    env = small(lambda request: "yes").env
    start = Prompt.parse(
        "x <!-- whet:begin a -->one<!-- whet:end --> y <!-- whet:begin b -->two<!-- whet:end -->"
    )
    assert await texts_of(env, start, start, None, env.validation) == ["one\ntwo"]
    several = Prompt((Message("system", "be kind"), Message("user", "{{input}}")))
    assert await texts_of(env, several, start, None, env.validation) == [several.region_text()]


async def test_weights_beside_the_prompt_as_written_are_no_text() -> None:
    env = small(lambda request: "yes").env
    start, other = Prompt.parse("as written"), Prompt.parse("principles that were found")
    with pytest.raises(UsageError, match="not a text"):
        await texts_of(env, start, start, "0123", env.validation)
    assert await texts_of(env, other, start, "0123", env.validation) == ["principles that were found"]


async def test_a_hint_is_part_of_the_text_of_its_input() -> None:
    env = small(lambda request: "yes").env
    system = with_hints(env, Lines(lambda conversation: conversation[-1].content.split()[-1]))
    start = Prompt.parse("so")
    texts = await texts_of(system, start, start, "0123", env.validation)
    assert texts == [f"so\nHint: {example.user_text.split()[-1]}" for example in env.validation]
