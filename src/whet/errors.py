"""One tree of exceptions. A message says what happened, which value, and what to do.

WhetError
├── UsageError            input that cannot be used; nothing was paid (exit code 2)
│   ├── EditRejected      an edit would change text outside the fence or the set of slots
│   ├── RunLocked         this or another process is working on the same run
│   └── ReplayDiverged    the journal belongs to other code, another config or another task
├── ProviderError         a model endpoint failed (exit code 3 once it is final)
├── BudgetExceeded        a limit of the run is reached; a search turns it into "best so far" (exit code 3)
└── StorageError          the disk refused a write; everything acknowledged before is safe (exit code 4)
"""

from __future__ import annotations

import math

from whet_client.errors import EditRejected as EditRejected
from whet_client.errors import Spell as Spell
from whet_client.errors import UsageError as UsageError
from whet_client.errors import WhetError as WhetError
from whet_client.errors import did_you_mean as did_you_mean
from whet_client.errors import named_fields as named_fields
from whet_client.errors import near_word as near_word
from whet_client.errors import parameter as parameter
from whet_client.errors import spelling as spelling
from whet_client.errors import task_setting as task_setting


class RunLocked(UsageError):
    """This run is in use, by another process or elsewhere in this process."""


class ReplayDiverged(UsageError):
    """The journal was written by other code, another configuration or other data."""


_TAKEN = (408, 499)
"""Statuses of a call that a server may have worked on until it stopped waiting for the client."""


class ProviderError(WhetError):
    """A model endpoint failed.

    `retryable`: whether the same request may succeed later. `retry_after`: the delay that the server requests, in seconds.
    `status`: the HTTP status, if there was an answer. `fatal`: whether the failure concerns every request (wrong key, dead
    endpoint) and not only this request. `billed`: whether an unreadable answer counts at its worst case (if None, a 200 does).
    `refused`: whether the provider refused the call without working on it (an HTTP status from 300 on that is no timeout of
    the client's, 408 and 499; no connection); such a call is not billed and does not count. `result`: the known part of the run
    that the error ended, as in its `result.json`.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        fatal: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        billed: bool | None = None,
        refused: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.fatal = fatal
        self.retry_after = retry_after
        self.status = status
        self.billed = status == 200 if billed is None else billed
        away = status is not None and status >= 300 and status not in _TAKEN
        self.refused = (away if refused is None else refused) and not self.billed
        self.result: dict[str, object] | None = None


class BudgetExceeded(WhetError):
    """A limit of the run is reached. Methods never catch this error: the engine ends the search with the best prompt so far; an
    evaluation ends without a result."""

    exit_code = 3

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


ALARM = "the alarm of the reward"
"""The first words of `ended_by` for a search that an alarm stopped."""


class SearchStopped(BudgetExceeded):
    """The reward is no longer valid for the prompts of the search: the engine ends the search with the best earlier prompt."""

    def __init__(self, why: str) -> None:
        super().__init__("alarm", why)


class StorageError(WhetError):
    """A write failed (full disk, I/O error). Data that was acknowledged before is intact."""

    exit_code = 4


def quantity(number: int, noun: str) -> str:
    """A number with its noun.

    >>> quantity(1, "row"), quantity(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_NOISE = 1e-9


def show_reward(value: float, digits: int = 3, sign: bool = False) -> str:
    """A reward, a mean of them or a difference. One that is not whole has as many decimals as keep it from looking so, so that
    no figure beside a bound looks like the bound; what floats round off does not count.

    >>> show_reward(0.5), show_reward(0.9996), show_reward(-0.00004, sign=True), show_reward(1 - 1e-12)
    ('0.500', '0.9996', '-0.00004', '1.000')
    """
    if math.isfinite(value):
        whole = float(round(value))
        if abs(value - whole) <= _NOISE * max(1.0, abs(value)):
            value = whole
        else:
            while digits < 9 and round(value, digits) == whole:
                digits += 1
    return f"{value:{'+' if sign else ''},.{digits}f}"


def show_duration(seconds: float) -> str:
    """Whole seconds below two minutes, then minutes, then hours.

    >>> show_duration(42.2), show_duration(150), show_duration(9000)
    ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def show_size(value: float, digits: int = 4, sign: bool = False) -> str:
    """A value of any size in so many significant digits, or in more where it would look like a whole number near it.

    >>> show_size(0.99996), show_size(0.5), show_size(1234.56), show_size(2.0)
    ('0.99996', '0.5', '1235', '2')
    """
    plus = "+" if sign else ""
    if abs(value) < 10 ** (digits - 1) and abs(value - round(value)) > _NOISE * max(1.0, abs(value)):
        while digits < 9 and float(f"{value:.{digits}g}").is_integer():
            digits += 1
    return f"{value:{plus}.{digits}g}"


def show_share(share: float) -> str:
    """A share as whole percent, or with the decimals that keep what is not all from looking like all, and something like nothing.

    >>> show_share(0.424), show_share(0.996), show_share(0.0004), show_share(1)
    ('42%', '99.6%', '0.04%', '100%')
    """
    digits = 0
    if _NOISE < share < 1 - _NOISE:
        while digits < 7 and round(100 * share, digits) in (0, 100):
            digits += 1
    return f"{share:.{digits}%}"
