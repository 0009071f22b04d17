"""A policy with weights: a language model that writes texts and learns from their rewards. See docs/training.md."""

from whet.policies.writer.policy import Writer
from whet.policies.writer.sample import Sample
from whet.policies.writer.settings import LoraSettings, Update

__all__ = ["LoraSettings", "Sample", "Update", "Writer"]
