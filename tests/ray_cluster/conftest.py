"""Ray clusters whose nodes are all on this machine, at 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.real_models.conftest import free_port
from whet._util.workers.ray_cluster import ON_LOOPBACK

SETTINGS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Without the first, Ray takes the address of the machine in the network for 127.0.0.1, at which nobody listens."""
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}
"""How soon a node that was killed is noticed."""
LOCAL = {"node_ip_address": "127.0.0.1", "include_dashboard": False}


NODE = """
import sys, time
from ray._private.node import Node
from ray._private.parameter import RayParams

(address,) = sys.argv[1:]
node = Node(
    RayParams(
        gcs_address=address, redis_address=address, node_ip_address="127.0.0.1", num_cpus=1, num_gpus=0, min_worker_port=0,
        max_worker_port=0, node_manager_port=0, object_store_memory=150 * 1024 * 1024, include_log_monitor=False,
    ),
    head=False, shutdown_at_exit=True, spawn_reaper=True,
)
print("Ray runtime started", flush=True)
time.sleep(3600)
"""
"""A node as `cluster_utils` makes it, in a process of its own: `ray start` refuses to join a cluster on loopback."""


class Nodes:
    """A cluster with one processor a node."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster(
            initialize_head=True, head_node_args={**LOCAL, "num_cpus": 1, "_system_config": HEALTH}
        )

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return str(self.cluster.address)

    def add(self, **settings: Any) -> Any:
        """A further node."""
        return self.cluster.add_node(**LOCAL, num_cpus=1, **settings)

    @contextlib.contextmanager
    def joined_without(self, hidden: Path, folder: Path, variables: dict[str, str]) -> Iterator[None]:
        """A further node, for whose processes a folder of this machine is empty: they have other mounts."""
        mount = [
            "unshare",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            f'mount -t tmpfs none {hidden} && exec "$@"',
            "-",
        ]
        if subprocess.run([*mount, "true"], capture_output=True).returncode:
            pytest.skip(
                "this system lets nobody hide a folder from a process (unshare --map-root-user --mount)"
            )
        command = [*mount, sys.executable, "-c", NODE, self.address]
        with _started(command, folder / "node.log", {**os.environ, **variables}):
            yield

    def kill(self, node: Any) -> None:
        """End a node with all of its processes at once, as a machine that loses its power does."""
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in (raylet, *raylet.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A cluster of one node, which is what `ray` means in this test."""
    pytest.importorskip("ray", reason="`make test-ray` installs Ray")
    made = Nodes()
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    try:
        yield made
    finally:
        made.cluster.shutdown()


@contextlib.contextmanager
def head_of(command: str, folder: Path, variables: dict[str, str], *options: str) -> Iterator[int]:
    """The process of a cluster that a command of the shell starts with its one processor."""
    ray = str(Path(sys.executable).with_name("ray"))
    words = [
        command.replace("ray start", f"exec {ray} start"),
        "--port=0",
        "--num-cpus=1",
        "--block",
        *options,
    ]
    command_line = ["sh", "-c", " ".join([*words, "--include-dashboard=false"])]
    with _started(command_line, folder / "head.log", variables) as pid:
        yield pid


@contextlib.contextmanager
def _started(command: list[str], said: Path, variables: dict[str, str]) -> Iterator[int]:
    """The process of a command that starts Ray, until its node is there and until the end of the block."""
    with said.open("wb") as log:
        head = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
    try:
        while "Ray runtime started" not in said.read_text():
            assert head.poll() is None, said.read_text()
            time.sleep(0.1)
        yield head.pid
    finally:
        processes = list[psutil.Process]()
        with contextlib.suppress(psutil.NoSuchProcess):  # it did not start
            processes = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        head.wait(30)
        psutil.wait_procs(processes, timeout=30)


@contextlib.contextmanager
def head_with_token(folder: Path, token: str) -> Iterator[tuple[str, str]]:
    """Two addresses of a cluster that demands a token: that of its nodes, and that for who is outside."""
    outside = free_port()
    variables = {**os.environ, **SETTINGS, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    with head_of(ON_LOOPBACK, folder, variables, f"--ray-client-server-port={outside}") as head:
        yield place_of(head), f"127.0.0.1:{outside}"


def place_of(head: int) -> str:
    """Where the head's server listens, as Ray reads an address: without what marks IPv4 in a socket of IPv6."""
    server = next(
        process for process in psutil.Process(head).children(recursive=True) if process.name() == "gcs_server"
    )
    (listening,) = {
        (one.laddr.ip.removeprefix("::ffff:"), one.laddr.port)
        for one in server.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }
    return "{}:{}".format(*listening)
