"""A hidden rule: how it is said, how a program checks it, how a page breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from benchmarks.simulated.language import Form, Stance, form, understand

Page: TypeAlias = dict[str, Any]
Check: TypeAlias = Callable[[Page], bool]
Edit: TypeAlias = Callable[[Page], None]


@dataclass(frozen=True)
class Rule:
    """One rule about a page.

    `statement` and `paraphrases` are clear wordings of it; `critiques` say what is wrong with a page that
    breaks it (the last one also says what should be done). `check` is the program that decides, `breaks`
    turns a page that obeys the rule into one that breaks it and no other rule. `says` lists the forms by
    which any wording is recognised (see `language.form`).
    """

    id: str
    statement: str
    paraphrases: tuple[str, ...]
    critiques: tuple[str, ...]
    check: Check
    breaks: Edit
    says: tuple[str, ...]
    forms: tuple[Form, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "forms", tuple(form(spec) for spec in self.says))

    @property
    def wordings(self) -> tuple[str, ...]:
        """All clear wordings of the rule."""
        return (self.statement, *self.paraphrases)

    def holds(self, page: Any) -> bool:
        """Whether a page obeys the rule. A page that lacks the place that the rule speaks of breaks it."""
        try:
            return bool(self.check(page))
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
            return False

    def stance(self, sentence: str) -> Stance:
        """What a sentence does to the rule: the strongest of what its forms say."""
        parsed = understand(sentence)
        return max((form.stance(parsed) for form in self.forms), key=lambda stance: stance.value)


def put(path: str, value: Any) -> Edit:
    """An edit that sets the value at a path such as `sections.0.id`."""

    def edit(page: Page) -> None:
        place, last = _walk(page, path)
        place[last] = value

    return edit


def drop(path: str) -> Edit:
    """An edit that removes what stands at a path."""

    def edit(page: Page) -> None:
        place, last = _walk(page, path)
        del place[last]

    return edit


def change(path: str, how: Callable[[Any], Any]) -> Edit:
    """An edit that replaces the value at a path by a function of it."""

    def edit(page: Page) -> None:
        place, last = _walk(page, path)
        place[last] = how(place[last])

    return edit


def _walk(page: Page, path: str) -> tuple[Any, Any]:
    *way, last = (int(part) if part.lstrip("-").isdigit() else part for part in path.split("."))
    place: Any = page
    for part in way:
        place = place[part]
    return place, last


def every(items: Sequence[Any], test: Callable[[Any], bool]) -> bool:
    """Whether there are items and all of them pass."""
    return isinstance(items, list) and bool(items) and all(test(item) for item in items)


def text(value: Any) -> str:
    """The value if it is a text; anything else breaks the rule that asks."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def whole(value: Any) -> bool:
    """Whether a value is a whole number (a truth value is not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def texts(page: Any) -> list[str]:
    """All texts of a page, at any depth."""
    if isinstance(page, dict):
        return [string for value in page.values() for string in texts(value)]
    if isinstance(page, list):
        return [string for value in page for string in texts(value)]
    return [page] if isinstance(page, str) else []


def keys(page: Any) -> list[str]:
    """All keys of a page, at any depth."""
    if isinstance(page, dict):
        return [*page, *(key for value in page.values() for key in keys(value))]
    return [key for value in page for key in keys(value)] if isinstance(page, list) else []


def depth(page: Any) -> int:
    """Number of objects and lists that lie inside one another."""
    if isinstance(page, dict):
        return 1 + max((depth(value) for value in page.values()), default=0)
    if isinstance(page, list):
        return 1 + max((depth(value) for value in page), default=0)
    return 0
