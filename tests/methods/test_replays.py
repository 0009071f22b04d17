"""What a reader answered once, replayed: the same requests come again, and the same prompt comes of the answers.

A request in other words belongs to another version of its method, and is to be answered anew: `tests.methods.replay` says how.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.methods.replay import FOLDER, Reader, learn, read_transcript

import whet.instructions.questions
import whet.methods.gepa
from whet.engine.run_folder import version_of
from whet.methods import get_method

METHODS = sorted(path.stem for path in FOLDER.glob("*.json"))
WORDS: dict[str, tuple[Any, str]] = {
    "prompt_learning": (whet.instructions.questions, "_CONFUSED"),
    "gepa": (whet.methods.gepa, "CONFUSED"),
}
"""Where a method has some words of its request."""


def replay(method: str, folder: Path) -> tuple[Any, Reader]:
    """The run of a method with the answers of its transcript, and the reader of it."""
    exchanges = read_transcript(method)["exchanges"]
    reader = Reader({one["request"]: one["answer"] for one in exchanges})
    return learn(method, reader, folder), reader


def test_there_are_transcripts() -> None:
    assert "prompt_learning" in METHODS


@pytest.mark.parametrize("method", METHODS)
def test_a_replay_asks_the_same_and_reaches_the_same_prompt(method: str, tmp_path: Path) -> None:
    transcript = read_transcript(method)
    result, reader = replay(method, tmp_path)
    assert transcript["version"] == version_of(get_method(method)), "answer its requests anew"
    assert not reader.unknown, f"{method} asks otherwise: raise its version, and answer its requests anew"
    assert set(reader.asked) == {
        one["request"] for one in transcript["exchanges"]
    }  # calls at once end in any order
    assert result.best.prompt.source == transcript["prompt"]


@pytest.mark.parametrize("method", METHODS)
def test_a_request_in_other_words_is_noticed(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = WORDS[method]
    monkeypatch.setattr(module, name, f"{getattr(module, name)} Mind this.")
    _, reader = replay(method, tmp_path)
    assert reader.unknown
