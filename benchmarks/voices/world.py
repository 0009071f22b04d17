"""A mountain hut that answers letters: hidden rules, letters, a simulated task model, a checker and the guests' comments.

Everything here is SIMULATED. A rule is kept when the plan of an answer says so; a guest comments on one broken rule and
never states it. `texts.txt` holds every text; `read_book` derives misspelt, framed and made-up ones from it. What is drawn
depends on its arguments only: the same letter and prompt, the same answer; the same letter and answer, the same comment.
Imports the standard library only, because the task folder gets a copy of this file as its `reward.py`.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

LANGUAGES = {"en": 0.45, "de": 0.2, "es": 0.2, "made-up": 0.15}
NO_DEMAND = ("praise", "spam", "command")
START = "Answer the letter in a kind tone."
OUTSIDE = "You answer the letters that guests write to the Falkengrat hut. Write the plan of the answer."
NAMES = re.findall(
    r"\w+",
    "Brunner Moretti Novak Okafor Lindqvist Petrov Sandoval Haugland Kowalczyk Dubois Ferrante Ivanova Jankowski Keller "
    "Larsson Mbeki Nakamura Oberhofer Pereira Quintero Rossi Schwaiger Tanaka Ueda Valdez Wieser Yilmaz Zelenka",
)
ASKS = {
    "en": (
        "Is there room for us?",
        "How do we get up to you?",
        "Can we stay two nights?",
        "What do we have to know before we set out?",
        "Is our stay confirmed?",
    ),
    "de": (
        "Haben Sie noch Platz?",
        "Wie kommen wir am besten hinauf?",
        "Was müssen wir vorher wissen?",
        "Können wir auch zwei Nächte bleiben?",
    ),
    "es": (
        "¿Queda sitio para nosotros?",
        "¿Cómo se sube hasta allí?",
        "¿Qué hay que saber antes de salir?",
        "¿Podríamos quedarnos dos noches?",
    ),
}
LETTERS = {
    "en": "Good day, {name} here. There are {people} of us and we would come on {day} (booking {ref}). {ask}",
    "de": "Grüß Gott, mein Name ist {name}. Wir sind {people} Personen und kämen am {day} (Buchung {ref}). {ask}",
    "es": "Buenos días, soy {name}. Somos {people} y llegaríamos el {day} (reserva {ref}). {ask}",
}
ROW_VALUE = re.compile(rf"\b(?:{'|'.join(NAMES)})\b|\b\d{{1,2}}\.\d{{1,2}}\.|\bFH-\d{{4}}\b")
KEPT, KEPT_CONTRADICTED, KEPT_BOTH, MOST_BASE = 0.997, 0.02, 0.5, 0.15
ATTENTION, PER_TOKEN = 1500, 0.0001
NEGATING = frozenset(("avoid", "never", "not", "no", "don", "without", "omit", "skip", "refrain"))
LIMITING = NEGATING | {
    "only",
    "once",
    "one",
    "single",
    "limit",
    "leave",
    "instead",
    "out",
    "serious",
    "yourself",
    "private",
}


class Rule(NamedTuple):
    """A hidden rule: what a plan shows, the wordings that state it, those that state its opposite, its word stems."""

    key: str
    topic: str
    keep: str
    broken: str
    wordings: tuple[str, ...]
    opposites: tuple[str, ...]
    cue: str


class Comment(NamedTuple):
    """A comment with slots. Kind: rule, contrary, praise, spam, command (with what it wants: `does`) or vague."""

    kind: str
    rule: str
    language: str
    voice: str
    text: str
    does: str = ""


class Book(NamedTuple):
    """All rules by key, and all comments."""

    rules: dict[str, Rule]
    comments: tuple[Comment, ...]


class Setting(NamedTuple):
    """Which rules are active (`rules` of them, drawn by `seed`) and how people comment.

    `one`: comments an answer. `noise`, `vague`: share of comments that are no demand, or name no fault. `contradict`: share
    of guests who want the opposite of some rule; all others want the rule.
    """

    rules: int = 40
    seed: int = 0
    one: int = 1
    noise: float = 0.1
    vague: float = 0.0
    contradict: float = 0.0


def chance(*key: object) -> float:
    """A number in [0, 1) that depends on the key alone."""
    digest = hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def pick(items: Sequence[Any], *key: object) -> Any:
    """One of the items, by the key."""
    return items[int(chance("pick", *key) * len(items))]


def normal(text: str) -> str:
    """The words of a text in lower case, one space between them."""
    return " ".join(re.findall(r"\w+", text.lower()))


def invent_words(text: str) -> str:
    """The text in the made-up language: each word has one invented word, slots and figures stay."""

    def word(match: re.Match[str]) -> str:
        old = match.group()
        draw = random.Random(f"word/{old.lower()}")
        syllables = [draw.choice("bdfgklmnprstvz") + draw.choice("aeiouy") for _ in range(len(old) // 3 + 1)]
        new = "".join(syllables) + draw.choice(("", "n", "sh", "lk"))
        return new.capitalize() if old[0].isupper() else new

    return re.sub(r"\{\w+\}|[^\W\d_]+", lambda m: m.group() if m.group()[0] == "{" else word(m), text)


def misspelt(text: str) -> str:
    """The text as somebody types it who does not look: small letters, every other long word with letters swapped."""

    def word(match: re.Match[str]) -> str:
        old = match.group().lower()
        if old[0] == "{" or len(old) < 5 or chance("typo", old) < 0.5:
            return old
        at = 1 + int(chance("at", old) * (len(old) - 3))
        return old[:at] + old[at + 1] + old[at] + old[at + 2 :]

    return re.sub(r"\{\w+\}|[^\W\d_]+", word, text)


def read_book(text: str) -> Book:
    """The rules and comments of `texts.txt`, with the comments derived from the written ones."""
    rules: dict[str, Rule] = {}
    written: list[Comment] = []
    frames: list[Comment] = []
    for block in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        head, *lines = block.strip().splitlines()
        key, _, topic = head.partition(" | ")
        fields: dict[str, list[str]] = {}
        for name, _, value in (line.partition(": ") for line in lines if line):
            words = name.split()
            if len(words) == 1:
                fields.setdefault(name, []).append(value)
                continue
            kind = key[1:] if key[0] == "!" else "contrary" if words[0] == "contra" else "rule"
            body, _, does = value.partition(" => ")
            comment = Comment(kind, "" if key[0] == "!" else key, words[-2], words[-1], body, does)
            (frames if kind == "frame" else written).append(comment)
        if fields:
            cue = next(sign + v for sign in "+-" for v in fields.get(f"cue{sign}", ()))
            [keep], [broken] = fields["keep"], fields["break"]
            rules[key] = Rule(key, topic, keep, broken, tuple(fields["say"]), tuple(fields["not"]), cue)
    return Book(rules, tuple(dict.fromkeys(derived for c in written for derived in (c, *_derive(c, frames)))))


def _derive(comment: Comment, frames: Iterable[Comment]) -> Iterable[Comment]:
    """The comment made up, misspelt and framed, where that reads naturally."""
    if comment.language == "en":
        yield comment._replace(language="made-up", text=invent_words(comment.text))
    if comment.voice in ("terse", "question", "wish") and len(comment.text.split()) > 4:
        yield comment._replace(voice="misspelt", text=misspelt(comment.text))
    fitting = [f for f in frames if f.language == comment.language]
    if (
        fitting
        and comment.kind in ("rule", "contrary")
        and comment.voice in ("terse", "question", "sarcastic")
    ):
        frame = pick(fitting, "frame", comment.text)
        yield comment._replace(voice=frame.voice, text=frame.text.replace("{core}", comment.text))


class World:
    """The rules of one setting: letters, answers of the simulated task model, the checker and the comments.

    With `free` the task model also understands other wordings, by word stems; for a person in the optimizer's seat.
    """

    def __init__(self, book: Book, setting: Setting | None = None, free: bool = False) -> None:
        self.book, self.setting = book, setting or Setting()
        setting = self.setting
        self._reader = Reader(book) if free else None
        drawn = random.Random(f"rules/{setting.seed}").sample(sorted(book.rules), setting.rules)
        self.rules = [rule for key, rule in book.rules.items() if key in drawn]
        self._by: dict[tuple[str, str, str], list[Comment]] = {}
        for comment in book.comments:
            self._by.setdefault((comment.kind, comment.rule, comment.language), []).append(comment)
        self._contested = [rule.key for rule in self.rules if ("contrary", rule.key, "en") in self._by]
        self._lines: dict[str, tuple[tuple[str, int], ...]] = {}

    # Letters.

    def letter(self, number: int) -> dict[str, Any]:
        """One row of the task: id, input and what the letter says."""
        draw = random.Random(f"letter/{self.setting.seed}/{number}")
        language = draw.choice(("en", "en", "de", "es"))
        values = {
            "name": draw.choice(NAMES),
            "day": f"{draw.randint(1, 28)}.{draw.randint(6, 9)}.",
            "people": draw.randint(2, 9),
            "ref": f"FH-{draw.randint(1000, 9999)}",
        }
        text = LETTERS[language].format(**values, ask=draw.choice(ASKS[language]))
        return {"id": f"letter-{number:05d}", "input": text, **values}

    # The task model.

    def states(self, line: str) -> tuple[tuple[str, int], ...]:
        """The rules that a line states (1) or whose opposite it states (-1)."""
        if line not in self._lines:
            sentences = re.split(r"[.;!?]+\s+", line)
            stated = [stance for sentence in sentences for stance in self._find_stated(normal(sentence))]
            if self._reader and not stated and not self._reader.verbatim(line):
                words = normal(line).split()
                stated = [
                    (r.key, sign) for r in self.book.rules.values() if (sign := cue_stance(r.cue, words))
                ]
            self._lines[line] = tuple(stated)
        return self._lines[line]

    def _find_stated(self, sentence: str) -> Iterable[tuple[str, int]]:
        padded = f" {sentence} "
        for sign in (-1, 1):
            for key, rule in self.book.rules.items():
                for wording in map(normal, rule.opposites if sign < 0 else rule.wordings):
                    before, here, after = padded.partition(f" {wording} ")
                    if here:
                        yield key, -sign if NEGATING & set(before.rpartition("|")[2].split()) else sign
                        padded = f"{before} | {after}"
                        break

    def stances(self, prompt: str) -> dict[str, set[int]]:
        """For each rule that some line of the prompt speaks of: the stances (1, -1)."""
        stances: dict[str, set[int]] = {}
        for line in prompt.splitlines():
            for key, sign in self.states(line):
                stances.setdefault(key, set()).add(sign)
        return stances

    def base(self, key: str) -> float:
        """How often an answer keeps a rule that nothing states."""
        return MOST_BASE * chance("base", self.setting.seed, key)

    def answer(self, prompt: str, letter: str) -> str:
        """The plan of the simulated task model's answer, one line an aspect."""
        stances = self.stances(prompt)
        tokens = (len(prompt) + len(letter)) / 4
        stated = max(0.5, KEPT - PER_TOKEN * max(0.0, tokens - ATTENTION))
        odds = {frozenset({1}): stated, frozenset({-1}): KEPT_CONTRADICTED, frozenset({1, -1}): KEPT_BOTH}
        lines = []
        for rule in self.rules:
            kept = odds.get(frozenset(stances.get(rule.key, ())), self.base(rule.key))
            draw = chance("answer", self.setting.seed, prompt, letter, rule.key)
            lines.append(f"{rule.key}: {rule.keep if draw < kept else rule.broken}")
        return "\n".join(lines)

    # The checker and the guests.

    def broken_rules(self, answer: str) -> list[Rule]:
        """The active rules that an answer does not keep; an aspect that it does not show is not kept."""
        plan = {
            key.strip(): value.strip() for key, _, value in (s.partition(":") for s in answer.splitlines())
        }
        return [rule for rule in self.rules if plan.get(rule.key) != rule.keep]

    def comments(self, row: dict[str, Any], answer: str) -> list[str]:
        """What the writer of the letter and other guests say about the answer: at most `one` comments."""
        setting, number, written = self.setting, row["id"], []
        broken = [rule.key for rule in self.broken_rules(answer)]
        wanted = ""
        if self._contested and chance("taste", setting.seed, number) < setting.contradict:
            wanted = pick(self._contested, "contested", setting.seed, number)
        for slot in range(setting.one):
            key = ("comment", setting.seed, number, answer, slot)
            kind, rule = "rule", ""
            if chance("noise", *key) < setting.noise:
                kind = pick(NO_DEMAND, "kind", *key)
            elif wanted and wanted not in broken:
                kind, rule, wanted = "contrary", wanted, ""
            elif not (complaints := [k for k in broken if k != wanted]):
                continue
            elif chance("vague", *key) < setting.vague:
                kind = "vague"
            else:
                rule = pick(complaints, "rule", *key)
                broken.remove(rule)
            languages = [name for name in LANGUAGES if (kind, rule, name) in self._by]
            language = random.Random(repr(key)).choices(languages, [LANGUAGES[name] for name in languages])[0]
            text = pick(self._by[kind, rule, language], "text", *key).text
            for name in ("name", "day", "ref"):
                text = text.replace(f"{{{name}}}", str(row[name]))
            written.append(text)
        return written

    def judge(self, row: dict[str, Any], answer: str) -> dict[str, Any]:
        """Reward (share of rules kept), accuracy (all kept) and the comments as the critique, one a line."""
        broken = self.broken_rules(answer)
        share = 1 - len(broken) / len(self.rules)
        result: dict[str, Any] = {"reward": share, "accuracy": float(not broken)}
        if comments := self.comments(row, answer):
            result["critique"] = "\n".join(comments)
        return result


