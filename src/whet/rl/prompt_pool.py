"""A pool of prompts that a model writes from examples, several in one call; a method then chooses among them."""

from __future__ import annotations

from collections.abc import Sequence

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rl.language import TAG, LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.edits import replace_region
from whet.search.minibatch import head_examples, minibatch, show_example, wanted_answers_known
from whet.types import Example


async def write_pool(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, calls: int, per_call: int, most: int
) -> list[Prompt]:
    """At most `most` prompts that a model writes, `per_call` in a call, each call from other examples."""
    jobs = [(n, minibatch(run.rng, env.train, SHOWN, balanced=True)) for n in range(calls)]

    async def write(branch: Run, job: tuple[int, Sequence[Example]]) -> list[str]:
        number, rows = job
        about = show_instruction(env.description, start, start.region_text().strip(), INSTRUCTION)
        request = SUCH if wanted_answers_known(rows) else BETTER
        shown = [head_examples(rows), *map(show_example, rows), f"Write {per_call} {request} {DIFFERENT}"]
        question = "\n\n".join([PURPOSE, about, *shown])
        return await policy.write(branch, question, TAG, sample=number, many=True)

    texts = dict.fromkeys(text for reply in await run.map(write, jobs) for text in reply)
    made = (replace_region(start, text) for text in texts)
    return [prompt for prompt in made if prompt is not None][:most]


SHOWN = 5
PURPOSE = "You write instructions for a language model."
INSTRUCTION = "The instruction now:"
SUCH = "different instructions with which the model would give such answers to any input of this kind."
BETTER = "different instructions with which the model would answer any input of this kind well."
DIFFERENT = "They must differ in what they say, not only in words, and must not copy the inputs."
