"""A least-recently-used memory of vectors, keyed by text."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

import torch
from torch import Tensor


class VectorMemo:
    """Keeps the vectors of the ``size`` texts used last; safe to share between threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, texts: Sequence[str], make: Callable[[list[str]], Tensor]) -> Tensor:
        """Vectors of ``texts`` (len(texts), width); ``make`` is called with the unknown ones."""
        with self._lock:
            known = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            known.update(zip(missing, make(missing), strict=True))
        with self._lock:
            for text in known:
                self._kept[text] = known[text]
                self._kept.move_to_end(text)
            while len(self._kept) > self.size:
                self._kept.popitem(last=False)
        return torch.stack([known[text] for text in texts])
