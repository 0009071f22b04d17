"""The conversations from which `embedded/tiny` is trained, and its tokenizer.

Everything here is made up from the clause table and from random words; no text of others is used. Three
quarters of the conversations are tasks (an instruction made of clauses, a line of words, the line as the
clauses demand it), one quarter are the formats in which a policy writes (:mod:`tools.embedded.tinyforms`),
with random clauses as content: a deliberately mediocre writer, for reinforcement learning to improve.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tools.embedded.clauses import ATTRIBUTES, CLAUSES, KINDS, Clause, transform

from whet.types import Message

SPECIALS = ("<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if not loop.last or add_generation_prompt or m['role'] != 'assistant' %}{{ '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
PIECES = r"</?[a-z_]+>| ?[A-Za-z]+|\n\n|[^A-Za-z]"

LEADS = (
    "Please",
    "Rewrite the input:",
    "Change the words of the input:",
    "Do the following:",
    "Your task:",
    "For each input,",
    "Transform the line:",
    "You must",
)
VAGUE = (
    "Change the words.",
    "Rewrite the line in the right form.",
    "Answer the question.",
    "Follow the rules.",
    "Write the line as the rules demand.",
    "Do what is asked.",
    "Be careful.",
    "Give only the answer.",
    "Nothing else.",
    "Think about the words.",
    "Transform the input.",
    "Here are some words.",
)
JOINERS = (", ", ", and ", " and ", "; ", ". ", "\n", "\n- ", ", then ")
TAGS = ("<think>", "</think>", "<answer>", "</answer>", "<interaction_prompt>", "</interaction_prompt>")
MORE_TAGS = ("<interaction_response>", "</interaction_response>")

_HARD = {"order": 4.0, "repetition": 3.0, "case": 1.5, "capital ends": 3.0, "selection": 1.5}
_ONSETS = "b br c ch cl d dr f fl g gr h j k l m n p pl qu r s sh sl st t th tr v w y z"
_VOWELS = "a e i o u a e i o u ai ea oo ou"
_CODAS = "b bb ck d dd ff g gg k l l ll m mm n n nd ng nt p pp r r rd rk rn rr s ss st t tt th x zz"


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What the model reads and the answer that it learns; `kind` names the format, `names` the clauses."""

    kind: str
    messages: tuple[Message, ...]
    answer: str
    names: tuple[str, ...] = ()


def invented_word(rng: random.Random) -> str:
    """A word of 2 to 9 lower-case letters: mostly pronounceable, one in five of random letters."""
    draw = rng.random()
    if draw < 0.2:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 8)))
    word = "" if rng.random() < 0.85 else rng.choice("aeiou")
    for _ in range(rng.choice((1, 2, 2, 3))):
        word += (
            rng.choice(_ONSETS.split()) + rng.choice(_VOWELS.split()) + rng.choice(("", "", *_CODAS.split()))
        )
    return word[: rng.randint(6, 9)]


def invented_line(rng: random.Random) -> str:
    """Two to four invented words; now and then one is a word of the instructions or of a kind."""
    words = [invented_word(rng) for _ in range(rng.choice((2, 3, 3, 3, 4)))]
    if rng.random() < 0.03:
        words[rng.randrange(len(words))] = rng.choice(_instruction_words())
    if rng.random() < 0.04:
        words[0] = rng.choice(rng.choice(list(KINDS.values())).split())
    return " ".join(words)


def pick_clauses(rng: random.Random, count: int) -> list[Clause]:
    """`count` clauses (0 to 8) of different attributes in random order."""
    attributes = rng.sample(ATTRIBUTES, count)
    return [rng.choice([c for c in CLAUSES if c.attribute == a]) for a in attributes]


def weighted_clauses(rng: random.Random, count: int) -> list[Clause]:
    """As `pick_clauses`, the attributes and clauses that are hard to learn more often."""
    left = list(ATTRIBUTES)
    chosen = []
    for _ in range(count):
        attribute = rng.choices(left, [_HARD.get(a, 1.0) for a in left])[0]
        left.remove(attribute)
        choices = [c for c in CLAUSES if c.attribute == attribute]
        chosen.append(rng.choices(choices, [_HARD.get(c.name, 1.0) for c in choices])[0])
    return chosen


def wording(rng: random.Random, clause: Clause, held: bool = False) -> str:
    """One wording of a clause; its short name now and then. `held`: a wording never trained on."""
    if held:
        return rng.choice(clause.held)
    return clause.name if rng.random() < 0.12 else rng.choice(clause.wordings)


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def join_parts(rng: random.Random, parts: Sequence[str]) -> str:
    """The parts as one instruction: a list, a sentence, sentences or lines; leads and vague words around."""
    if not parts:
        return rng.choice(VAGUE)
    joiner = rng.choice(JOINERS)
    lead = rng.choice(LEADS) if rng.random() < 0.3 else ""
    text = joiner.join(parts) + rng.choice(("", ".", "."))
    if joiner == ". ":
        text = " ".join(capital(part) + "." for part in parts)
    elif joiner == "\n- ":
        text = "- " + text
    if lead:
        text = lead + ("\n" if "\n" in joiner else " ") + text
    elif rng.random() < 0.7:
        text = capital(text)
    if rng.random() < 0.2:
        text = f"{rng.choice(VAGUE)} {text}"
    return f"{text} {rng.choice(VAGUE)}" if rng.random() < 0.15 else text


