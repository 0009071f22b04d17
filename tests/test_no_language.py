"""Language is read and written by models: no rule of the package knows the words of a natural language.

The source is read, not run. Two things are faults: a regular expression that chooses between words of a language, and a
collection of such words. What makes a word a word of a language is that it is one of the small words that no technical
vocabulary needs: articles, pronouns, prepositions, negations. They are listed here, for nine languages, and nowhere else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.distributions import SOURCES, tree_of

_SMALL_WORDS = """
    a an the this that these those i me my you your yours he she it its we us our they them their who whom whose which what
    is are was were be been being am do does did has have had having will would shall should can could may might must ought
    and or but nor if because while until although though unless than so as of at by for with about against between into
    through during before after above below to from up down in out on off over under again further then once here there
    when where why how all any both each few more most other some such no not never only own same too very just also still
    always often instead rather without within however please thanks sorry maybe perhaps yes
    don't doesn't didn't won't can't cannot isn't aren't wasn't shouldn't needs need

    der die das den dem des ein eine einen einem einer eines und oder aber doch nicht kein keine keinen nie niemals ich du er
    wir ihr sie mich dich uns euch mein dein sein unser ist sind war waren wird werden wurde hat haben hatte kann können muss
    müssen soll sollen darf dürfen mit ohne für gegen bei nach vor über unter zwischen auch nur noch schon immer sehr bitte
    danke wenn weil dass wie wer wo warum statt ja nein jede jeder jedes alle viel mehr weniger

    le la les un une des du et ou mais ne pas jamais plus moins je tu il elle nous vous ils elles mon ma mes ton ta tes son sa
    ses notre votre leur est sont était être avoir ont avait peut doit faut avec sans pour contre dans sur sous entre aussi
    toujours très merci oui non si que qui quoi où quand comment chaque tout tous toute

    el los las una unos unas y o pero ni nunca jamás más menos yo tú él ella nosotros ellos mi tu su nuestro es son era ser
    tener tiene puede debe hay con sin para contra en sobre bajo entre también siempre muy gracias sí porque cada todo todos
    que quien cuando donde como

    lo gli uno e ma mai più meno io noi voi loro mio tuo suo è sono deve può con senza per contro fra tra anche sempre molto
    grazie perché ogni tutto tutti non che chi quando dove come

    os um uma uns umas mas nem nunca mais menos eu ele ela nós eles meu teu seu é são pode deve com sem contra em também
    sempre muito obrigado porque cada todo não quem quando onde

    de het een en maar niet geen nooit meer minder ik jij hij zij wij jullie mijn jouw zijn is was kan moet mag met zonder
    voor tegen op onder ook altijd heel graag omdat elke alle wie wat waar

    i oraz lub ale nie nigdy więcej mniej ja ty on ona my wy oni mój twój jest są był może musi z bez dla w na pod też zawsze
    bardzo proszę dziękuję każdy wszystko

    och eller men inte aldrig mer mindre jag du han hon vi ni de min din är var kan måste utan för mot på under också alltid
    mycket tack varje alla
"""
SMALL_WORDS = frozenset(_SMALL_WORDS.split())

ALLOWED = {
    "rewards/asking.py": "labels of a judge: yes, no, met",
    "rewards/text.py": "SQuAD's own definition of its metric removes three articles",
    "models/openai_wire.py": "how providers word that they refuse a field of a request",
    "models/output_bounds.py": "how providers word that a bound on tokens is too large",
    "models/waits.py": "how providers word how long to wait",
}
"""Files with a reason; each must still hold what it is excused for."""

SIMULATORS = ("testing/", "models/scripted")
"""They stand for people and models, whose language they speak."""

_REGEX = re.compile(r"\\[bBwWsSdD]|\(\?")
_NOT_WORDS = re.compile(r"\\[A-Za-z]|\(\?P[<=]\w+[>)]?|\(\?[a-zA-Z]+[:)]|\\[ux][0-9a-fA-F]+")
_WORD = re.compile(r"[^\W\d]+(?:['’][^\W\d]+)?")
_FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
_REGEX_WORDS, _DISPLAY, _DISPLAY_WORDS, _MOST_WORDS = 2, 6, 3, 3


def faults(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and kind of everything in a source that holds words of a language as a rule."""
    nodes = list(ast.walk(tree))
    docstrings = set(map(id, _docstrings(nodes)))
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    splitters = set(_splitters(nodes))
    lines: list[tuple[int, str]] = []
    for node in nodes:
        if isinstance(node, ast.Call):
            if _is_call_of_re(node) and _chooses_between_words(_text(node.args[0])):
                lines.append((node.lineno, "regular expression"))
            if any(_is_vocabulary(_text(one).split()) for one in _split_up(node, splitters)):
                lines.append((node.lineno, "word list"))
        elif isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict) and _is_vocabulary(
            list(_entries(node))
        ):
            lines.append((node.lineno, "collection"))
        elif isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docstrings | inside:
            text = _text(node)
            if _REGEX.search(text) and _chooses_between_words(text):
                lines.append((node.lineno, "regular expression"))
    return sorted(set(lines))


