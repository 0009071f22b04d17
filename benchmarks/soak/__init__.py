"""72 simulated hours of live prompts on two servers, while servers and PostgreSQL fail: `python -m benchmarks.soak`."""
