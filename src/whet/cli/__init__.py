"""The command line: arguments in, calls of the façade, text or JSON out."""

from whet.cli.main import main

__all__ = ["main"]