def _docstrings(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Strings that stand as statements: they document what stands before or around them."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _splitters(nodes: list[ast.AST]) -> Iterator[str]:
    """Names of the functions of a file that call `split`."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(part, ast.Attribute) and part.attr == "split" for part in ast.walk(node)
        ):
            yield node.name


def _split_up(node: ast.Call, splitters: set[str]) -> list[ast.expr]:
    """What a call cuts into words: what `split` is a method of, and what a function that calls `split` is called with."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        return [node.func.value]
    return node.args if isinstance(node.func, ast.Name) and node.func.id in splitters else []


def _is_call_of_re(node: ast.Call) -> bool:
    function = node.func
    return (
        bool(node.args)
        and isinstance(function, ast.Attribute)
        and function.attr in _FUNCTIONS
        and isinstance(function.value, ast.Name)
        and function.value.id in ("re", "regex")
    )


def _text(node: ast.AST) -> str:
    """The literal parts of a string expression, joined."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr | ast.BinOp):
        return "".join(_text(part) for part in ast.iter_child_nodes(node))
    return ""


def _chooses_between_words(pattern: str) -> bool:
    """Whether a regular expression offers at least two small words, at least one of them as an alternative."""
    if "|" not in pattern:
        return False
    bare = _NOT_WORDS.sub(" ", re.sub(r"\[[^\]]*\]", " ", pattern))
    small = {word.casefold() for word in _WORD.findall(bare)} & SMALL_WORDS
    return len({word for word in small if len(word) > 1}) >= _REGEX_WORDS


def _entries(node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> Iterator[str]:
    """The strings of a display, also those of displays in it."""
    parts = [*filter(None, node.keys), *node.values] if isinstance(node, ast.Dict) else node.elts
    for part in parts:
        if isinstance(part, ast.List | ast.Tuple | ast.Set | ast.Dict):
            yield from _entries(part)
        elif text := _text(part):
            yield text


def _is_vocabulary(entries: list[str]) -> bool:
    """Whether of at least six entries at least three different ones, and 30 in 100, consist of small words."""
    if len(entries) < _DISPLAY:
        return False
    words = [entry.casefold().split() for entry in entries]
    small = {tuple(one) for one in words if 0 < len(one) <= _MOST_WORDS and SMALL_WORDS.issuperset(one)}
    several = len({one for one in small if len("".join(one)) > 1}) >= _DISPLAY_WORDS
    return several and sum(tuple(one) in small for one in words) >= 0.3 * len(entries)


FILES = {name: path for name, path in SOURCES.items() if not name.startswith(SIMULATORS)}


def test_no_rule_of_the_package_knows_a_language() -> None:
    found = {name: lines for name, path in FILES.items() if (lines := faults(tree_of(path)))}
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) <= set(found), "an excuse that is not needed any more"


PLANTED = {
    "a stop list": '_STOP = frozenset({"the", "and", "of", "invoice", "total", "with"})',
    "a stop list in one text": '_STOP = frozenset("the and of invoice total with".split())',
    "a stop list through a helper": 'def _set(text):\n    return text.split()\n_STOP = _set("the and of total with it")',
    "a table of forms": 'T = {"forgot": "missing", "do not": "avoid", "never": "no", "lacks": "must"}',
    "pairs": 'T = (("no", "without"), ("add", "drop"), ("always", "never"))',
    "a negation": 'X = re.compile(r"\\b(?:not|never|without)\\b")',
    "a negation in a call": 'y = re.sub("^(please|just) ", "", text)',
    "a pattern of a table": 'ROWS = [(r"\\bignore (?:all|your) (?:previous|prior)\\b", "an order")]',
    "a formatted pattern": 'X = re.compile(rf"\\b(?:must|should) {name}")',
    "added patterns": 'X = re.compile(r"\\b(?:must" + r"|should)\\b")',
    "German": 'X = re.compile(r"\\b(?:nicht|kein(?:e|en)?|ohne)\\b")',
    "French": 'WORDS = ["ne", "pas", "jamais", "sans", "facture", "total"]',
    "Spanish": 'X = re.compile("(?:nunca|sin) (?:que|para)")',
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_rule_is_found(name: str) -> None:
    assert faults(ast.parse(PLANTED[name]))


CLEAN = {
    "a prompt": 'TASK = "You judge answers. What must it say, and what not? Write only that, or nothing at all: yes|no."',
    "a prompt in a call": 'run.ask("You read what people say. It is up to you, and not to them, to find what they want.")',
    "a docstring": 'def f():\n    """Use `\\\\b(?:not|never)\\\\b` or not."""',
    "keys of a protocol": 'KEYS = ("id", "text", "critiques", "violates", "instruction", "contradicts")',
    "labels": 'X = re.compile(r"\\s*(score|rating|grade)\\s*:")',
    "tags": 'X = re.compile(r"<(think|thinking|reasoning)>")',
    "messages": 'raise UsageError("It is not there.", "Use this or that.")',
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_is_no_rule_is_not_found(name: str) -> None:
    assert faults(ast.parse(CLEAN[name])) == []
