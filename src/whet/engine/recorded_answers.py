"""The contents of another run's journal: its prompts, and its answers to requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from whet.engine.journal import check_row, has_sums, read_events, read_journal_rows, read_meta
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.search.archive import candidate_of
from whet.types import JSON, Request

JOURNAL = "journal.sqlite"


def read_recorded_answers(folder: Path) -> dict[str, bytes]:
    """The encoded answers of a run by the digest of their request. Raises StorageError for one that has changed."""
    path, answers = folder / JOURNAL, dict[str, bytes]()
    sums = has_sums(path, "results")
    sql = "SELECT digest, value, sum FROM results" if sums else "SELECT digest, value, NULL FROM results"
    for digest, value, row_sum in read_journal_rows(path, sql):
        check_row(path, "results", row_sum, digest, value)
        answers[digest] = bytes(value)
    return answers


def read_prompts(folder: Path) -> list[Prompt]:
    """The prompts that a run measured, in their order, each once."""
    events = read_events(folder / JOURNAL, ["candidate", "validated"])
    return list(
        {prompt.id: prompt for prompt in (candidate_of(event.value).prompt for event in events)}.values()
    )


def read_seed(folder: Path) -> int:
    """The seed of a run. Raises UsageError for a folder without a run."""
    header = read_meta(folder / JOURNAL, "header")
    if header is None:
        raise UsageError(f"{folder} holds no run. Name the folder of a finished run.")
    return int(orjson.loads(header)["seed"])


def read_matching(
    folder: Path, ask: Callable[[Prompt], Sequence[Request]], digest: Callable[[Request, int], str]
) -> JSON:
    """For each prompt of a run its messages, and its encoded answers to the requests that `ask` makes of it by their place.

    `digest` names the content of a request of a run with a seed. Prompts without an answer are left out.
    """
    seed, answers, matching = read_seed(folder), read_recorded_answers(folder), list[JSON]()
    for prompt in read_prompts(folder):
        digests = [digest(request, seed) for request in ask(prompt)]
        known: JSON = {str(i): answers[one].decode() for i, one in enumerate(digests) if one in answers}
        if known:
            matching.append([[m.as_list() for m in prompt.messages], known])
    return matching
