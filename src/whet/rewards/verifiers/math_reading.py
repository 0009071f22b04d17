"""Mathematics as people and models write it, in plain text or LaTeX, as a tree. Nothing is evaluated by Python, and every bound
is checked before a number is computed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import factorial, log2

from whet.rewards.verifiers.math_money import read_money

LONGEST_FORMULA = 2_000
"""Characters of a formula that is read at most."""
_MOST_TOKENS, _DEEPEST, _MOST_DIGITS, _MOST_BITS, _LARGEST_FACTORIAL = 1_000, 40, 400, 20_000, 300
_MOST_ITEMS = 64


class Unread(ValueError):
    """A text is no formula that is read here; the text of the error is a sentence that says why."""


@dataclass(frozen=True)
class MathNode:
    """A part of a formula. Expressions are of the kinds number, symbol, constant, add, multiply, power and call.

    Whole answers are expressions, or of the kinds sequence (`text` holds both brackets), set, union, relation (`text` holds its
    signs), matrix, row and text."""

    kind: str
    parts: tuple[MathNode, ...] = ()
    text: str = ""
    value: Fraction = Fraction(0)

    def to_json(self) -> list[object]:
        """The tree as JSON: kind, text, and the parts, or numerator and denominator of a number."""
        if self.kind == "number":
            return ["number", hex(self.value.numerator), hex(self.value.denominator)]
        return [self.kind, self.text, *[part.to_json() for part in self.parts]]


def number(value: Fraction | int) -> MathNode:
    """An exact number. Raises Unread for one beyond the bound."""
    value = Fraction(value)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise Unread(f"a number has more than {_MOST_BITS:,} bits")
    return MathNode("number", value=value)


def add(parts: Sequence[MathNode]) -> MathNode:
    """A sum, its numbers added exactly."""
    return _fold("add", parts, 0, lambda one, other: one + other)


def multiply(parts: Sequence[MathNode]) -> MathNode:
    """A product, its numbers multiplied exactly."""
    return _fold("multiply", parts, 1, lambda one, other: one * other)


def _fold(
    kind: str, parts: Sequence[MathNode], neutral: int, combine: Callable[[Fraction, Fraction], Fraction]
) -> MathNode:
    total, others = number(neutral), []
    for part in parts:
        if part.kind == "number":
            total = number(combine(total.value, part.value))
        else:
            others.append(_expression(part))
    if not others or total.value != neutral:
        others.insert(0, total)
    return others[0] if len(others) == 1 else MathNode(kind, tuple(others))


def _expression(node: MathNode) -> MathNode:
    if node.kind in ("sequence", "set", "union", "relation", "matrix", "row", "text"):
        raise Unread(f"it computes with a {node.kind}")
    return node


def raise_power(base: MathNode, exponent: MathNode) -> MathNode:
    """A power, computed exactly where both are numbers and the exponent is whole. Raises Unread for 1/0 and for a huge one."""
    _expression(base), _expression(exponent)
    if exponent.kind != "number" or exponent.value.denominator != 1 or base.kind != "number":
        return MathNode("power", (base, exponent))
    n, value = int(exponent.value), base.value
    if not value and n <= 0:
        raise Unread("it divides by zero" if n else "0 to the power of 0 has no value")
    size = max(abs(value.numerator), value.denominator)
    if size > 1 and abs(n) * log2(size) > _MOST_BITS:
        raise Unread(f"a power has more than {_MOST_BITS:,} bits")
    return number(value ** (n if size > 1 else n % 2))


def call(name: str, *arguments: MathNode) -> MathNode:
    """A function of expressions; the factorial of a number is computed. Raises Unread for a huge one."""
    first = _expression(arguments[0])
    if name == "factorial" and first.kind == "number":
        n = first.value
        if n.denominator != 1 or not 0 <= n <= _LARGEST_FACTORIAL:
            raise Unread(f"a factorial is read of whole numbers from 0 to {_LARGEST_FACTORIAL}")
        return number(factorial(int(n)))
    if name == "abs" and first.kind == "number":
        return number(abs(first.value))
    return MathNode("call", tuple(_expression(one) for one in arguments), name)


@dataclass(frozen=True)
class Formula:
    """A whole answer: its tree, and the unit behind or before it, '' for none."""

    node: MathNode
    unit: str = ""


_TOKEN = re.compile(
    r"\\(?:text|mathrm|mbox|textrm|textbf|mathbf)\s*\{[^{}\\]*\}|\\[A-Za-z]+|\\."
    r"|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+(?![A-Za-z0-9.]))?|[A-Za-z]+|\*\*|<=|>=|!=|\S",
    re.DOTALL,
)
_GROUPED = re.compile(
    r"(?<![0-9.])[0-9]{1,3}(?:(?:\{,\}|,?\\[,!;: ]|[~ \u00a0\u2009\u202f])[0-9]{3})+(?![0-9]|\s*(?:/|\\[dtc]?frac))"
)
"""A number whose thousands are divided by a sign that is no comma; `1 125/1000` is a mixed number."""
_REPEATING = re.compile(r"(?<![0-9.])([0-9]*+)\.([0-9]*+)\\overline\s{0,9}\{([0-9]++)\}")
_MOST_REPEATING = 100
_UPRIGHT = re.compile(r"[ei]|-?[0-9]{1,400}(?:\.[0-9]{1,400})?")
_COMMA_GROUPED = re.compile(r"(?<![0-9.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_UNSEEN = r"\left \right \big \Big \bigl \bigr \Bigl \Bigr \displaystyle \limits \, \; \: \! \quad \qquad ~"
_SKIPPED = frozenset([*_UNSEEN.split(), "\\ "])
_SIGNS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u00d7": "*", "\u22c5": "*", "\u00b7": "*", "\u00f7": "/", "\u2215": "/", "\u2044": "/",
        "\u03c0": "\\pi ", "\u221e": "\\infty ", "\u221a": "\\sqrt ", "\u2264": "<=", "\u2265": ">=", "\u2260": "!=",
        "\u222a": "\\cup ", "\u2208": "\\in ", "\u00b1": "\\pm ", "\u00b0": "\\degree ",
    }
)  # fmt: skip
_RAISED = re.compile("\u207b?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell"
)
_GREEK = frozenset(_GREEK_NAMES.split())
_CONSTANTS = {"pi": "pi", "e": "e", "i": "i", "infty": "oo", "infinity": "oo", "inf": "oo", "oo": "oo"}
_FUNCTIONS = {
    **{name: name for name in ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "exp", "abs", "floor"]},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan")},
    **{f"a{name}": f"a{name}" for name in ("sin", "cos", "tan")},
    "ln": "log", "log": "log", "lg": "log10", "sqrt": "sqrt", "ceil": "ceiling", "ceiling": "ceiling",
}  # fmt: skip
_TIMES, _OVER = frozenset(["*", r"\cdot", r"\times", r"\ast"]), frozenset(["/", r"\div"])
_RELATIONS = {
    "=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", r"\le": "<=", r"\leq": "<=", r"\ge": ">=", r"\geq": ">=",
    r"\lt": "<", r"\gt": ">", "!=": "!=", r"\ne": "!=", r"\neq": "!=", r"\in": "in",
}  # fmt: skip
_FRACTIONS = (r"\frac", r"\dfrac", r"\tfrac", r"\cfrac")
_BINOMIALS = (r"\binom", r"\dbinom", r"\tbinom")
_BRACKETS = {
    "(": ")",
    "[": "]",
    r"\lfloor": r"\rfloor",
    r"\lceil": r"\rceil",
    r"\lvert": r"\rvert",
    r"\{": r"\}",
}
_CLOSING = frozenset([*_BRACKETS.values(), "}", ")", "]"])
_UNIT_SIGNS = frozenset(["%", r"\%", r"\degree"])


def read_formula(text: str) -> Formula:
    """A formula as a tree. Raises Unread, whose text says what cannot be read."""
    if len(text) > LONGEST_FORMULA:
        raise Unread(f"it has {len(text):,} characters; {LONGEST_FORMULA:,} are read at most")
    if (money := read_money(text)) is not None:
        return Formula(number(money[0]), money[1])
    tokens = _tokens(text)
    tokens, unit = _split_unit(tokens)
    if len(tokens) == 1 and _is_word(tokens[0]):
        return Formula(MathNode("text", text=_word(tokens[0])), unit)
    if not tokens:
        raise Unread("it is empty")
    return Formula(_Reader(tokens).read_all(), unit)


def _tokens(text: str) -> list[str]:
    plain = _RAISED.sub(
        lambda m: "^{" + unicodedata.normalize("NFKC", m[0]).replace("\u2212", "-") + "}", text
    )
    plain = _REPEATING.sub(_write_fraction, plain.translate(_SIGNS))
    plain = _GROUPED.sub(lambda m: re.sub(r"[^0-9]", "", m[0]), plain)
    if not any(sign in plain for sign in "([{"):
        plain = _COMMA_GROUPED.sub(lambda m: m[0].replace(",", ""), plain)
    signs = (token for token in _TOKEN.findall(plain) if token not in _SKIPPED)
    tokens = [inner for token in signs for inner in _without_font(token)]
    if len(tokens) > _MOST_TOKENS:
        raise Unread(f"it has more than {_MOST_TOKENS:,} signs")
    return tokens


def _without_font(token: str) -> list[str]:
    """The tokens of a constant or a number that is set upright, `\\mathrm{e}` or `\\text{13}`; anything else as it is."""
    word = _word(token) if _is_word(token) else ""
    return _TOKEN.findall(word) if _UPRIGHT.fullmatch(word) else [token]


def _write_fraction(match: re.Match[str]) -> str:
    """A number whose last decimals repeat, `0.1\\overline{6}`, as the fraction that it is."""
    whole, fixed, again = match.groups()
    if len(whole + fixed + again) > _MOST_REPEATING:
        return match[0]
    over = int(whole + fixed + again) - int(whole + fixed or "0")
    return rf"\frac{{{over}}}{{{10 ** len(fixed) * (10 ** len(again) - 1)}}}"


def words_of(text: str) -> list[tuple[int, int]]:
    """The start and end of each word of a text. A word is two or more letters that name no function, constant or variable, or
    one non-ASCII letter that no formula has."""
    return [match.span() for match in _TOKEN.finditer(text) if _is_plain_word(match[0])]


def are_words(text: str) -> bool:
    """Whether a text is nothing but letters and blanks, with a word among them."""
    tokens = _TOKEN.findall(text)
    return all(map(str.isalpha, tokens)) and any(map(_is_plain_word, tokens))


def _is_plain_word(token: str) -> bool:
    if not token.isalpha() or token in _FUNCTIONS or token in _CONSTANTS or token in _GREEK:
        return False
    return len(token) > 1 if token.isascii() else ord(token) not in _SIGNS


def _is_word(token: str) -> bool:
    return token.startswith("\\") and "{" in token[1:-1]


def _word(token: str) -> str:
    return " ".join(token[token.index("{") + 1 : -1].split())


def _split_unit(tokens: list[str]) -> tuple[list[str], str]:
    """The tokens without a unit: a currency sign before them, a percent or degree sign or words behind them; the base of a whole
    number, `2516_8`, is one too."""
    below = [token for token in tokens[2:] if token not in "{}"]
    if (
        len(tokens) in (3, 5)
        and tokens[0].isdigit()
        and tokens[1] == "_"
        and len(below) == 1
        and below[0].isdigit()
    ):
        return tokens[:1], f"_{below[0]}"
    before = ""
    if tokens and (tokens[0] == r"\$" or unicodedata.category(tokens[0][0]) == "Sc"):
        before, tokens = tokens[0].lstrip("\\"), tokens[1:]
    for at in range(1, len(tokens)):
        circle = tokens[at] == "^" and [t for t in tokens[at + 1 :] if t not in "{}"] == [r"\circ"]
        if circle:
            return tokens[:at], before + "\u00b0"
        if _is_word(tokens[at]) or tokens[at] in _UNIT_SIGNS:
            rest = tokens[at:]
            if all(map(_may_be_unit, rest, ["", *rest])):
                shown = [
                    _word(t) if _is_word(t) else "\u00b0" if t == r"\degree" else t.lstrip("\\") for t in rest
                ]
                return tokens[:at], before + "".join(t for t in shown if t not in "{}")
            break
    return tokens, before


def _may_be_unit(token: str, before: str) -> bool:
    return (
        _is_word(token)
        or token in _UNIT_SIGNS
        or token in _TIMES
        or token in "^{}/-"
        or (token.isdigit() and before in "^{-")
    )


class _Reader:
    """Recursive descent over tokens; `_deeper` bounds how deep it goes."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth, self.bars = tokens, 0, 0, 0
        self.sign = 1
        self.two_signs = False

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.next
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        if self.take() != token:
            last = self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""
            raise Unread(
                f'"{token}" is missing before "{last}"' if last else f'"{token}" is missing at the end'
            )

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unread(f"it is nested more than {_DEEPEST} deep")

    def read_all(self) -> MathNode:
        """The whole text: with a plus-minus sign, the set of both values."""
        node = self._list_to_end()
        if not self.two_signs:
            return node
        self.at, self.sign = 0, -1
        return MathNode("set", (node, self._list_to_end()))

    def _list_to_end(self) -> MathNode:
        items = self._items()
        if self.at < len(self.tokens):
            raise Unread(f'"{self.next}" is not expected there')
        return items[0] if len(items) == 1 else MathNode("set", tuple(items))

    def _items(self) -> list[MathNode]:
        items = [self._relation()]
        while self.next in (",", ";"):
            self.take()
            if len(items) == _MOST_ITEMS:
                raise Unread(f"it lists more than {_MOST_ITEMS} items")
            items.append(self._relation())
        return items

    def _relation(self) -> MathNode:
        sides, signs = [self._ratio()], []
        while self.next in _RELATIONS:
            signs.append(_RELATIONS[self.take()])
            sides.append(self._ratio())
        return MathNode("relation", tuple(sides), " ".join(signs)) if signs else sides[0]

    def _ratio(self) -> MathNode:
        parts = [self._union()]
        while self.next == ":":
            self.take()
            parts.append(self._union())
        return MathNode("sequence", tuple(parts), ":") if len(parts) > 1 else parts[0]

    def _union(self) -> MathNode:
        parts = [self._sum()]
        while self.next == r"\cup":
            self.take()
            parts.append(self._sum())
        return MathNode("union", tuple(parts)) if len(parts) > 1 else parts[0]

    def _sum(self) -> MathNode:
        parts = [self._term(self._signs())]
        while self.next in ("+", "-", r"\pm", r"\mp"):
            parts.append(self._term(self._signs()))
        return add(parts) if len(parts) > 1 else parts[0]

    def _signs(self) -> int:
        sign = 1
        while self.next in ("+", "-", r"\pm", r"\mp"):
            token = self.take()
            sign *= {"+": 1, "-": -1, r"\pm": self.sign, r"\mp": -self.sign}[token]
            self.two_signs |= token in (r"\pm", r"\mp")
        return sign

    def _term(self, sign: int) -> MathNode:
        factors = [self._factor()]
        while True:
            if self.next in _TIMES:
                self.take()
                factors.append(self._signed_factor())
            elif self.next in _OVER:
                self.take()
                factors.append(raise_power(self._signed_factor(), number(-1)))
            elif self._starts_factor():
                factors.append(self._next_to(factors))
            else:
                break
        if sign < 0:
            factors.insert(0, number(-1))
        return multiply(factors) if len(factors) > 1 else factors[0]

    def _next_to(self, factors: list[MathNode]) -> MathNode:
        """A factor without a sign before it; a whole number before a fraction of numbers makes a mixed number."""
        whole, mixed = self.tokens[self.at - 1], self.next in _FRACTIONS
        fraction = self.tokens[self.at : self.at + 4]
        if _is_simple_fraction(fraction) and whole.isdigit() and factors[-1] == number(int(whole)):
            self.at += 3
            return add([factors.pop(), number(Fraction(int(fraction[0]), int(fraction[2])))])
        if self.next[0] in "0123456789.":
            raise Unread(f'there is no sign between "{whole}" and "{self.next}"')
        factor = self._factor()
        if mixed and factor.kind == "number" and whole.isdigit() and factors[-1] == number(int(whole)):
            if not 0 <= factor.value < 1:
                raise Unread("a whole number stands before a fraction that is not below 1")
            return add([factors.pop(), factor])
        return factor

    def _starts_factor(self) -> bool:
        token = self.next
        if not token or token in _CLOSING or token in _RELATIONS or token == r"\cup":
            return False
        return not (token == "|" and self.bars) and token not in (
            ",", ";", ":", "+", "-", r"\pm", r"\mp", "^", "_", "!", "&", r"\\", r"\end",
        )  # fmt: skip

    def _signed_factor(self) -> MathNode:
        sign = self._signs()
        return self._factor() if sign > 0 else multiply([number(-1), self._factor()])

    def _factor(self) -> MathNode:
        node = self._base()
        factorials = 0
        while self.next in ("!", "^", "**"):
            if self.take() == "!":
                factorials += 1
                if factorials > 1:
                    raise Unread("two factorials follow each other")
                node = call("factorial", node)
            else:
                node = raise_power(node, self._script())
        return node

    def _script(self) -> MathNode:
        """The exponent: a group in braces, or one factor with its sign."""
        self._deeper()
        node = self._group() if self.next == "{" else self._signed_factor()
        self.depth -= 1
        return node

    def _group(self) -> MathNode:
        self.expect("{")
        node = self._relation()
        self.expect("}")
        return node

    def _argument(self) -> MathNode:
        """The argument of a LaTeX command: a group, or one digit, letter or command."""
        if self.next == "{":
            return self._group()
        token = self.next
        if len(token) > 1 and (token.isdigit() or token.isalpha()):
            self.tokens[self.at : self.at + 1] = [token[0], token[1:]]
        return self._base()

    def _base(self) -> MathNode:
        self._deeper()
        node = self._read_base()
        self.depth -= 1
        return node

    def _read_base(self) -> MathNode:
        token = self.take()
        if token[:1] in "0123456789." and any(c.isdigit() for c in token):
            return _read_number(token)
        if token.isascii() and token.isalpha():
            return self._letters(token)
        if token in _FRACTIONS:
            over = self._argument()
            return multiply([over, raise_power(self._argument(), number(-1))])
        if token in _BINOMIALS:
            return call("binomial", self._argument(), self._argument())
        if token in _BRACKETS or token in ("{", "|"):
            return self._bracket(token)
        if token == r"\begin":
            return self._matrix()
        if token == r"\sqrt":
            return self._root()
        if token == r"\boxed":
            return self._group()
        if token.startswith("\\") and token[1:].isalpha():
            name = token[1:]
            if name == "operatorname":
                self.expect("{")
                name = self.take()
                self.expect("}")
            if name in _CONSTANTS and len(name) > 1:
                return MathNode("constant", text=_CONSTANTS[name])
            if name in _FUNCTIONS:
                return self._call(name)
            if name in _GREEK:
                return self._symbol(name)
            if name in ("emptyset", "varnothing"):
                return MathNode("set")
        if _is_word(token):
            raise Unread(f'the words "{_word(token)}" stand in the formula')
        raise Unread(f'"{token}" is not read here' if token else "it ends too early")

    def _letters(self, run: str) -> MathNode:
        if run in _FUNCTIONS:
            return self._call(run)
        if run in _CONSTANTS:
            return MathNode("constant", text=_CONSTANTS[run])
        if run in _GREEK:
            return self._symbol(run)
        if len(run) > 3:
            raise Unread(f'"{run}" is no name of a function or variable that is read here')
        if len(run) > 1:  # letters next to each other are multiplied; what is raised belongs to the last one
            self.tokens[self.at : self.at] = list(run[1:])
        return self._symbol(run[0]) if run[0] not in "ei" else MathNode("constant", text=run[0])

    def _symbol(self, name: str) -> MathNode:
        if self.next != "_":
            return MathNode("symbol", text=name)
        self.take()
        if self.next != "{":
            return MathNode("symbol", text=f"{name}_{self.take()}")
        self.take()
        inner = []
        while self.next not in ("}", ""):
            inner.append(self.take())
        self.expect("}")
        return MathNode("symbol", text=f"{name}_{''.join(inner)}")

    def _root(self) -> MathNode:
        degree = number(2)
        if self.next == "[":
            self.take()
            degree = self._relation()
            self.expect("]")
        if self.next.isdigit():
            radicand = _read_number(self.take())
        else:
            radicand = self._bracket(self.take()) if self.next == "(" else self._argument()
        return raise_power(_expression(radicand), raise_power(degree, number(-1)))

    def _call(self, name: str) -> MathNode:
        base, exponent = None, None
        while self.next in ("_", "^", "**"):
            if self.take() == "_" and name == "log":
                base = self._argument()
            else:
                exponent = self._script()
        if self.next in ("(", "[", "{"):
            argument = self._bracket(self.take())
        else:
            parts = [self._signed_factor()]
            while self._starts_factor() and self.next not in ("(", "[", "{") and not self._starts_call():
                parts.append(self._factor())
            argument = multiply(parts) if len(parts) > 1 else parts[0]
        function = _FUNCTIONS[name]
        if exponent is not None and exponent.kind == "number" and exponent.value < 0:
            raise Unread("a function to a negative power may be its inverse or a fraction")
        if function == "sqrt":
            node = raise_power(_expression(argument), number(Fraction(1, 2)))
        else:
            node = call(function, argument, *([base] if base is not None else []))
        return node if exponent is None else raise_power(node, exponent)

    def _starts_call(self) -> bool:
        return self.next.lstrip("\\") in _FUNCTIONS

    def _bracket(self, opening: str) -> MathNode:
        """A bracket: an expression in it, or several as a sequence or set; a half-open interval may close otherwise."""
        if opening == "|":
            self.bars += 1
            node = call("abs", self._sum())
            self.bars -= 1
            self.expect("|")
        elif opening == "{":
            items = [] if self.next == "}" else self._items()
            self.expect("}")
            node = items[0] if len(items) == 1 else MathNode("set", tuple(items))
        else:
            bars, self.bars = self.bars, 0
            items = [] if self.next in _CLOSING else self._items()
            closing, self.bars = self.take(), bars
            node = self._close(opening, closing, items)
        return node

    @staticmethod
    def _close(opening: str, closing: str, items: list[MathNode]) -> MathNode:
        if opening in ("(", "[") and closing in (")", "]") and len(items) == 2:
            return MathNode("sequence", tuple(items), opening + closing)
        if closing != _BRACKETS[opening]:
            raise Unread(f'"{opening}" is not closed')
        if opening == r"\{":
            return MathNode("set", tuple(items))
        if len(items) != 1:
            return MathNode("sequence", tuple(items), opening + closing)
        if opening == "(":
            return items[0]
        if opening == "[":
            return MathNode("sequence", tuple(items), "[]")
        names = {r"\lfloor": "floor", r"\lceil": "ceiling", r"\lvert": "abs"}
        return call(names[opening], items[0])

    def _matrix(self) -> MathNode:
        name = self._environment()
        if name not in ("matrix", "pmatrix", "bmatrix", "vmatrix", "array"):
            raise Unread(f'the environment "{name}" is not read here')
        rows: list[list[MathNode]] = [[self._relation()]]
        while self.next in ("&", r"\\"):
            if self.take() == "&":
                rows[-1].append(self._relation())
            elif self.next != r"\end":
                rows.append([self._relation()])
        self.expect(r"\end")
        if self._environment() != name:
            raise Unread(f'the environment "{name}" is not closed')
        return MathNode("matrix", tuple(MathNode("row", tuple(row)) for row in rows))

    def _environment(self) -> str:
        self.expect("{")
        name = self.take()
        self.expect("}")
        return name


def _is_simple_fraction(tokens: Sequence[str]) -> bool:
    """Whether tokens begin with `n/m`, 0 < n < m, to which no further sign belongs."""
    if len(tokens) < 3 or tokens[1] != "/" or not (tokens[0] + tokens[2]).isdecimal():
        return False
    if len(tokens[2]) > _MOST_DIGITS or (tokens[3:] and tokens[3][0] in "^!*/0123456789."):
        return False
    return 0 < int(tokens[0]) < int(tokens[2])


def _read_number(token: str) -> MathNode:
    if len(token) > _MOST_DIGITS:
        raise Unread(f"a number has more than {_MOST_DIGITS} digits")
    mantissa, _, exponent = token.lower().partition("e")
    if abs(int(exponent or 0)) > _MOST_DIGITS:
        raise Unread(f"the exponent of a number is beyond {_MOST_DIGITS}")
    return number(Fraction(mantissa) * Fraction(10) ** int(exponent or 0))
