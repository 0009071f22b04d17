"""Which version a unit sees. The code stands by itself in `whet.client.assignment`, where apps run it."""

from __future__ import annotations

from whet.client.assignment import UNITS, assign, version_for

__all__ = ["UNITS", "assign", "version_for"]
