"""The monitoring of a running server: figures in Prometheus' text format, and log lines on stderr. The lines are JSON objects
with facts and without texts, tokens or query strings."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from whet_client.version import __version__
from whet_live.quality import Quality

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
LOGGERS = ("whet", "uvicorn.error")
"""All loggers of the server, the learner, experiments and models stand below the first one."""


class Metrics:
    """Counters of one server, in a registry of its own. `route` is the pattern of a route, never a path that was asked."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "whet_http_requests", "Requests answered", ("method", "route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "whet_http_request_seconds",
            "Time to answer a request",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("whet_http_in_flight", "Requests being answered", registry=self.registry)
        self.connections = Gauge("whet_http_connections", "Open connections", registry=self.registry)
        self.streams = Gauge("whet_http_streams", "Open event streams", registry=self.registry)
        self.stored = Counter(
            "whet_ingest_rows",
            "Rows stored by requests that were accepted",
            ("kind",),
            registry=self.registry,
        )
        self.duplicates = Counter(
            "whet_ingest_duplicates", "Rows that were stored before", ("kind",), registry=self.registry
        )
        self.quality = Gauge(
            "whet_quality",
            "Mean of a measure of a prompt over the last day",
            ("prompt", "measure"),
            registry=self.registry,
        )
        self.quality_values = Gauge(
            "whet_quality_values",
            "Values of a measure of a prompt that were read for its mean over the last day",
            ("prompt", "measure"),
            registry=self.registry,
        )
        self.quality_answers = Gauge(
            "whet_quality_answers", "Answers of a prompt in the last day", ("prompt",), registry=self.registry
        )
        info = Gauge("whet_build_info", "The running version", ("version",), registry=self.registry)
        info.labels(__version__).set(1)

    def count_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def set_quality(self, quality: Quality) -> None:
        """Set the gauges of quality from the traffic of the last day. Waits for the database."""
        counts, means = quality.now()
        for gauge in (self.quality, self.quality_values, self.quality_answers):
            gauge.clear()
        for prompt, answers in counts.items():
            self.quality_answers.labels(prompt).set(answers)
        for one in means:
            self.quality.labels(one.prompt, one.measure).set(one.mean)
            self.quality_values.labels(one.prompt, one.measure).set(one.n)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


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
