"""Questions about requirements: a model finds out from a person what a good answer is.

Ma, Peng, Shen, Koedinger, Wu: What Should We Engineer in Prompts? Training Humans in Requirement-Driven LLM Use. 2024
(arXiv:2409.08775). The method `rope` asks during a search; here there is only a model that reads inputs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from whet.models.addresses import resolve
from whet.rl import LanguagePolicy, OpenPoint, write_question
from whet.run import MemoryRun, Run

MOST_QUESTIONS, READINGS = 6, 2
INPUT, REQUIRED, PROMPT = "The input:", "Requirements:", "The prompt so far:"
ANSWER = "Answer the input as the requirements say. What they leave open is yours to choose."


def requirement_questions(
    inputs: Sequence[str], address: str, stated: Sequence[str], prompt: str = ""
) -> Iterator[tuple[str, OpenPoint | None]]:
    """Questions that a model at the address writes to a person about what answers must meet, each when it is its turn; with the
    input and the two different answers that it is about.

    The model answers each input twice under the `prompt`, where there is one, and what is `stated` by then, which may grow
    meanwhile; the question is about the input whose answers differ most, or, where none differ, about all inputs without answers.
    The questions end where it writes none, or one that it wrote before, and after 6. Raises UsageError for an address that there
    is not, and ProviderError.
    """
    model, earlier = resolve(address), list[str]()
    run, policy = MemoryRun({"optimizer": model}), LanguagePolicy()

    async def answer(branch: Run, text: str) -> OpenPoint:
        required = "\n".join(f"- {line}" for line in stated)
        parts = [prompt, f"{INPUT}\n{text}", required and f"{REQUIRED}\n{required}", ANSWER]
        question = "\n\n".join(filter(None, parts))
        return OpenPoint(text, tuple(await policy.write(branch, question, "ANSWER", READINGS)))

    async def ask(number: int) -> tuple[str | None, OpenPoint | None]:
        try:
            points = await run.map(answer, inputs)
            widest = max(points, key=lambda point: point.spread, default=OpenPoint(""))
            shown = [widest] if widest.spread else [OpenPoint(point.input) for point in points]
            about = f"{PROMPT}\n{prompt}" if prompt else ""
            text = await write_question(run, policy, shown, stated, earlier, about=about, sample=number)
            return text, widest if widest.spread else None
        finally:
            await model.close()

    for number in range(MOST_QUESTIONS):
        text, point = asyncio.run(ask(number))
        if text is None or text in earlier:
            return
        earlier.append(text)
        yield text, point
