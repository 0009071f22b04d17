"""Questions about requirements: a model finds out from a person what a good answer is.

Ma, Peng, Shen, Koedinger, Wu: What Should We Engineer in Prompts? Training Humans in Requirement-Driven LLM Use. 2024
(arXiv:2409.08775).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from whet.models.addresses import resolve
from whet.rl import LanguagePolicy
from whet.run import MemoryRun

MOST_QUESTIONS, LONGEST = 6, 1000
PURPOSE = "You find out what a person requires of the answers of a language model. You never answer the inputs yourself."
INPUTS = "Some inputs:"
STATED = "What the person requires so far:"
ASKED = "What the person was asked already:"
REQUEST = (
    "Look for an input on which two careful readers who know these requirements would still give different answers. Write one "
    "short question to the person that decides it, in the language of the inputs. Ask nothing that is answered or was asked "
    "already. Where nothing is left to decide, write nothing between the tags."
)


def requirement_questions(inputs: Sequence[str], address: str, stated: Sequence[str]) -> Iterator[str]:
    """Questions that a model at the address writes to a person about what answers must meet, each when it is its turn.

    It reads some inputs, and what is `stated` by then, which may grow meanwhile. The questions end where it writes none, or one
    that it wrote before, and after 6. Raises UsageError for an address that there is not, and ProviderError.
    """
    model, earlier = resolve(address), list[str]()
    run, policy = MemoryRun({"optimizer": model}), LanguagePolicy()

    async def ask(number: int) -> list[str]:
        try:
            shown = [f"- {text[:LONGEST]}" for text in inputs]
            parts = [PURPOSE, "\n".join([INPUTS, *shown])]
            for heading, lines in ((STATED, stated), (ASKED, earlier)):
                parts += ["\n".join([heading, *(f"- {line}" for line in lines)])] if lines else []
            return await policy.write(run, "\n\n".join([*parts, REQUEST]), "QUESTION", sample=number)
        finally:
            await model.close()

    for number in range(MOST_QUESTIONS):
        for text in asyncio.run(ask(number)):
            if text in earlier:
                return
            earlier.append(text)
            yield text
        if len(earlier) <= number:
            return
