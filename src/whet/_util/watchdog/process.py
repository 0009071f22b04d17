"""The process that watches another one: `process.py PID [TEXT]`. It uses nothing but the standard library.

Lines come on its standard input: `.` while Python code runs there, `N SECONDS TEXT` where code N begins that may take so long,
`N` where it has ended. The text is what to say where it is late, and behind a separator what to say where the other process ends
while it is under way. The number of each signal comes as one byte. The end of the input ends this process.

With a TEXT, the words after Ctrl-C or SIGTERM, it ends the other process where code is late. Without one it only says what is
late, once.
"""

import os
import queue
import signal
import sys
import threading
import time

BEAT = 0.25
"""Seconds between two signs of life."""
SILENT = 1.5
"""Without a sign of life for so many seconds nothing of Python runs there."""
SURELY_SILENT = 4.0
"""The silence, in seconds, after which only a message follows: it should be right on a busy machine too."""
AFTER_INTERRUPT = 2.0
SEPARATOR = "\x1e"
_INTERRUPT, _TERMINATE = b"\x02", b"\x0f"


class ProcessWatch:
    """The state of the other process at second `now`, which counts only while this process is awake."""

    def __init__(self, interrupted: str = "") -> None:
        self.now = self.heard = 0.0
        self._interrupted, self._interrupts = interrupted, list[float]()
        self._ends: dict[str, tuple[float, str, str]] = {}
        self._rest = b""

    def hear(self, received: bytes) -> None:
        """Take in what came."""
        self._interrupts += [self.now] * received.count(_INTERRUPT)
        if _TERMINATE in received and not self._interrupts:  # a second one hurries nothing
            self._interrupts.append(self.now)
        received = received.replace(_INTERRUPT, b"").replace(_TERMINATE, b"")
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            self.heard = self.now
            number, _, rest = line.decode("utf-8", "replace").partition(" ")
            seconds, _, text = rest.partition(" ")
            if seconds:
                self._ends[number] = self.now + float(seconds), *text.partition(SEPARATOR)[::2]
            else:
                self._ends.pop(number, None)

    def verdict(self) -> str:
        """Why the other process has to be ended; empty while it need not."""
        if self.now - self.heard < SILENT:
            return ""
        late = [(end, text) for end, text, _ in self._ends.values() if end <= self.now]
        if late:
            return min(late)[1]
        by_user = len(self._interrupts) > 1 or (
            self._interrupts and self.now - self._interrupts[0] >= AFTER_INTERRUPT
        )
        return self._interrupted if by_user else ""

    def late(self) -> str:
        """The text about the newest piece of code, given once, if no Python code has run there for long and that piece is late:
        only one piece of code can hold the interpreter, and nothing began after this one."""
        if self.now - self.heard < SURELY_SILENT or not self._ends:
            return ""
        number, (end, text, dead) = next(reversed(self._ends.items()))
        if end > self.now:
            return ""
        self._ends[number] = float("inf"), text, dead
        return text

    def last_words(self) -> str:
        """A sentence about the end of the other process: it ended under code of a user, unless a signal ended it."""
        texts = [text for _, _, text in self._ends.values()]
        return texts[-1] if texts and not self._interrupts else ""


def _read_on(pieces: "queue.SimpleQueue[bytes]") -> None:
    """Put what comes on the standard input into a queue, at the end an empty piece: to wait for a pipe with a time limit is not
    possible on every system."""
    received = b"."
    while received:
        received = os.read(0, 65536)
        pieces.put(received)


def main() -> None:
    """Watch until the other process ends, or end it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process, interrupted = int(sys.argv[1]), "".join(sys.argv[2:])
    watch, pieces = ProcessWatch(interrupted), queue.SimpleQueue[bytes]()
    threading.Thread(target=_read_on, args=(pieces,), daemon=True).start()
    while True:
        began = time.monotonic()
        try:
            received = pieces.get(timeout=BEAT)
        except queue.Empty:
            received = None
        watch.now += min(time.monotonic() - began, 2 * BEAT)
        if received:
            watch.hear(received)
        elif received is not None or (os.name == "posix" and os.getppid() != process):
            break
        if not interrupted:
            if text := watch.late():
                os.write(2, f"{text}\n".encode())
        elif why := watch.verdict():
            os.write(2, f"{why}\n".encode())
            os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))
            return
    if words := watch.last_words():
        os.write(2, f"{words}\n".encode())


if __name__ == "__main__":
    main()
