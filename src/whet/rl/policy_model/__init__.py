"""A policy with weights: a language model that writes texts and learns from their rewards. See docs/training.md."""

from whet.rl.policy_model.model import PolicyModel
from whet.rl.policy_model.sample import Sample
from whet.rl.policy_model.settings import LoraSettings, Update

__all__ = ["LoraSettings", "PolicyModel", "Sample", "Update"]
