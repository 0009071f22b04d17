"""prompt_tree: tree search over sets of instructions; each step adds, rewrites, merges or drops one.

A method of this tool's own: prompt learning (Arize AI, 2025) keeps the editable text as a set of instructions that critiques
change; here these changes are the moves of the tree search of PromptAgent (Wang et al., ICLR 2024, arXiv:2310.16427).

    root <- the lines of the editable text, one instruction each
    repeat `iterations` times:
        from the root go to the child with the highest UCT until a leaf is reached
        until the path ends: expand the leaf, and go on to its best child
            expand: `width` times draw wrong answers with their critiques, and ask a model for one move, the kinds by turns:
                add an instruction, rewrite one, drop one, merge two; score the new set on the evaluation examples
        back up: each node of the path gets the mean reward from there to the end
    return the best set of the path with the best mean

Notes, for there is no paper to differ from:
1. Tree, paths and choice are those of `promptagent` (`whet.search.tree`), and its differences from PromptAgent hold here too.
2. An instruction is a line. A line with a slot stays. What the model writes becomes one line.
3. A move that cannot be read, names a line that is not there, copies 32 characters from a single input or leaves nothing is no
   child. Where there is one instruction only, or a move has its turn that needs two, an instruction is added.
4. `moves` of `add` is the control: what stands stays.

Run it:  whet optimize TASK --method prompt_tree --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, setting
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.copies import copied_input
from whet.search.edits import replace_region, text_in
from whet.search.minibatch import show_rollout
from whet.search.tree import Growth, PromptNode, search_tree
from whet.types import Example, Rollout
from whet_client.prompt.slots import SLOT

ENTRY = MethodEntry(
    "prompt_tree",
    "Prompt tree: instructions added, rewritten, merged and dropped in a tree search",
    version=1,
    rank=47,
    when="the prompt is a list of instructions, and some of them do harm",
    paper="this tool's own; the tree: Wang et al., ICLR 2024",
    arxiv="2310.16427",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of the prompt tree."""

    iterations: NonNegativeInt = 10
    """Paths from the root to an end."""
    width: PositiveInt = 4
    """Moves tried in an expansion, each with a batch of its own."""
    depth: PositiveInt = 8
    """Moves on a path at most."""
    least: NonNegativeInt = 2
    """Up to this level no path ends early."""
    batch: PositiveInt = 5
    """Wrong answers shown with the request for a move."""
    c: NonNegativeFloat = 0.3
    """Exploration of UCT, on the scale of a mean reward from 0 to 1."""
    examples: PositiveInt = 50
    """Training examples that each set is scored on."""
    moves: Literal["all", "add"] = "all"
    """All moves by turns, or only added instructions."""
    tree: bool = True
    """Whether there is a tree; if false, every expansion starts from the root."""
    finalists: PositiveInt = 3
    """Sets validated at the end."""


async def prompt_tree(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Tree search over sets of instructions; see the module."""
    kinds = tuple(REQUESTS) if config.moves == "all" else (ADD,)

    async def moves(run: Run, node: PromptNode, growth: Growth, width: int) -> list[list[Candidate]]:
        first, current = growth.number(width), policy.adapt()
        numbers = range(first, first + width)
        jobs = [(n, kinds[n % len(kinds)], node.errors(run, env, config.batch)) for n in numbers]
        move = partial(make_move, env=env, policy=current, start=start, train=growth.train, node=node)
        return await run.map(move, jobs)

    return await search_tree(run, env, start, config, moves, secrets, asks=1)


async def make_move(
    run: Run,
    job: tuple[int, str, Sequence[Rollout]],
    env: Environment,
    policy: LanguagePolicy,
    start: Prompt,
    train: Sequence[Example],
    node: PromptNode,
) -> list[Candidate]:
    """The set of a node after one move that a model chose; none without a usable reply."""
    sample, kind, batch = job
    old = node.candidate.prompt
    lines = [line for line in text_in(start, old).splitlines() if line.strip()]
    listed = [line for line in lines if not SLOT.search(line)]
    kind = kind if len(listed) > 1 or (kind == REWRITE and listed) else ADD
    rows = {row.id: row for row in train}
    shown = [show_rollout(rows[rollout.example_id], rollout) for rollout in batch]
    numbered = "\n".join(f"{n}. {line.strip()}" for n, line in enumerate(listed, 1))
    about = f"{PURPOSE}\n\n{setting(env.description, start)}{INSTRUCTIONS}\n\n{numbered}"
    question = "\n\n".join([about, ANSWERS, *shown, REQUESTS[kind]])
    for reply in await policy.write(run, question, "MOVE", sample=sample):
        after = apply(kind, reply, lines, listed)
        new = set(after) - set(lines)
        if after and not any(secrets(line) or copied_input(line, env.train, start.source) for line in new):
            prompt = replace_region(start, "\n".join(after) + "\n")
            return [] if prompt is None else [Candidate(prompt, (old.id,), kind)]
    return []


def apply(kind: str, reply: str, lines: Sequence[str], listed: Sequence[str]) -> list[str]:
    """The lines after a move; none where the reply names none of the `listed` lines that it needs, or has no text for them.

    >>> lines = ["Be brief.", "Answer in English.", "Use few words."]
    >>> apply(MERGE, "1, 3\\nBe brief, in few words.", lines, lines)
    ['Be brief, in few words.', 'Answer in English.']
    """
    first, _, rest = reply.strip().partition("\n")
    text = " ".join((reply if kind == ADD else rest).split())
    if kind == ADD:
        return [*lines, text] if text and text not in lines else []
    places = [int(number) - 1 for number in re.findall(r"\d+", first)]
    named = [listed[at] for at in dict.fromkeys(places) if 0 <= at < len(listed)]
    if len(named) != (2 if kind == MERGE else 1) or (kind != DROP and not text):
        return []
    changed = {named[0]: None if kind == DROP else text, **dict.fromkeys(named[1:])}
    return [new for line in lines if (new := changed.get(line, line)) is not None]


ADD, REWRITE, DROP, MERGE = "add", "rewrite", "drop", "merge"
PURPOSE = "You improve the instructions of a language model, one at a time."
INSTRUCTIONS = "The instructions now:"
ANSWERS = "Answers of the model under these instructions:"
REQUESTS = {
    ADD: (
        "Write one more instruction, in one sentence, that prevents what is wrong in these answers. It must hold for all inputs "
        "of this kind, and must not copy the inputs above."
    ),
    REWRITE: (
        "Which instruction is too vague, or wrong, so that these answers came about? Write its number on the first line, and on "
        "the second line a better text of this instruction."
    ),
    DROP: "Which instruction does the most harm to these answers, or the least good? Write its number and nothing else.",
    MERGE: (
        "Which two instructions say the same, or belong together? Write their two numbers on the first line, and on the second "
        "line one instruction that takes the place of both."
    ),
}
