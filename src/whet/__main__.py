"""`python -m whet` is `whet`."""

import signal


def run() -> None:
    """Load the commands, during which Ctrl-C ends the process without a word, and be `whet`."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from whet.cli.main import main

    signal.signal(signal.SIGINT, before)
    main()


if __name__ == "__main__":
    run()
