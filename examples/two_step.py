"""A program of two prompts: search Python's own documentation, then answer from what was retrieved.

    python examples/two_step.py

The pages are the first lines of the docstrings of Python's standard library, so that they are on every machine. A question
is such a line; the answer is the function. `answerer` and `writer` stand in for language models so that the example runs
without a key: the first obeys a few wordings, the second proposes wordings. Put addresses in their place
(lm="openai/gpt-4o-mini") and the rest stays as it is.
"""

import importlib
import inspect
import random
import re

import whet

MODULES = (
    *(
        "base64",
        "bisect",
        "calendar",
        "colorsys",
        "difflib",
        "fnmatch",
        "glob",
        "heapq",
        "html",
        "inspect",
        "json",
    ),
    *("keyword", "linecache", "locale", "math", "operator", "os", "random", "shutil", "statistics", "string"),
    *("tempfile", "textwrap", "tokenize", "urllib.parse", "uuid", "zipfile"),
)


def read_pages() -> dict[str, str]:
    """First docstring line by function, for the functions whose line no other one has."""
    lines: dict[str, list[str]] = {}
    for module in map(importlib.import_module, MODULES):
        for name, value in inspect.getmembers(module, inspect.isroutine):
            line = (inspect.getdoc(value) or "").partition("\n")[0].strip()
            if not name.startswith("_") and len(line.split()) > 5 and name not in line:
                lines.setdefault(line, []).append(f"{module.__name__}.{name}")
    return {names[0]: line for line, names in lines.items() if len(names) == 1}


PAGES = read_pages()
PROMPTS = {
    "search": "Write a query for a search engine.\n<!-- whet:begin -->\nBe quick.\n<!-- whet:end -->\nQuestion: {{question}}",
    "answer": "Pages:\n{{pages}}\n<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\nQuestion: {{question}}",
}


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower()))


def retrieve(query: str) -> list[str]:
    """The three pages that share most words with a query."""
    ranked = sorted(PAGES, key=lambda name: (-len(words_of(query) & words_of(PAGES[name])), name))
    return [f"{name}: {PAGES[name]}" for name in ranked[:3]]


async def program(lm, prompts, example):
    query = await lm("search", question=example["question"])
    pages = await lm.tool(retrieve, query)
    return await lm("answer", question=example["question"], pages="\n".join(pages))


def metric(example, output):
    """1 for the function's name and nothing else; half if more is said; a critique for the prompt that is to blame."""
    if output == example["target"]:
        return {"reward": 1.0}
    if example["target"] in output.split():
        return {"reward": 0.5, "critique": {"answer": "More was written than the name."}}
    return {
        "reward": 0.0,
        "critique": {"search": "The page that answers was not among those that were retrieved."},
    }


def answerer(messages):
    """Stands in for the task model. A query has the first two words of the question, unless all are wanted."""
    text = messages[0].content
    question = text.rpartition("Question: ")[2]
    if text.startswith("Write a query"):
        return question if "every word" in text else " ".join(question.split()[:2])
    pages = text.partition("Question:")[0].splitlines()[1:4]
    best = max(pages, key=lambda page: len(words_of(page) & words_of(question)))
    name = best.partition(":")[0]
    return name if "only" in text else f"It is {name} I think."


def writer(messages):
    """Stands in for the optimizer model: it writes the first of a few wordings that it is not shown as tried."""
    wordings = ("Think first.", "Take every word of the question.", "Be polite.", "Write only the name.")
    new = [wording for wording in wordings if wording not in messages[0].content]
    return f"<PROMPT>{(new or wordings)[0]}</PROMPT>"


def main() -> None:
    rng = random.Random(0)
    names = rng.sample(sorted(PAGES), min(150, len(PAGES)))
    rows = [{"id": name, "input": {"question": PAGES[name]}, "target": name} for name in names]
    result = whet.optimize(
        PROMPTS,
        program={"function": program, "calls": 2},
        data=rows,
        reward=metric,
        lm=answerer,
        optimizer_lm=writer,
        method="opro",
        settings={"steps": 4, "samples": 1, "finalists": 1},
        budget=whet.Budget(calls=3000),
    )
    print(result.improvement.reason)
    print(result.best.prompt.text)
    for name, row in result["ablation"]["without"].items():
        print(f"{name} earned {row['gain']:.2f}")


if __name__ == "__main__":
    main()
