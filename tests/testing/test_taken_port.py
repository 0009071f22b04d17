"""The local server where its port is taken: one line and exit code 2."""

from __future__ import annotations

import socket

import pytest

from whet.testing.server import main


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--port", str(port), "--text", "yes"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "already in use" in said and "--port" in said