def instruction(rng: random.Random, clauses: Sequence[Clause], held: bool = False) -> str:
    """An instruction that says the clauses in the given order."""
    return join_parts(rng, [wording(rng, clause, held) for clause in clauses])


def clause_count(rng: random.Random) -> int:
    """How many clauses a training instruction has: 0 to 6, two on average."""
    return rng.choices(range(7), (5, 32, 24, 17, 13, 6, 3))[0]


def task(rng: random.Random) -> Dialogue:
    """An instruction and a line in one of several layouts, answered as the clauses demand."""
    clauses = weighted_clauses(rng, clause_count(rng))
    rules = list(clauses)
    if rules and rng.random() < 0.06:
        other = rng.choice([c for c in CLAUSES if c.attribute == rules[-1].attribute])
        rules.append(other)
    names, line = tuple(c.name for c in rules), invented_line(rng)
    answer = transform(line, names)
    draw = rng.random()
    if draw < 0.14:
        return Dialogue("hint", _hinted_messages(rng, rules, line), answer, names)
    if draw < 0.26:
        return Dialogue("principles", _principled_messages(rng, rules, line), answer, names)
    text = instruction(rng, rules)
    if rng.random() < 0.04:
        text = " ".join(word for word in text.split() if rng.random() > 0.15)
    return Dialogue(
        "task", lay_out(text, line, rng.choices(range(6), (60, 12, 8, 6, 8, 6))[0]), answer, names
    )


def lay_out(text: str, line: str, layout: int) -> tuple[Message, ...]:
    """Instruction and line as messages; layout 0 is an instruction in the system message, 1 to 5 one user message."""
    if layout == 0:
        return (Message("system", text), Message("user", line))
    if layout == 1:
        return (Message("user", f"{text}\n\n{line}"),)
    if layout == 2:
        return (Message("user", f"{text}\n\nInput: {line}\nOutput:"),)
    if layout == 3:
        return (Message("user", f"{line}\n\n{text}"),)
    if layout == 4:
        return (Message("user", f"{text}: {line}"),)
    return (Message("user", f"{text}\n{line}"),)


def _hinted_messages(rng: random.Random, clauses: Sequence[Clause], line: str) -> tuple[Message, ...]:
    cut = rng.randint(0, len(clauses)) if rng.random() < 0.25 else 0
    head, hinted = clauses[:cut], clauses[cut:]
    names = "; ".join(c.name for c in hinted)
    text = instruction(rng, head) if head else rng.choice(("", *VAGUE))
    user = Message("user", f"{line}\nHint: {names}" if hinted or rng.random() < 0.5 else line)
    return (Message("system", text), user) if text else (user,)


def _principled_messages(rng: random.Random, clauses: Sequence[Clause], line: str) -> tuple[Message, ...]:
    rules = "\n".join(f"G{i}: {wording(rng, c)}" for i, c in enumerate(clauses))
    text = f"First read the instructions and principles below.\n{rules}"
    if rng.random() < 0.3:
        text = f"{rng.choice(VAGUE)}\n{text}"
    if rng.random() < 0.5:
        return (Message("system", text), Message("user", line))
    return (Message("user", f"{text}\n\n{line}"),)


def _instruction_words() -> list[str]:
    return sorted({word for c in CLAUSES for text in c.wordings for word in re.findall("[a-z]+", text)})


def vocabulary(texts: Sequence[str]) -> list[str]:
    """Every word of the clauses and of `texts` as whole pieces: bare, after a space, and with a capital."""
    corpus = " ".join([*(text for c in CLAUSES for text in (c.name, *c.wordings)), *LEADS, *VAGUE, *texts])
    words = sorted({w.lower() for w in re.findall("[A-Za-z]{2,}", re.sub("<[^>]*>", " ", corpus))})
    return [form for w in words for form in (w, "Ġ" + w, capital(w), "Ġ" + capital(w))] + ["Ġa", "ĊĊ"]


def make_tokenizer(texts: Sequence[str]) -> Any:
    """A `tokenizers.Tokenizer`: known words are one token, all other text goes byte by byte."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    pieces = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *TAGS, *MORE_TAGS, *vocabulary(texts)]
    model = models.BPE({piece: i for i, piece in enumerate(pieces)}, [], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(special, special=True, normalized=False) for special in SPECIALS]
    )
    return tokenizer


def chat_text(messages: Sequence[Message]) -> str:
    """The text that the chat template makes of a conversation that waits for an answer."""
    return "".join(f"<|{m.role}|>{m.content}<|end|>" for m in messages) + "<|assistant|>"
