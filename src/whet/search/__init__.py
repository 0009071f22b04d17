"""Building blocks that several methods share: candidates and archives, bandits, edit operators, plans."""

from whet.search.archive import Archive, Candidate, failures

__all__ = ["Archive", "Candidate", "failures"]
