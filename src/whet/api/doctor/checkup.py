"""The findings of an examination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

OK, WARN, BROKEN = "ok", "warn", "broken"
NOT_INSTALLED, NOT_SET = "not installed", "not set"
"""Marks of what is optional and not there: an extra, a key."""


@dataclass(frozen=True)
class DoctorFinding:
    """One finding: what was examined, how it stands, what was seen, what to do."""

    check: str
    status: str
    text: str
    remedy: str = ""


@dataclass
class DoctorReport:
    """Findings in the order in which they were made. `healthy`: nothing is broken.

    `tell` is called with each finding when it is made, `begin` with what is examined next, where that may take a while.
    """

    symptoms: list[DoctorFinding] = field(default_factory=list)
    tell: Callable[[DoctorFinding], None] = lambda symptom: None
    begin: Callable[[str], None] = lambda what: None

    def ok(self, check: str, text: str) -> None:
        """Note what is as it should be, or what is only worth knowing."""
        self._note(DoctorFinding(check, OK, text))

    def warn(self, check: str, text: str, remedy: str) -> None:
        """Note what a run survives."""
        self._note(DoctorFinding(check, WARN, text, remedy))

    def absent(self, check: str, status: str, text: str, remedy: str) -> None:
        """Note what is not there, and which only some runs need: NOT_INSTALLED or NOT_SET."""
        self._note(DoctorFinding(check, status, text, remedy))

    def fail(self, check: str, text: str, remedy: str) -> None:
        """Note what stops a run or makes it worthless."""
        self._note(DoctorFinding(check, BROKEN, text, remedy))

    def _note(self, symptom: DoctorFinding) -> None:
        self.symptoms.append(symptom)
        self.tell(symptom)

    @property
    def healthy(self) -> bool:
        """Whether nothing is broken."""
        return all(symptom.status != BROKEN for symptom in self.symptoms)

    def as_json(self) -> dict[str, object]:
        """The findings as JSON values."""
        return {"healthy": self.healthy, "checks": [asdict(symptom) for symptom in self.symptoms]}
