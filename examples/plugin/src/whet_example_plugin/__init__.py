"""A method, a model provider, a reward and an environment for whet, found by their entry points."""
