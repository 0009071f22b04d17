"""The check of the Ray cluster at hand: its size, and its protection against strangers."""

from __future__ import annotations

import importlib.util

from whet._util.workers.ray_cluster import RAY, cluster_at_hand, connect_to_ray
from whet.api.doctor.checkup import DoctorReport
from whet.errors import UsageError, quantity

CHECK = "ray"


def examine_ray(checkup: DoctorReport) -> None:
    """Note the cluster that `--engine ray` would use, if there is one. Nothing is started on it."""
    place = cluster_at_hand()
    if not place or importlib.util.find_spec(RAY) is None:
        return
    checkup.begin(f"reaching the Ray cluster at {place}")
    try:
        cluster = connect_to_ray(RAY)
    except UsageError as error:
        checkup.warn(CHECK, str(error), "only --engine ray needs it")
        return
    guard = "all on loopback" if cluster.on_loopback else "requires a token"
    cluster.close()
    size = f"{quantity(len(cluster.nodes), 'node')}, {quantity(cluster.processors, 'processor')}"
    checkup.ok(CHECK, f"--engine ray uses the cluster at {cluster.address}: {size}, {guard}")
