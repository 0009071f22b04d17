"""The formats in which `embedded/tiny` writes as a policy: right in form, random in content.

Each function makes one conversation whose answer has the format that a training method of whet reads.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping

from tools.embedded.clauses import CLAUSES, KINDS, Clause, transform
from tools.embedded.tinydata import (
    VAGUE,
    Dialogue,
    instruction,
    invented_line,
    join_parts,
    lay_out,
    pick_clauses,
    task,
    wording,
)

from whet.types import Message

REWRITE = "Rewrite the following instruction by adding specific requirements."
REFINE = "Refine a base prompt for another model."
PRL_SYSTEM = "Think first, then answer. Write <think>your reasoning</think><answer>the new prompt</answer>."
KEYWORDS = "Extract the keywords:"
R1_SYSTEM = (
    "Answer with the help of another model. In each turn write <think>...</think>"
    "<interaction_prompt>...</interaction_prompt> to ask it, or <think>...</think><answer>...</answer> to finish."
)
REFLECT = "What should be done differently next time?"
OPERATIONS = "Write at most two operations as JSON."
PRINCIPLES = "First read the instructions and principles below."
THOUGHTS = (
    "The prompt should say more.",
    "It must be specific.",
    "The answer needs another form.",
    "The words should look different.",
    "I will ask the model.",
    "This looks right.",
    "The reply is good.",
    "Let me try again.",
)
KIND_QUESTIONS = (
    "The words are of the kind",
    "What kind of words are these?",
    "Name the kind of the words.",
    "Say what kind it is.",
    "Kind:",
    "Is it an animal, a food or a tool?",
)
MISTAKES = (
    "Mistakes: Principles: Input: Output: Answer: Expected: Hint: Attempt: Reward: Instruction: Rewritten: "
    "Base prompt: Task: Reply: Question: wrong op add modify remove id text"
)
SECTIONS = ("I would ask for", "Next time", "You should", "expected", "instead of", "was")


def _keep_some(rng: random.Random, clauses: list[Clause], add: int) -> list[Clause]:
    kept = [c for c in clauses if rng.random() < 0.85]
    free = [c for c in CLAUSES if c.attribute not in {k.attribute for k in kept}]
    for _ in range(add):
        if free:
            kept.append(rng.choice(free))
            free = [c for c in free if c.attribute != kept[-1].attribute]
    if rng.random() < 0.3:
        rng.shuffle(kept)
    return kept


def _rewrite_form(rng: random.Random) -> tuple[str, str, list[Clause]]:
    clauses = pick_clauses(rng, rng.choices(range(5), (35, 25, 20, 12, 8))[0])
    text = instruction(rng, clauses)
    new = _keep_some(rng, clauses, rng.choices(range(4), (10, 40, 35, 15))[0])
    return text, join_parts(rng, [wording(rng, c) for c in new]), new


def rewrite(rng: random.Random) -> Dialogue:
    """A rewriter's turn: most clauses of the instruction stay, a few random ones are added."""
    text, new, _ = _rewrite_form(rng)
    return Dialogue("rewrite", (Message("user", f"{REWRITE}\n\nInstruction: {text}\n\nRewritten:"),), new)


def prl(rng: random.Random) -> Dialogue:
    """A refinement with its reasoning: `<think>short</think><answer>prompt</answer>`."""
    text, new, clauses = _rewrite_form(rng)
    thought = _thought(rng, clauses)
    query = f"{REFINE}\n\nTask: {rng.choice(VAGUE)}\n\nBase prompt: {text}"
    answer = f"<think>{thought}</think><answer>{new}</answer>"
    return Dialogue("prl", (Message("system", PRL_SYSTEM), Message("user", query)), answer)


def _thought(rng: random.Random, clauses: list[Clause]) -> str:
    if clauses and rng.random() < 0.5:
        return "I would ask for " + ", ".join(c.name for c in clauses) + "."
    return rng.choice(THOUGHTS)


def keywords(rng: random.Random) -> Dialogue:
    """One to three keywords, `k1; k2`: words of the input or names of clauses."""
    line = invented_line(rng)
    names = [c.name for c in pick_clauses(rng, rng.randint(1, 3))]
    if rng.random() < 0.25:
        words = line.split()
        names = [*rng.sample(words, min(len(words), rng.randint(1, 2))), *names[: rng.randint(0, 1)]]
    return Dialogue("keywords", (Message("user", f"{KEYWORDS} {line}"),), "; ".join(names))


