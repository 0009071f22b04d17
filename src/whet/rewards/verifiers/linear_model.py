"""Linear programs in text, with whole variables or without: JSON, or the LP format that CPLEX, HiGHS, Gurobi and GLPK share."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from whet.rewards.fields_of_json import holds_object, json_in

LONGEST_MODEL = 100_000
"""Characters of a model that are read at most."""
_MOST_TERMS, _LARGEST = 20_000, 1e300
_SLACK = 1e-6

Terms = dict[str, float]


class NoModel(ValueError):
    """A text is no linear program; the text of the error is a sentence without its end."""


@dataclass
class LinearModel:
    """Maximise or minimise a linear objective; rows are (terms, low, high) with low <= sum <= high. Bounds of a variable that has
    none are 0 and infinity."""

    maximise: bool
    objective: Terms
    constant: float = 0.0
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)

    @property
    def variables(self) -> list[str]:
        """Names in the order in which they appear."""
        names = dict.fromkeys(self.objective)
        for terms, _, _ in self.rows:
            names |= dict.fromkeys(terms)
        return list(names | dict.fromkeys(self.bounds) | dict.fromkeys(sorted(self.whole)))

    def bounds_of(self, name: str) -> tuple[float, float]:
        """The bounds of a variable."""
        return self.bounds.get(name, (0.0, math.inf))

    def to_json(self) -> dict[str, object]:
        """The model as numbers for the solver: it minimises."""
        place = {name: k for k, name in enumerate(self.variables)}
        sign = -1.0 if self.maximise else 1.0
        return {
            "cost": [sign * self.objective.get(name, 0.0) for name in place],
            "rows": [
                [[[place[name], value] for name, value in terms.items()], _finite(low), _finite(high)]
                for terms, low, high in self.rows
            ],
            "bounds": [[_finite(end) for end in self.bounds_of(name)] for name in place],
            "whole": [name in self.whole for name in place],
        }

    def violations(self, values: Mapping[str, float]) -> int:
        """Count the rows, bounds and whole variables that an assignment breaks, by more than 1e-6 of the size of the limit."""
        broken = sum(
            not _lies_between(sum(value * values[name] for name, value in terms.items()), low, high)
            for terms, low, high in self.rows
        )
        broken += sum(not _lies_between(values[name], *self.bounds_of(name)) for name in self.variables)
        return broken + sum(abs(values[name] - round(values[name])) > _SLACK for name in self.whole)

    def value(self, values: Mapping[str, float]) -> float:
        """The objective of an assignment."""
        return self.constant + sum(value * values[name] for name, value in self.objective.items())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _lies_between(value: float, low: float, high: float) -> bool:
    below = low - _SLACK * (1 + abs(low)) if math.isfinite(low) else low
    above = high + _SLACK * (1 + abs(high)) if math.isfinite(high) else high
    return below <= value <= above


def read_model(text: str) -> LinearModel:
    """A linear program from JSON, or in the LP format. Raises NoModel with what is wrong.

    >>> model = read_model("max 3x + 2y subject to c1: x + y <= 4 bounds x <= 3 end")
    >>> model.variables, model.rows, model.bounds
    (['x', 'y'], [({'x': 1.0, 'y': 1.0}, -inf, 4.0)], {'x': (0.0, 3.0)})
    """
    if len(text) > LONGEST_MODEL:
        raise NoModel(f"it has {len(text):,} characters; {LONGEST_MODEL:,} are read at most")
    values = json_in(text, holds_object)[:1]
    model = _model_of_json(values[0]) if values and isinstance(values[0], dict) else _LpReader(text).read()
    if not model.variables:
        raise NoModel("it has no variables")
    return model


def _model_of_json(value: Mapping[str, object]) -> LinearModel:
    """`{"maximize" or "minimize": {NAME: NUMBER}, "constraints": [{"terms": {...}, "<=": NUMBER}], "bounds": {NAME: [LOW, HIGH]},
    "integer": [NAME], "constant": NUMBER}`; other keys hold texts, such as a name."""
    goals = [key for key in ("maximize", "minimize") if key in value]
    if len(goals) != 1:
        raise NoModel('the model needs one of the keys "maximize" and "minimize"')
    model = LinearModel(goals[0] == "maximize", _terms(value[goals[0]], goals[0]))
    constraints, bounds = value.get("constraints", []), value.get("bounds", {})
    whole = value.get("integer", [])
    _refuse_unknown(value, {*goals, "constraints", "bounds", "integer", "constant"}, "the model")
    model.constant = _number(value.get("constant", 0))
    if not isinstance(constraints, list) or not isinstance(bounds, dict) or not isinstance(whole, list):
        raise NoModel('"constraints" and "integer" are lists, and "bounds" an object')
    for number, row in enumerate(constraints, 1):
        if not isinstance(row, dict) or not (row.keys() & {"<=", ">=", "="}):
            raise NoModel(f'constraint {number} needs "terms" and one of "<=", ">=" and "="')
        _refuse_unknown(row, {"terms", "<=", ">=", "="}, f"constraint {number}")
        low, high = (row.get(sign, row.get("=")) for sign in (">=", "<="))
        ends = (-math.inf if low is None else _number(low), math.inf if high is None else _number(high))
        model.rows.append((_terms(row.get("terms"), f"constraint {number}"), *ends))
    for name, ends in bounds.items():
        if not isinstance(ends, list) or len(ends) != 2:
            raise NoModel(f"the bounds of {name} are no pair")
        low, high = ends
        model.bounds[name] = (
            -math.inf if low is None else _number(low),
            math.inf if high is None else _number(high),
        )
    if unknown := sorted({str(name) for name in whole} - set(model.variables)):
        raise NoModel(f'"integer" names {unknown[0]}, which is no variable of the model')
    model.whole = {str(name) for name in whole}
    return model


def _refuse_unknown(value: Mapping[str, object], known: Set[str], what: str) -> None:
    """Raise NoModel for a key that may change the model and that nobody reads: one that is not known, and holds no text."""
    for name, one in value.items():
        if name not in known and not isinstance(one, str):
            raise NoModel(
                f"{what} has the key {json.dumps(name)[:50]}, which is none of {', '.join(sorted(known))}"
            )


def _terms(value: object, where: str) -> Terms:
    if not isinstance(value, dict) or len(value) > _MOST_TERMS:
        raise NoModel(f"{where} needs an object that gives each variable its coefficient")
    return {name: _number(one) for name, one in value.items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise NoModel(f"{json.dumps(value, default=str)[:50]} is no number up to {_LARGEST:g}")
    return float(value)


_TOKEN = re.compile(
    r"\\[^\n]*|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[A-Za-z_][\w.]*(?:\[[\w,]*\]|\([\w,]*\))?|<=|=<|>=|=>|\S"
)
_GOALS = {"maximize": True, "maximise": True, "max": True, "minimize": False, "minimise": False, "min": False}
_SECTIONS = {
    "subject": "rows", "such": "rows", "st": "rows", "s.t.": "rows", "st.": "rows", "bounds": "bounds", "bound": "bounds",
    "general": "whole", "generals": "whole", "gen": "whole", "integer": "whole", "integers": "whole", "int": "whole",
    "binary": "binary", "binaries": "binary", "bin": "binary", "end": "end",
}  # fmt: skip
_SIGNS = {"<": "<", "<=": "<", "=<": "<", ">": ">", ">=": ">", "=>": ">", "=": "="}
_INFINITE = ("inf", "infinity")


@dataclass(frozen=True)
class _Side:
    """One side of a comparison, and the sign before it ('' for the first)."""

    sign: str
    terms: Terms
    constant: float


class _LpReader:
    """The sections of the LP format, over tokens."""

    def __init__(self, text: str) -> None:
        self.tokens = [token for token in _TOKEN.findall(text) if not token.startswith("\\")]
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    @property
    def after(self) -> str:
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""

    def take(self) -> str:
        token = self.next
        self.at += 1
        return token

    @property
    def section(self) -> str:
        """The section that begins here, or ''."""
        return "" if self.after == ":" else _SECTIONS.get(self.next.lower(), "")

    def read(self) -> LinearModel:
        goal = _GOALS.get(self.take().lower())
        if goal is None:
            raise NoModel("it is neither JSON nor the LP format, which begins with Maximize or Minimize")
        if self.next == ":":
            self.take()
        self._skip_name()
        model = LinearModel(goal, *self._sum())
        read = {"rows": self._row, "bounds": self._read_bound, "whole": self._whole, "binary": self._binary}
        while self.next:
            section = self.section
            if not section:
                raise NoModel(f'"{self.next}" is not expected there')
            if self.take().lower() in ("subject", "such"):
                self.take()
            if section == "end":
                break
            while self.next and not self.section:
                read[section](model)
        return model

    def _skip_name(self) -> None:
        if self.after == ":":
            self.at += 2

    def _sum(self) -> tuple[Terms, float]:
        """Terms and constants up to a sign of comparison, a section or the next row."""
        terms, constant, start = Terms(), 0.0, self.at
        while (
            self.next
            and self.next not in _SIGNS
            and not self.section
            and (self.at == start or self.next in "+-")
        ):
            factor = self._coefficient()
            if self._starts_name():
                name = self.take()
                terms[name] = terms.get(name, 0.0) + (1.0 if factor is None else factor)
            else:
                constant += self._require(factor)
        return terms, constant

    def _starts_name(self) -> bool:
        return (self.next[:1].isalpha() or self.next[:1] == "_") and not self.section and self.after != ":"

    def _require(self, factor: float | None) -> float:
        if factor is None:
            raise NoModel(f'"{self.next}" is not expected there' if self.next else "it ends too early")
        return factor

    def _coefficient(self) -> float | None:
        """The number before a variable; None where there is no number and no sign."""
        sign, signed = 1.0, False
        while self.next and self.next in "+-":
            signed, sign = True, -sign if self.take() == "-" else sign
        if self.next[:1].isdigit() or (self.next[:1] == "." and len(self.next) > 1):
            value = _number(float(self.take()))
        elif self.next.lower() in _INFINITE:
            value = math.inf if self.take() else 0.0
        elif signed and self._starts_name():
            return sign
        else:
            return None
        if self.next == "*":
            self.take()
        return sign * value

    def _sides(self) -> list[_Side]:
        """The sides of a comparison. Only one of them, the first or the second, holds variables."""
        sides = [_Side("", *self._sum())]
        while self.next in _SIGNS:
            sign = _SIGNS[self.take()]
            if any(side.terms for side in sides):
                sides.append(_Side(sign, {}, self._require(self._coefficient())))
            else:
                sides.append(_Side(sign, *self._sum()))
        if len(sides) == 1 or not any(side.terms for side in sides):
            raise NoModel(
                f'a comparison of variables with a number should stand before "{self.next or "the end"}"'
            )
        return sides

    def _ends(self) -> tuple[Terms, float | None, float | None]:
        """A comparison as terms with the ends that it states."""
        sides = self._sides()
        place = next(k for k, side in enumerate(sides) if side.terms)
        terms, constant = sides[place].terms, sides[place].constant
        low: float | None = None
        high: float | None = None
        for k, side in enumerate(sides):
            if abs(k - place) != 1:
                continue
            sign = side.sign if k > place else sides[place].sign
            value = side.constant - constant
            if sign == "=" or (sign == "<") == (k < place):
                low = value
            if sign == "=" or (sign == "<") == (k > place):
                high = value
        return terms, low, high

    def _row(self, model: LinearModel) -> None:
        self._skip_name()
        terms, low, high = self._ends()
        model.rows.append((terms, -math.inf if low is None else low, math.inf if high is None else high))

    def _read_bound(self, model: LinearModel) -> None:
        if self.after.lower() == "free":
            model.bounds[self.take()] = (-math.inf, math.inf)
            self.take()
            return
        self._skip_name()
        terms, low, high = self._ends()
        (name, factor), *others = terms.items()
        if others or factor != 1.0:
            raise NoModel("a bound is of one variable, without a coefficient")
        old = model.bounds_of(name)
        model.bounds[name] = (old[0] if low is None else low, old[1] if high is None else high)

    def _whole(self, model: LinearModel) -> None:
        if not self._starts_name():
            raise NoModel(f'"{self.next}" is no name of a variable')
        model.whole.add(self.take())

    def _binary(self, model: LinearModel) -> None:
        model.bounds[self.next] = (0.0, 1.0)
        self._whole(model)
