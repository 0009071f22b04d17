"""Live prompts: database, registry, traffic, experiments, the always-on learner, and the server around them."""
