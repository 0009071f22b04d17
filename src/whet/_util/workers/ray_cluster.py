"""A Ray cluster: how it is reached, and who else can reach it.

Whoever reaches a cluster runs code on it. So a run uses one only if all nodes are at a loopback address, or if the cluster
demands a token (`RAY_AUTH_MODE=token`). Ray is imported when a cluster is first wanted.
"""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from whet.errors import UsageError, parameter
from whet_client.version import __version__

RAY = "ray"
"""The name of this engine, and how the address of a cluster begins."""
_SINGLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""If this variable is 0, Ray takes a loopback address as it is. Else it takes the address of the machine in the network for it,
at which a cluster on loopback does not listen. Ray reads it when it is imported."""
ON_LOOPBACK = f"{_SINGLE}=0 ray start --head --node-ip-address=127.0.0.1"
_SECONDS, _LISTENING_SECONDS, _TASK_SECONDS = 20, 5, 60
_PROBE = """
import sys
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5)
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(3 if "auth" in f"{type(error).__name__} {error}".lower() else 4)
"""
_REFUSED = 3


@dataclass(frozen=True)
class RayCluster:
    """A cluster that this process is connected to. `nodes`: the addresses of its machines, `processors` and `gpus` those of
    all of them together.

    `owned`: whether the connection was made here, and not by the program that runs whet. `apart`: whether this machine is no
    node of it.
    """

    ray: ModuleType
    address: str
    nodes: tuple[str, ...]
    processors: int
    owned: bool
    apart: bool = False
    gpus: int = 0

    @property
    def on_loopback(self) -> bool:
        """Whether all nodes are at a loopback address."""
        return all(_is_loopback(node) for node in self.nodes)

    def choose_node(self, placed: Mapping[str, int]) -> str | None:
        """The identity of the node with the fewest actors for its processors, of `placed` by node; None where none is known."""
        known = {
            node["NodeID"]: node["Resources"]["CPU"]
            for node in self.ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU")
        }
        return min(known, key=lambda node: (placed.get(node, 0) + 1) / known[node], default=None)

    def close(self) -> None:
        """End the connection, unless the program made it."""
        if self.owned:
            self.ray.shutdown()


def connect_to_ray(engine: str) -> RayCluster:
    """The cluster that `ray` finds (RAY_ADDRESS, or one that runs on this machine), or that of a `ray://HOST:PORT`.

    Raises UsageError where Ray is not installed, there is no cluster, or one that other people may use too.
    """
    named = None if engine == RAY else engine
    ray = _import_ray(engine, named)
    owned = not ray.is_initialized()
    if owned:
        _check_listening(engine, named)
        try:
            ray.init(address=named or "auto", logging_level=logging.ERROR, log_to_driver=True)
        except (Exception, SystemExit) as error:
            raise _not_reached(engine, error) from None
    cluster = _describe(ray, owned)
    try:
        check_access(cluster)
    except BaseException:
        cluster.close()
        raise
    return cluster


def _import_ray(engine: str, named: str | None) -> ModuleType:
    with _single_machine(_place_of(named)):
        try:
            ray = importlib.import_module(RAY)
            importlib.import_module(f"{RAY}.exceptions")
        except ImportError as error:
            raise UsageError(
                f"{parameter('engine', engine)} needs the package ray, which cannot be imported ({error}): "
                "pip install 'whet[ray]'"
            ) from None
    return ray


def _place_of(named: str | None) -> str:
    """HOST:PORT of a cluster."""
    return cluster_at_hand() if named is None else named.removeprefix(f"{RAY}://")


def cluster_at_hand() -> str:
    """HOST:PORT of the cluster that Ray will find; empty where it has to look for it."""
    address = os.environ.get("RAY_ADDRESS", "")
    if address not in ("", "auto"):
        return address.removeprefix(f"{RAY}://")
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    with contextlib.suppress(OSError):
        return Path(folder, "ray", "ray_current_cluster").read_text().strip()
    return ""


@contextlib.contextmanager
def _single_machine(address: str) -> Iterator[None]:
    """Let Ray, which is imported meanwhile, take a loopback address as it is."""
    if _SINGLE in os.environ or not _is_loopback(address.rpartition(":")[0]):
        yield
        return
    os.environ[_SINGLE] = "0"
    try:
        yield
    finally:
        del os.environ[_SINGLE]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_listening(engine: str, named: str | None) -> None:
    """Raise UsageError where nobody answers at the place of a cluster: Ray would wait there for minutes."""
    if place := _place_of(named):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _LISTENING_SECONDS).close()
        except (OSError, ValueError) as error:
            raise _not_reached(engine, f"nobody answers at {place} ({error})") from None


def _not_reached(engine: str, error: BaseException | str) -> UsageError:
    why = " ".join(str(error).split()) or type(error).__name__
    return UsageError(
        f"{parameter('engine', engine)}: no Ray cluster can be used: {why}. Start one here with `{ON_LOOPBACK}`, or name one: "
        "RAY_ADDRESS=HOST:PORT where this machine is one of its nodes. A cluster that demands a token gets it from "
        "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or ~/.ray/auth_token."
    )


def _describe(ray: ModuleType, owned: bool) -> RayCluster:
    alive = [str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]]
    resources = ray.cluster_resources()
    processors, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    address, apart = str(ray.get_runtime_context().gcs_address), bool(ray.util.client.ray.is_connected())
    return RayCluster(ray, address, tuple(alive), processors, owned, apart, gpus)


def check_access(cluster: RayCluster) -> None:
    """Raise UsageError for a cluster that machines of the network reach without a token."""
    if cluster.on_loopback or _demands_token(cluster):
        return
    outside = next(node for node in cluster.nodes if not _is_loopback(node))
    raise UsageError(
        f"The Ray cluster at {cluster.address} answers without a token, and its node {outside} is reached over the network: "
        "anybody there can run code on it. Start all of its nodes with RAY_AUTH_MODE=token and the same token (`ray "
        f"get-auth-token --generate` makes one), or with one machine `{ON_LOOPBACK}`."
    )


def _demands_token(cluster: RayCluster) -> bool:
    """Asked from where the cluster is reached at that address: a machine that is no node of it may not reach it there."""
    if not cluster.apart:
        return demands_token(cluster.address)
    ray = cluster.ray
    asking = ray.remote(demands_token).options(num_cpus=0, max_retries=0)
    try:
        return bool(ray.get(asking.remote(cluster.address), timeout=_TASK_SECONDS))
    except ray.exceptions.RayError as error:
        raise UsageError(f"A node of the Ray cluster cannot run whet: {describe_ray_error(error)}") from None


def describe_ray_error(error: BaseException) -> str:
    """The failure that Ray reports, in one line: the exception on the other side, or how the actor was lost."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    missing = next((line for line in reversed(lines) if "No module named" in line), None)
    if missing is not None:
        return f"{missing}. Install the same there as here: whet {__version__}, and what the task imports."
    return lines[0] if len(lines) == 1 or "actor" in lines[0] else lines[-1]


def demands_token(address: str) -> bool:
    """Whether a cluster turns away who has no token: one is asked without."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [sys.executable, "-c", _PROBE, address]
    try:
        probe = subprocess.run(
            command, env={**kept, "RAY_AUTH_MODE": "disabled"}, capture_output=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    return probe.returncode == _REFUSED
