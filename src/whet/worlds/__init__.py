"""Worlds: episodes of several turns, of which a question with one answer is the simplest."""

from whet.worlds.actors import Advised, TaskModel
from whet.worlds.base import (
    Actor,
    Conversation,
    Episode,
    Heard,
    Question,
    RewardingWorld,
    Said,
    Step,
    Trajectory,
    Turn,
    World,
)
from whet.worlds.play import play
from whet.worlds.rewards import Return

__all__ = [
    "Actor",
    "Advised",
    "Conversation",
    "Episode",
    "Heard",
    "Question",
    "Return",
    "RewardingWorld",
    "Said",
    "Step",
    "TaskModel",
    "Trajectory",
    "Turn",
    "World",
    "play",
]
