"""The process that watches another one: `process.py PID TEXT`. It uses nothing but the standard library.

Lines come on its standard input: `.` while Python code runs there, `N SECONDS TEXT` where code N begins that may take so long,
`N` where it has ended. The number of each signal comes as one byte. The end of the input ends this process.
"""

import os
import select
import signal
import sys
import time

BEAT = 0.25
"""Seconds between two signs of life."""
SILENT = 1.5
"""Without a sign of life for so many seconds nothing of Python runs there."""
AFTER_INTERRUPT = 2.0
_INTERRUPT = b"\x02"


class ProcessWatch:
    """What is known of the other process at second `now`, which counts only while this process is awake."""

    def __init__(self, interrupted: str) -> None:
        self.now = self.heard = 0.0
        self._interrupted, self._interrupts = interrupted, list[float]()
        self._ends: dict[str, tuple[float, str]] = {}
        self._rest = b""

    def hear(self, received: bytes) -> None:
        """Take in what came."""
        self._interrupts += [self.now] * received.count(_INTERRUPT)
        *lines, self._rest = (self._rest + received.replace(_INTERRUPT, b"")).split(b"\n")
        for line in lines:
            self.heard = self.now
            number, _, rest = line.decode("utf-8", "replace").partition(" ")
            seconds, _, text = rest.partition(" ")
            if seconds:
                self._ends[number] = self.now + float(seconds), text
            else:
                self._ends.pop(number, None)

    def verdict(self) -> str:
        """Why the other process has to be ended; empty while it need not."""
        if self.now - self.heard < SILENT:
            return ""
        late = [(end, text) for end, text in self._ends.values() if end <= self.now]
        if late:
            return min(late)[1]
        by_user = len(self._interrupts) > 1 or (
            self._interrupts and self.now - self._interrupts[0] >= AFTER_INTERRUPT
        )
        return self._interrupted if by_user else ""


def main() -> None:
    """Watch until the other process ends, or end it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process, watch = int(sys.argv[1]), ProcessWatch(sys.argv[2])
    while os.getppid() == process:
        began = time.monotonic()
        came = select.select([0], [], [], BEAT)[0]
        watch.now += min(time.monotonic() - began, 2 * BEAT)
        if came:
            received = os.read(0, 65536)
            if not received:
                return
            watch.hear(received)
        if why := watch.verdict():
            os.write(2, f"{why}\n".encode())
            os.kill(process, signal.SIGKILL)
            return


if __name__ == "__main__":
    main()
