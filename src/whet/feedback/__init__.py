"""Feedback on answers, and the learning of a prompt from it."""
