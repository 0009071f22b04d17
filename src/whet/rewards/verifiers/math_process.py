"""Run in a confined process: decides with SymPy whether pairs of expressions are equal.

It imports nothing of whet, and no text of an answer is parsed here. In: `pairs`, each of two trees as `MathNode.to_json` of
`math_reading` writes them, or of two pairs of sides (of a relation) with `ratio`; `relative`. Out: `same`, one of true, false
and null (undecided) for each pair.
"""

import json
import sys
from typing import Any


def main() -> None:
    """Read the pairs, write the decisions."""
    import sympy

    question = json.load(sys.stdin)
    relative = sympy.Rational(question["relative"])
    say = [_decide(sympy, pair, relative) for pair in question["pairs"]]
    json.dump({"same": say}, sys.stdout)


def _decide(sympy: Any, pair: dict[str, Any], relative: Any) -> bool | None:
    one, other = (_build(sympy, tree) for tree in pair["trees"])
    if one == other:
        return True
    if pair["ratio"]:
        return _is_multiple(sympy, one, other, pair["ratio"])
    if one.has(sympy.oo, sympy.zoo, sympy.nan) or other.has(sympy.oo, sympy.zoo, sympy.nan):
        return False
    if relative and one.is_number and other.is_number:
        near = abs(sympy.N(one - other, 30)) <= relative * abs(sympy.N(other, 30))
        if near in (True, sympy.true):
            return True
    return _is_zero(sympy, one - other)


def _is_zero(sympy: Any, gap: Any) -> bool | None:
    """Whether an expression is 0 everywhere: seen from values at points, and proved by SymPy."""
    equals: bool | None = gap.equals(0)
    if equals is None and sympy.simplify(gap) == 0:
        return True
    return equals


def _is_multiple(sympy: Any, one: Any, other: Any, which: str) -> bool | None:
    """Whether one expression is a number times the other one: `any` number other than 0, or a `positive` one."""
    if one == 0 or other == 0:
        return bool(one == other)
    ratio = sympy.simplify(one / other)
    if not ratio.is_number or ratio.is_zero:
        return False
    return True if which == "any" else bool(ratio.is_positive)


def _build(sympy: Any, tree: list[Any]) -> Any:
    """The expression of a tree. Symbols are real numbers."""
    kind, text, *parts = tree
    if kind == "number":
        return sympy.Rational(int(text, 16), int(parts[0], 16))
    if kind == "symbol":
        return sympy.Symbol(text, real=True)
    if kind == "constant":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}[text]
    built = [_build(sympy, part) for part in parts]
    if kind == "call":
        if text == "log10":
            return sympy.log(built[0], 10)
        return getattr(sympy, {"abs": "Abs"}.get(text, text))(*built)
    return {"add": sympy.Add, "multiply": sympy.Mul, "power": sympy.Pow}[kind](*built)


if __name__ == "__main__":
    main()
