"""What a text copies from other people's texts, and what a run says of the prompt that it found."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from whet.api import aoptimize
from whet.search.copies import longest_copy
from whet.testing.server import serving
from whet.types import Request

NOTE = "Mrs Alba Winter of Elm Street had the parcel"


@pytest.mark.parametrize("said", ["Be brief. Answer only with a number.", f"Answer only. {NOTE} on Monday."])
async def test_a_prompt_that_copies_a_row_is_found_out(tmp_path: Path, said: str) -> None:
    (tmp_path / "prompt.md").write_text(
        "You answer.\n<!-- whet:begin -->\nTalk.\n<!-- whet:end -->\n{{input}}\n"
    )
    texts = [f"{n}: where is it?" for n in range(39)] + [f"39: {NOTE} on Monday, she says."]
    rows = [{"id": f"r{n}", "input": text, "target": str(n)} for n, text in enumerate(texts)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "task.yaml").write_text("name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n")

    def answer(request: Request) -> str:
        text = request.messages[-1].content
        if not text.startswith("You answer"):
            return f"<PROMPT>{said}</PROMPT>"
        return text.splitlines()[-1].partition(":")[0] if "only" in text else "Well, well."

    async with serving(answer) as server:
        found = await aoptimize(
            tmp_path,
            method="opro",
            lm="openai/m",
            optimizer_lm="openai/m",
            base_url=server.base_url,
            settings={"steps": 1, "samples": 1},
            run=tmp_path / "run",
        )
    assert found["improvement"]["promoted"] and said in found["best"]["prompt"]
    told = [warning for warning in found["warnings"] if "copies" in warning]
    assert bool(told) == (NOTE in said)
    if told:
        assert f'"{NOTE.casefold()} on monday' in told[0] and "from row r39 at " in told[0]


def test_what_the_start_prompt_says_is_no_copy() -> None:
    assert longest_copy(f"So: {NOTE}.", [f"{NOTE}!"], "") == NOTE.casefold()
    assert longest_copy(f"So: {NOTE}.", [f"{NOTE}!"], f"Known: {NOTE}") == ""


def test_a_very_long_text_is_held_against_much_data_in_one_pass() -> None:
    chance = random.Random(0)
    words = [f"{chance.randrange(10**9):x}" for _ in range(120_000)]
    data, long = " ".join(words[:60_000]), " ".join(words[60_000:])
    piece = data[1000:1100].strip()
    began = time.thread_time()
    assert longest_copy(f"{long} # {piece} # end", [data], "").strip() == piece
    assert longest_copy(data, [data], "") == data
    assert time.thread_time() - began < 20, "a search for each window took minutes"


def test_the_piece_is_the_one_that_a_search_letter_by_letter_finds() -> None:
    chance = random.Random(1)
    for _ in range(40):
        other = "".join(chance.choice("ab") for _ in range(300))
        cut = chance.randrange(200)
        text = (
            "".join(chance.choice("ab") for _ in range(40))
            + other[cut : cut + 60]
            + other[cut + 20 : cut + 90]
        )
        pieces = [
            text[a:b] for a in range(len(text)) for b in range(a + 32, len(text) + 1) if text[a:b] in other
        ]
        assert len(longest_copy(text, [other], "")) == max(map(len, pieces), default=0)
