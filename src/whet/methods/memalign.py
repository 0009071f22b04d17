"""MemAlign: a judge learns from people's scores: guidelines with their sources, and the scored answers most alike.

MemAlign. Databricks, 2026, as in mlflow 3.17 (`genai/judges/optimizers`). The way from ratings to a judge to a search for prompts
is that of PLHF, arXiv:2505.07886.

    for each batch of labelled rows:
        guidelines += what their labels say, each with the rows that it comes from    (semantic memory)
    examples <- all labelled rows                                                     (episodic memory)
    judge x: with the rubric, the guidelines, and the examples most like x

Differences from the code:
1. The memory is compared with the start on validation rows, whole and with guidelines alone, and the sealed test says how far it
   agrees with people. The code accepts every memory, and knows no row that was not learned from.
2. A source is a row that the writer was shown; a guideline without one is dropped, and equal guidelines are put together.
3. Rows are alike by the character trigrams of what the judge sees. The code asks an embedding model.
4. To align again learns from all rows anew. `whet align --forget` takes rows back.
5. Guidelines that copy 32 characters in a row from a single row, or hold private data, are dropped.
6. Within a limit on calls fewer batches are distilled; all rows are examples.
7. It works for every task whose rows have targets: a judge is one whose targets are people's scores (`whet align`).

Run it:  whet optimize TASK --method memalign --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whet._util.fields import PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.models.embeddings import NONE
from whet.prompt import Prompt
from whet.replies import json_values
from whet.replies.values import records
from whet.rewards.judge_memory import Guideline, JudgeMemory, LabelledText, sourced_guidelines
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.prompt_router import Routed, check_routing, routed_environment
from whet.rl.remembering_judge import RememberingJudge, read_judge
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import objectionable
from whet.search.edits import replace_region, text_in
from whet.search.minibatch import minibatch, show_example
from whet.search.plan import share_out
from whet.types import Example

ENTRY = MethodEntry(
    "memalign",
    "MemAlign: guidelines and the most alike of people's judgements",
    version=1,
    rank=60,
    when="a judge should score as people do, and there are tens of answers or more that people scored",
    paper="Databricks, 2026",
    needs=("optimizer",),
    trains="a memory of judgements, recalled by input",
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of MemAlign."""

    memory: Literal["both", "guidelines", "examples"] = "both"
    """The content of the memory. With both, the guidelines are also tried alone."""
    batch: PositiveInt = 50
    """Labelled rows that are distilled in one call."""
    near: PositiveInt = 5
    """Examples that are shown beside an input."""
    reason: str = "reason"
    """Column of the rows that may hold why a person judged so."""


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a task of several turns, and for rows without targets."""
    check_routing("memalign", env, NONE)
    if all(row.target is None for row in env.train):
        raise UsageError(
            "memalign learns from labels, and no training row has a target. Turn a judge with people's scores into such a task: "
            "whet align TASK --out judge"
        )


async def memalign(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Guidelines and examples from labelled rows; see the module."""
    plan = share_out(run, env, 0, finalists=2)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    labelled = [row for row in env.train if row.target is not None]
    rows = minibatch(run.rng, labelled, len(labelled))
    guidelines = (
        []
        if config.memory == "examples"
        else await distill(run, plan.env, policy, start, rows, plan.asks, config)
    )
    judgements = tuple(
        judgement for row in rows if admits(start, judgement := judgement_of(row, config.reason))
    )
    whole = JudgeMemory(tuple(guidelines), judgements, config.near)
    alone = [replace(whole, judgements=())] if guidelines and config.memory != "examples" else []
    tried = [*([whole] if config.memory != "guidelines" else []), *alone]
    for memory in tried[: plan.validations - 1]:
        judge = RememberingJudge(start, memory)
        candidate = Candidate(start, (start.id,), "memory", system=await run.keep(judge))
        archive.add(run, candidate)
        await archive.validate(run, routed_environment(plan.env, judge), [candidate])
    assert archive.incumbent is not None
    return archive.incumbent


async def distill(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    start: Prompt,
    rows: Sequence[Example],
    asks: int | None,
    config: Config,
) -> list[Guideline]:
    """Guidelines from labelled rows, batch by batch, each with the ids of the rows that it comes from."""
    batches = [rows[at : at + config.batch] for at in range(0, len(rows), config.batch)][:asks]

    async def one(branch: Run, at: int) -> list[tuple[str, list[str]]]:
        keys = {f"R{at * config.batch + number + 1}": row for number, row in enumerate(batches[at])}
        shown = [f"[{key}] {show_judged(row, config.reason)}" for key, row in keys.items()]
        head = show_instruction(env.description, start, text_in(start, start))
        replies = await policy.write(
            branch, "\n\n".join([head, JUDGED, *shown, REQUEST]), "GUIDELINES", sample=at
        )
        entries = [entry for reply in replies for value in json_values(reply)[:1] for entry in records(value)]
        return [
            (text, [keys[key].id for key in named if key in keys]) for text, named in map(read_entry, entries)
        ]

    proposed = [entry for made in await run.map(one, range(len(batches))) for entry in made]
    held = [
        one
        for one in sourced_guidelines(proposed, {row.id for row in rows})
        if replace_region(start, one.text) and not objectionable(secrets, rows, start.source, one.text)
    ]
    run.log("guidelines", {"proposed": len(proposed), "held": len(held)})
    return held


def read_entry(entry: dict[str, object]) -> tuple[str, list[str]]:
    """A guideline and the keys of its sources; '' for an entry without one."""
    text, sources = entry.get("guideline"), entry.get("sources")
    names = sources if isinstance(sources, list) else [sources]
    return (text if isinstance(text, str) else ""), [str(name).strip().strip("[]") for name in names]


def judgement_of(row: Example, reason: str) -> LabelledText:
    """The content of a labelled row."""
    why = row.row.get(reason)
    return LabelledText(row.id, row.user_text, str(row.target), why if isinstance(why, str) else "")


def show_judged(row: Example, reason: str) -> str:
    """A labelled row as the writer of guidelines reads it."""
    why = judgement_of(row, reason).reason
    return show_example(row) + (f"\nReason: {why}" if why else "")


def admits(start: Prompt, judgement: LabelledText) -> bool:
    """Whether a judgement can stand in the prompt: not if it would add a slot or a marker."""
    return replace_region(start, f"{text_in(start, start)}\n{judgement.text}") is not None


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Routed:
    """The task in which the memory of a blob is shown beside every input. Raises UsageError for another blob."""
    return routed_environment(env, read_judge(blob))


JUDGED = "Inputs of that model, and what people said is right for each:"
REQUEST = (
    "Which rules do these people follow that the instruction does not state? Write a JSON list: "
    '[{"guideline": "one sentence that holds for other inputs too", "sources": ["R1", "R4"]}]. Sources are the rows that show it.'
    " Copy no input."
)