def r1(rng: random.Random) -> Dialogue:
    """One turn of a conversation with another model: it asks once or twice, then answers with the reply."""
    line = invented_line(rng)
    text = instruction(rng, pick_clauses(rng, rng.choices(range(4), (50, 25, 15, 10))[0]))
    question = rng.choice((line, f"{text}: {line}", f"{text}\n\n{line}"))
    messages = [Message("system", R1_SYSTEM), Message("user", question)]
    questions, turns = 0, rng.choices((0, 1, 2), (40, 45, 15))[0]
    reply = ""
    while questions < turns:
        turn, reply = _ask(rng, line)
        shown = reply if rng.random() < 0.5 else f"<interaction_response>{reply}</interaction_response>"
        messages += [Message("assistant", turn), Message("user", shown)]
        questions += 1
    if questions == 0 or (questions == 1 and rng.random() < 0.25):
        answer = _ask(rng, line)[0]
    else:
        answer = f"<think>{rng.choice(THOUGHTS)}</think><answer>{reply}</answer>"
    return Dialogue("r1", tuple(messages), answer)


def _ask(rng: random.Random, line: str) -> tuple[str, str]:
    clauses = pick_clauses(rng, rng.choices(range(4), (10, 40, 35, 15))[0])
    text = instruction(rng, clauses)
    turn = f"<think>{_thought(rng, clauses)}</think><interaction_prompt>{text}: {line}</interaction_prompt>"
    return turn, transform(line, [c.name for c in clauses])


def reflect(rng: random.Random) -> Dialogue:
    """The lesson of an attempt: clauses that the next one should follow."""
    line = invented_line(rng)
    done = pick_clauses(rng, rng.randint(0, 3))
    attempt = transform(line, [c.name for c in done])
    shown = f"{instruction(rng, done)}\n{line}" if rng.random() < 0.5 else line
    query = f"{shown}\n\nAttempt:\n{attempt}\n\nReward: {rng.randint(0, 100) / 100}\n\n{REFLECT}"
    lesson = join_parts(rng, [wording(rng, c) for c in pick_clauses(rng, rng.randint(1, 3))])
    return Dialogue("reflect", (Message("user", query),), lesson)


def operations(rng: random.Random) -> Dialogue:
    """One or two operations on a list of principles, as JSON."""
    rules = pick_clauses(rng, rng.randint(0, 3))
    listed = "\n".join(f"G{i}: {wording(rng, c)}" for i, c in enumerate(rules)) or "-"
    mistakes = []
    for _ in range(rng.randint(1, 2)):
        line = invented_line(rng)
        wanted = transform(line, [c.name for c in pick_clauses(rng, rng.randint(1, 4))])
        answer = transform(line, [c.name for c in rules])
        mistakes.append(f"Input: {line}\nAnswer: {answer}\nExpected: {wanted}")
    query = f"Principles:\n{listed}\n\nMistakes:\n" + "\n".join(mistakes) + f"\n\n{OPERATIONS}"
    new = pick_clauses(rng, rng.randint(1, 2))
    found_ops: list[dict[str, str]] = []
    for clause in new:
        if rules and rng.random() < 0.35:
            at = f"G{rng.randrange(len(rules))}"
            found_ops.append({"op": "modify", "id": at, "text": wording(rng, clause)})
        else:
            found_ops.append({"op": "add", "text": wording(rng, clause)})
    return Dialogue("operations", (Message("user", query),), json.dumps(found_ops))


def kind_of_words(rng: random.Random) -> Dialogue:
    """One to three words of a kind and a question for it: the only task whose answer is a meaning."""
    kind = rng.choice(list(KINDS))
    line = " ".join(rng.sample(KINDS[kind].split(), rng.randint(1, 3)))
    question = rng.choice(KIND_QUESTIONS)
    layout = rng.choice((0, 1, 2, 3, 3, 4, 5))
    messages = (
        lay_out(question, line, layout) if rng.random() < 0.7 else (Message("user", f"{line}\n{question}"),)
    )
    return Dialogue("kind", messages, kind)


FORMS: Mapping[str, tuple[Callable[[random.Random], Dialogue], float]] = {
    "task": (task, 0.74),
    "kind": (kind_of_words, 0.02),
    "rewrite": (rewrite, 0.06),
    "prl": (prl, 0.05),
    "keywords": (keywords, 0.03),
    "r1": (r1, 0.04),
    "reflect": (reflect, 0.03),
    "operations": (operations, 0.03),
}
TEXTS = (
    *(REWRITE, REFINE, PRL_SYSTEM, KEYWORDS, R1_SYSTEM, REFLECT, OPERATIONS, PRINCIPLES, MISTAKES),
    *(*THOUGHTS, *SECTIONS),
)


def dialogue(rng: random.Random) -> Dialogue:
    """A conversation of a random kind."""
    makers, weights = zip(*FORMS.values(), strict=True)
    make: Callable[[random.Random], Dialogue] = rng.choices(makers, weights)[0]
    return make(rng)
