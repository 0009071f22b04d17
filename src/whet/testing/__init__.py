"""Public helpers for tests: a local OpenAI-compatible server with a ledger and faults."""
