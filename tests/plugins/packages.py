"""Installed packages for tests: a folder on the path with a module and the metadata that an installer writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(site: Path, package: str, entries: Mapping[str, Mapping[str, str]], source: str = "") -> None:
    """Write a package with one module and its entry points, by group: names and what stands behind them."""
    module = package.replace("-", "_")
    (site / f"{module}.py").write_text(source)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in rows.items())
        for group, rows in entries.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
