"""What benchmarks/real_field.py is made of: the tasks, the endpoint that counts calls, and the tools of others."""
