"""Whether torchrun started this process, as one of several that train together."""

from __future__ import annotations

import os


def place_among_processes() -> tuple[int, int]:
    """Rank of this process and number of processes, where torchrun started it; (0, 1) elsewhere.

    `accelerate launch` with several processes is torchrun.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
