"""A policy with weights: a language model that writes texts and learns from their rewards. See docs/training.md."""

from whet.rl.policy_model.backbone import LoraSettings
from whet.rl.policy_model.model import PolicyModel
from whet.rl.policy_model.optimizer import Update
from whet.rl.policy_model.sampling import Sample

__all__ = ["LoraSettings", "PolicyModel", "Sample", "Update"]
