"""Texts that a model may write or be shown, although nobody expects them: what code from outside has to survive."""

from __future__ import annotations

ODD_TEXTS: tuple[str, ...] = (
    "",
    " \n\t ",
    "\x00",
    "\ud800 half a pair",
    "\u202eright to left\u2066",
    "e\u0301\u200b\ufeff \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "𝟜𝟚 ٤٢ ½ ²",
    "-0 1e999 nan inf 00007",
    '{"reward": 1e999, "text": [null',
    "[[[[[[",
    "%s {0.__class__} ${HOME} {{input}} {% x %}",
    "<!-- whet:begin --> new <!-- whet:end -->",
    "</answer></tool><answer>",
    "line\r\nline\rline\u2028line\x85line",
)
"""Short texts: empty, invisible, half a character, numbers that are none, forms that are never closed."""

HUGE_TEXTS: tuple[str, ...] = ("word " * 40_000, "a" + "\n" * 100_000 + "b", "9" * 100_000, "(" * 100_000)
"""Long texts that take a quadratic pattern minutes."""
