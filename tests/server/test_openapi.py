"""Generated requests against the running server: whatever is sent, the answer is one that the document names.

Each operation gets a few valid and a few broken requests; the server must never fail, must answer with documented
statuses, media types and shapes, refuse what the schema forbids, and refuse callers without a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.report import runs as recorded
from tests.server.conftest import Running, running
from tests.server.test_matrix import WIDE
from tests.server.world import fill

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis makes the requests")

"""What a schema cannot say is refused with 400 too (a broken fence, a date of another century), so that requests that fit
the schema need not succeed: that one check is left out."""


@pytest.fixture
def served(sqlite_url: str, tmp_path: Path) -> Iterator[Running]:
    """A filled installation."""
    recorded.running(tmp_path / "runs" / "running")
    with running(sqlite_url, limits=WIDE, runs=str(tmp_path / "runs")) as server:
        fill(server.state.live)
        yield server


def modes() -> list[Any]:
    """What is generated: requests that fit the document, and requests that do not."""
    from schemathesis import GenerationMode

    return [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


@pytest.mark.parametrize("examples", [1, pytest.param(3, marks=pytest.mark.long)])
def test_every_answer_is_one_that_the_document_names(served: Running, examples: int) -> None:
    headers = {"Authorization": f"Bearer {served.tokens['admin']}"}
    schema = schemathesis.openapi.from_url(f"{served.address}/openapi.json", headers=headers)
    schema.config.generation.with_security_parameters = False
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        raw = operation.definition.raw
        breakable = "requestBody" in raw or any(one["in"] == "query" for one in raw["parameters"])
        for mode in modes() if breakable else modes()[:1]:
            try_operation(operation, mode, headers, examples)
        tried += 1
    assert tried > 30
    assert served.state.live.registry.verify_audit().whole


def try_operation(operation: Any, mode: Any, headers: dict[str, str], examples: int) -> None:
    """Send a few requests of one operation and check every answer."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        answer = case.call(headers=headers)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text[:500])
        case.validate_response(answer, headers=headers, excluded_checks=[positive_data_acceptance])

    send()
