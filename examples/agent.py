"""An agent with two tools: it looks up pages and calculates until it says that it is done; then a second prompt answers.

    python examples/agent.py

The pages are the statuses of HTTP with their descriptions, from Python's standard library, so that they are on every machine.
A question asks for the sum of the codes of two of them. `agent` and `writer` stand in for language models so that the example
runs without a key: the first obeys a few wordings, the second writes what the critiques demand. Put addresses in their place
(lm="openai/gpt-4o-mini") and the rest stays as it is.
"""

import http
import itertools
import random

import whet

CODES = {status.description: status.value for status in http.HTTPStatus if status.description}
PROMPTS = {
    "act": """Write the next call of a tool, `search: WORDS` or `add: NUMBER NUMBER ...`, or write: done
<!-- whet:begin -->
Be quick.
<!-- whet:end -->
Question: {{question}}
Notes:
{{notes}}""",
    "answer": """Notes:
{{notes}}
<!-- whet:begin -->
Answer.
<!-- whet:end -->
Question: {{question}}""",
}


def search(words: str) -> str:
    """The code of the page that shares most words with a query."""
    wanted = set(words.lower().split())
    page = max(CODES, key=lambda description: len(wanted & set(description.lower().split())))
    return f"{CODES[page]} ({page})"


def add(numbers: str) -> str:
    """The sum of numbers with blanks between them."""
    return str(sum(map(int, numbers.split())))


TOOLS = {"search": search, "add": add}


async def program(lm, prompts, example):
    notes = []
    for _ in range(5):
        step = await lm("act", notes="\n".join(notes))
        tool, _, argument = step.partition(": ")
        if tool not in TOOLS:
            break
        notes.append(f"{step} -> {await lm.tool(TOOLS[tool], argument)}")
    return await lm("answer", notes="\n".join(notes))


def metric(example, output):
    """1 for the sum and nothing else, half if more is said; a critique for the prompt that is to blame."""
    if output == example["target"]:
        return {"reward": 1.0}
    if example["target"] in output.split():
        return {"reward": 0.5, "critique": {"answer": "More was written than the number."}}
    return {"reward": 0.0, "critique": {"act": "Not every page was looked up and added."}}


def agent(messages):
    """Stands in for the task model. It looks up one page, and two and their sum only where it is told to."""
    text = messages[0].content
    pages = text.partition("Question: ")[2].splitlines()[0].removeprefix("Sum of the codes of: ").split(" | ")
    results = [line.partition("-> ")[2].split()[0] for line in text.splitlines() if "-> " in line]
    if text.startswith("Notes"):
        return results[-1] if "only" in text else f"I think it is {results[-1]} ."
    wanted = 2 if "every page" in text else 1
    if len(results) < wanted:
        return f"search: {pages[len(results)]}"
    return f"add: {' '.join(results)}" if len(results) == wanted == 2 else "done"


def writer(messages):
    """Stands in for the optimizer model: it writes what the critiques that it is shown demand."""
    text = messages[0].content
    pages = "Critique of act: " in text
    return (
        f"<INSTRUCTION>{'Look up every page, then add.' if pages else 'Write only the number.'}</INSTRUCTION>"
    )


def main() -> None:
    rng = random.Random(0)
    pairs = rng.sample(list(itertools.combinations(sorted(CODES), 2)), 100)
    rows = [
        {
            "id": f"q{n}",
            "input": {"question": f"Sum of the codes of: {a} | {b}"},
            "target": str(CODES[a] + CODES[b]),
        }
        for n, (a, b) in enumerate(pairs)
    ]
    result = whet.optimize(
        PROMPTS,
        program={"function": program, "calls": 6},
        data=rows,
        reward=metric,
        lm=agent,
        optimizer_lm=writer,
        method="gepa",
        budget=whet.Budget(calls=6000),
    )
    print(result.improvement.reason)
    print(result.best.prompt.text)
    for name, row in result["ablation"]["without"].items():
        print(f"{name} earned {row['gain']:.2f}")


if __name__ == "__main__":
    main()
