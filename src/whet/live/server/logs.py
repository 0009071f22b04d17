"""Structured logs: one JSON object a line on stderr, with facts and without texts, tokens or query strings."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson

LOGGERS = ("whet.live.server", "whet.learner", "uvicorn.error")


class JsonLines(logging.Formatter):
    """A record as one line: time, level, logger, what happened, and its facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment,
            "level": record.levelname.lower(),
            "from": record.name,
            "what": record.getMessage(),
        }
        facts = getattr(record, "facts", None)
        if isinstance(facts, dict):
            line |= facts
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return orjson.dumps(line, default=str).decode()


def log_to_stderr(level: int) -> None:
    """Send the server's records, and those of the HTTP server below it, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)
