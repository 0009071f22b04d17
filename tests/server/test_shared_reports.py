"""Reports that several readers ask for at once: computed once where they are large, and always fresh where they are small."""

from __future__ import annotations

import threading

import pytest

from whet_live.server.shared_reports import KEPT_SECONDS, LARGE, SharedReports


class Counted:
    """Counts how often a report of so many answers was computed."""

    def __init__(self, size: int) -> None:
        self.size, self.calls = size, 0

    def __call__(self) -> tuple[int, int]:
        self.calls += 1
        return self.size, self.calls


def size_of(report: tuple[int, int]) -> int:
    return report[0]


def test_a_large_report_is_kept_for_some_seconds_and_a_small_one_never() -> None:
    now = [100.0]
    reports = SharedReports(lambda: now[0])
    large, small = Counted(LARGE), Counted(LARGE - 1)
    assert [reports.get("a", large, size_of) for _ in range(3)] == [(LARGE, 1)] * 3
    assert [reports.get("b", small, size_of)[1] for _ in range(3)] == [1, 2, 3]
    assert reports.get("c", large, size_of) == (LARGE, 2), "another question is another report"
    now[0] += KEPT_SECONDS
    assert reports.get("a", large, size_of) == (LARGE, 3)


@pytest.mark.parametrize(("size", "expected"), [(LARGE, 1), (1, 8)])
def test_readers_at_once_share_a_large_report(size: int, expected: int) -> None:
    reports, begun, may_end = SharedReports(), threading.Event(), threading.Event()
    compute = Counted(size)

    def slow() -> tuple[int, int]:
        begun.set()
        assert may_end.wait(60)
        return compute()

    readers = [threading.Thread(target=reports.get, args=("a", slow, size_of)) for _ in range(8)]
    for reader in readers:
        reader.start()
    assert begun.wait(60)
    may_end.set()
    for reader in readers:
        reader.join(60)
    assert compute.calls == expected


def test_a_reader_who_fails_takes_nobody_with_it() -> None:
    reports, begun, may_fail = SharedReports(), threading.Event(), threading.Event()
    failed = list[str]()

    def fail() -> tuple[int, int]:
        begun.set()
        assert may_fail.wait(60)
        raise ValueError("the database is away")

    def ask() -> None:
        try:
            reports.get("a", fail, size_of)
        except ValueError as error:
            failed.append(str(error))

    first = threading.Thread(target=ask)
    first.start()
    assert begun.wait(60)
    second = threading.Thread(target=reports.get, args=("a", Counted(LARGE), size_of))
    second.start()
    may_fail.set()
    first.join(60)
    second.join(60)
    assert failed == ["the database is away"] and reports.get("a", Counted(LARGE), size_of) == (LARGE, 1)
