"""The durable engine: journal, budget, cache, calls, and the execution of one method as a run."""
