"""`python -m whet` is `whet`."""

import atexit
import gc
import os
import signal


def run() -> None:
    """Load the commands, during which Ctrl-C ends the process without a word, and be `whet`.

    Loaded modules live to the end: garbage collection among them took an eighth of the start time.
    """
    gc.set_threshold(50_000, 20, 20)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from whet.cli.main import main

    signal.signal(signal.SIGINT, before)
    if "TORCHELASTIC_RUN_ID" in os.environ and not _leads():
        return
    main()


def _leads() -> bool:
    """Whether this process, which torchrun started, is the one with the run. Another one helps it to train, until it ends."""
    from whet.rl.launcher import place_among_processes
    from whet.rl.policy_model.distributed import dismiss_launched
    from whet.rl.policy_model.distributed_worker import serve_launched

    rank, processes = place_among_processes()
    if rank:
        serve_launched()
    elif processes > 1:
        atexit.register(dismiss_launched)
    return not rank


if __name__ == "__main__":
    run()
