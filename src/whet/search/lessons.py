"""A list of short lessons behind the editable text. It changes by operations on single lessons, and is never written anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import normalize_wording, objectionable
from whet.search.edits import replace_region, text_in
from whet.search.from_zero import Objections, leave_zero
from whet.search.plan import SearchPlan

HEAD = "Lessons:"
LONGEST = 600
"""Characters of a lesson at most."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson, its key, and how many verdicts said that it helped, or did harm."""

    key: str
    text: str
    helpful: int = 0
    harmful: int = 0

    @property
    def harms(self) -> bool:
        """Whether more verdicts speak against it than for it."""
        return self.harmful > self.helpful


@dataclass(frozen=True)
class LessonList:
    """Lessons behind the text `base` of the region of `start`, `most` at most.

    `born` numbers their keys, which are never used again. A lesson to which there are `objections` is not taken in.
    """

    start: Prompt
    base: str
    most: int
    objections: Callable[[str], object] = lambda text: ()
    lessons: tuple[Lesson, ...] = ()
    born: int = 0

    @property
    def prompt(self) -> Prompt | None:
        """The prompt with the lessons; None where the start prompt refuses the text."""
        if not self.lessons:
            return replace_region(self.start, self.base)
        lines = "\n".join(f"- {lesson.text}" for lesson in self.lessons)
        return replace_region(self.start, f"{self.base.rstrip()}\n\n{HEAD}\n{lines}\n".lstrip())

    @property
    def shown(self) -> str:
        """The lessons as a model reads them, one a line: `[L1] text (helped 2, harmed 1)`."""
        counts = {
            lesson.key: f" (helped {lesson.helpful}, harmed {lesson.harmful})" for lesson in self.lessons
        }
        return "\n".join(
            f"[{lesson.key}] {lesson.text}{counts[lesson.key] if lesson.helpful + lesson.harmful else ''}"
            for lesson in self.lessons
        )

    def add(self, text: object) -> LessonList:
        """The list with one lesson more; the same list where it is full, has this lesson, or cannot take this one in."""
        line = _line(text)
        if not line or len(self.lessons) >= self.most or _same(line, self.lessons):
            return self
        lessons = (*self.lessons, Lesson(f"L{self.born + 1}", line))
        return self._if_fit(line, replace(self, lessons=lessons, born=self.born + 1))

    def update(self, key: object, text: object) -> LessonList:
        """The list with another text for a lesson, whose counts begin anew; the same list for an unknown key or an unfit text."""
        line, name = _line(text), _key(key)
        others = [lesson for lesson in self.lessons if lesson.key != name]
        if not line or len(others) == len(self.lessons) or _same(line, others):
            return self
        lessons = tuple(Lesson(name, line) if lesson.key == name else lesson for lesson in self.lessons)
        return self._if_fit(line, replace(self, lessons=lessons))

    def without(self, keys: Collection[object]) -> LessonList:
        """The list without the lessons of these keys."""
        gone = {_key(key) for key in keys}
        kept = tuple(lesson for lesson in self.lessons if lesson.key not in gone)
        return self if len(kept) == len(self.lessons) else replace(self, lessons=kept)

    def count_verdicts(self, helped: Sequence[object], harmed: Sequence[object]) -> LessonList:
        """The list after verdicts on some lessons, by key; on one of which both is said, nothing is."""
        good, bad = {_key(key) for key in helped}, {_key(key) for key in harmed}
        lessons = (
            replace(
                lesson,
                helpful=lesson.helpful + (lesson.key in good - bad),
                harmful=lesson.harmful + (lesson.key in bad - good),
            )
            for lesson in self.lessons
        )
        return replace(self, lessons=tuple(lessons))

    def halve_counts(self) -> LessonList:
        """The list with half of each count, rounded down: what was said long ago counts little."""
        lessons = (
            replace(lesson, helpful=lesson.helpful // 2, harmful=lesson.harmful // 2)
            for lesson in self.lessons
        )
        return replace(self, lessons=tuple(lessons))

    def apply_operations(self, operations: Sequence[Mapping[str, object]]) -> tuple[LessonList, int]:
        """The list after typed operations, and how many of them changed nothing.

        {"op": "add", "text"}; {"op": "update", "id", "text"}; {"op": "delete", "id"}, without a text, wins over an update.
        """
        gone = {_key(operation.get("id")) for operation in operations if operation.get("op") == "delete"}
        result, dropped = self, 0
        for one in operations:
            op, key, before = one.get("op"), _key(one.get("id")), result
            if op == "delete":
                result = result.without([key])
            elif op == "update" and key not in gone:
                result = result.update(key, one.get("text"))
            elif op == "add":
                result = result.add(one.get("text"))
            dropped += result is before
        return result, dropped

    def _if_fit(self, line: str, changed: LessonList) -> LessonList:
        return self if self.objections(line) or changed.prompt is None else changed


async def begin_lessons(
    run: Run, plan: SearchPlan, archive: Archive, start: Prompt, most: int, objections: Objections
) -> tuple[SearchPlan, Candidate, LessonList]:
    """Begin a search for lessons at the validated start, or at the prompt by which the search leaves a start that earns
    nothing.

    The plan less what that took, the candidate, and no lessons behind its text. A lesson that copies a single training input,
    or to which there are `objections`, will not be taken in.
    """
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, objections)
    current = firsts[0].candidate if firsts else Candidate(start)
    unfit = partial(objectionable, objections, plan.env.train, start.source)
    return plan, current, LessonList(start, text_in(start, current.prompt), most, unfit)


def _line(text: object) -> str:
    """A text on one line; empty for a value that is no text, or is too long."""
    line = " ".join(text.split()) if isinstance(text, str) else ""
    return line if len(line) <= LONGEST else ""


def _key(key: object) -> str:
    return str(key).strip().strip("[]")


def _same(line: str, lessons: Sequence[Lesson]) -> bool:
    return normalize_wording(line) in {normalize_wording(lesson.text) for lesson in lessons}
