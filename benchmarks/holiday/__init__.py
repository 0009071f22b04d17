"""Weeks in which nobody looks after a live prompt whose page has the snippet: `python -m benchmarks.holiday`."""
