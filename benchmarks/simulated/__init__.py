"""Simulated models with laws of their own: the generator and optimizer of the latent-rules benchmark, and a scorer."""