def cue_stance(cue: str, words: Sequence[str]) -> int:
    """Stance (1, -1, 0: none) of a free wording: each group of the cue has a word that begins with one of its stems."""
    groups = [group.split("|") for group in cue[1:].split()]
    if not all(any(word.startswith(stem) for stem in group for word in words) for group in groups):
        return 0
    if cue[0] == "-":
        return int(bool(LIMITING & set(words)))
    return -1 if NEGATING & set(words[:2]) else 1


class Reader:
    """Understands every comment of a book, also several in one text, cut ones and ones with something around them."""

    def __init__(self, book: Book) -> None:
        self._entries = [(c, *_matcher(c.text)) for c in book.comments]
        self._counts = Counter(word for _, _, words in self._entries for word in words)
        self._rarest: dict[str, list[int]] = {}
        self._holding: dict[str, list[int]] = {}
        for number, (_, _, words) in enumerate(self._entries):
            self._rarest.setdefault(min(words, key=lambda w: self._counts[w]), []).append(number)
            for word in words:
                self._holding.setdefault(word, []).append(number)
        self._known: dict[str, tuple[Comment, ...]] = {}

    def __call__(self, text: str) -> tuple[Comment, ...]:
        """The comments in a text; () when it holds none."""
        if text not in self._known:
            self._known[text] = self._whole(normal(text)) or self._likely(set(normal(text).split()))
        return self._known[text]

    def verbatim(self, text: str) -> tuple[Comment, ...]:
        """The comments that a text holds word by word."""
        return self._whole(normal(text))

    def _whole(self, text: str) -> tuple[Comment, ...]:
        spans: list[tuple[int, int, Comment]] = []
        for word in dict.fromkeys(text.split()):
            for number in self._rarest.get(word, ()):
                comment, pattern, _ = self._entries[number]
                spans += [(*match.span(), comment) for match in pattern.finditer(text)]
        chosen: list[tuple[int, int, Comment]] = []
        for start, end, comment in sorted(spans, key=lambda span: span[0] - span[1]):
            if all(end <= s or start >= e for s, e, _ in chosen):
                chosen.append((start, end, comment))
        return tuple(comment for _, _, comment in sorted(chosen, key=lambda span: span[0]))

    def _likely(self, words: set[str]) -> tuple[Comment, ...]:
        shared: dict[int, float] = {}
        for word in words:
            for number in self._holding.get(word, ()):
                shared[number] = shared.get(number, 0.0) + 1 / self._counts[word]
        if not shared:
            return ()
        share = {n: w / sum(1 / self._counts[x] for x in self._entries[n][2]) for n, w in shared.items()}
        best = max(share, key=lambda n: share[n])
        return (self._entries[best][0],) if share[best] >= 0.5 else ()


def _matcher(template: str) -> tuple[re.Pattern[str], set[str]]:
    """A pattern over normal text for a comment with slots, and the comment's words."""
    pieces = [normal(piece) for piece in re.split(r"\{\w+\}", template)]
    inner = r" ?[\w ]{1,25}? ?".join(map(re.escape, pieces)).replace(r"\ ", " ")
    return re.compile(rf"(?<!\w){inner}(?!\w)"), set(" ".join(pieces).split())
