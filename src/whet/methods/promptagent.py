"""PromptAgent: Monte Carlo tree search over prompts, each step a rewrite against the errors of the prompt before it.

Wang, Li, Wang, Bai, Luo, Zhang, Jojic, Xing, Hu: PromptAgent: Strategic Planning with Language Models Enables Expert-level Prompt
Optimization. ICLR 2024. arXiv:2310.16427.

    root <- start
    repeat `iterations` times:
        from the root go to the child with the highest UCT until a leaf is reached
        until the path ends: expand the leaf, and go on to its best child
            expand: `width` times draw a batch of examples that the prompt was asked; a model says what is wrong with the
            prompt (with a batch that is all right: what is good about it); a model rewrites the prompt, shown all prompts
            on the way from the root; score the new prompt on the evaluation examples
        a path ends at `depth`, below `least` where a prompt is worse than the mean of its parent and the root, and where one is
        better than all before it
        back up: each node of the path gets the rewards from there to the end
    return the best prompt of the path with the best mean

Differences from the paper and its code:
1. A path gives each of its nodes the mean reward from there to its end. The code gives the sum, which grows with the length of
   the path, so that its weight 2.5 means something else at each level. On the scale of a mean `c` is 0.3.
2. A batch is drawn from the rollouts on which the prompt was scored, so that no prompt answers a row twice. In a batch are only
   errors as far as there are some.
3. The result is chosen on validation examples among the start, the leaders, the paper's choice and the best by training score.
4. Before a start that earns nothing come two prompts that take no optimizer call (`whet.search.from_zero`); those that earn
   something are the first children of the root.
5. Within a limit on calls the examples, the expansions and their width are cut to what the limit pays (`whet.search.plan`), the
   width first, but not below 2, so that a path can reach the last level.
6. `tree` of false expands the root alone: the control, which builds nothing on what it found.

Run it:  whet optimize TASK --method promptagent --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, in_tags, show_instruction
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.edits import text_in
from whet.search.minibatch import show_rollout
from whet.search.tree import Growth, PromptNode, search_tree
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "promptagent",
    "PromptAgent: tree search over rewrites",
    version=1,
    rank=45,
    when="wrong answers show what the prompt lacks, and it takes several rewrites in a row",
    paper="Wang et al., ICLR 2024",
    arxiv="2310.16427",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of PromptAgent."""

    iterations: NonNegativeInt = 10
    """Paths from the root to an end."""
    width: PositiveInt = 3
    """Children of an expansion, each from a batch of its own."""
    depth: PositiveInt = 5
    """Rewrites on a path at most (L)."""
    least: NonNegativeInt = 2
    """Up to this level no path ends early."""
    batch: PositiveInt = 5
    """Rollouts shown to the critic and to the writer."""
    c: NonNegativeFloat = 0.3
    """Exploration of UCT, on the scale of a mean reward from 0 to 1."""
    examples: PositiveInt = 50
    """Training examples that each prompt is scored on."""
    tree: bool = True
    """Whether there is a tree; if false, every expansion starts from the root."""
    finalists: PositiveInt = 3
    """Prompts validated at the end."""


async def promptagent(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Monte Carlo tree search; see the module."""

    async def rewrites(run: Run, node: PromptNode, growth: Growth, width: int) -> list[list[Candidate]]:
        batches = [(i, node.errors(run, env, config.batch)) for i in range(width)]
        number, current = growth.number(width), policy.adapt()
        about = partial(rewrite_node, env=env, policy=current, start=start, train=growth.train)
        return await run.map(partial(about, node=node, sample=number), batches)

    return await search_tree(run, env, start, config, rewrites, secrets, asks=2)


async def rewrite_node(
    run: Run,
    numbered: tuple[int, Sequence[Rollout]],
    env: Environment,
    policy: LanguagePolicy,
    start: Prompt,
    train: Sequence[Example],
    node: PromptNode,
    sample: int,
) -> list[Candidate]:
    """A prompt rewritten by what a model says about a batch of its rollouts; none without a usable reply."""
    number, batch = numbered
    rows = {row.id: row for row in train}
    wrong = any(rollout.reward < env.reward.high for rollout in batch)
    texts = [text_in(start, one.candidate.prompt) for one in node.path]
    shown = [show_rollout(rows[rollout.example_id], rollout) for rollout in batch]
    instruction = show_instruction(env.description, start, texts[-1], INSTRUCTION)
    about = [PURPOSE, instruction, FAILED if wrong else SUCCEEDED, *shown]
    question = "\n\n".join([*about, CRITICISE if wrong else PRAISE])
    feedback = await policy.write(run, question, "FEEDBACK", sample=sample + number)
    way = [TRAJECTORY, *map(in_tags, texts[:-1])] if node.parent else []
    parts = [*about, SAID, *feedback, *way, REWRITE]
    request = "\n\n".join(parts)
    n, parent = len(feedback), node.candidate.id
    written = await policy.rewrite(run, start, request, n, sample=sample + number, text=texts[-1])
    return [Candidate(prompt, (parent,), f"level {node.depth + 1}") for prompt in written]


PURPOSE = "You improve the instruction of a language model."
INSTRUCTION = "The instruction now:"
FAILED = "With this instruction the model failed on these inputs:"
SUCCEEDED = "With this instruction the model answered these inputs well:"
CRITICISE = (
    "Explain for each input why the model failed. Then say what the instruction should state, explain or forbid so that this "
    "does not happen again. Do not write a new instruction."
)
PRAISE = (
    "Say what in the instruction makes these answers good, and what it should add to work as well for other inputs of this kind. "
    "Do not write a new instruction."
)
SAID = "What was said about the instruction:"
TRAJECTORY = "Earlier versions of the instruction, the oldest first:"
REWRITE = (
    "Write a new version of the instruction that takes this into account. Keep what works, and go beyond the earlier versions. "
    "Write rules that hold for all inputs of this kind, and do not copy the inputs above."
)
