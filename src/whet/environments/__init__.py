"""Worlds: episodes of several turns, of which a question with one answer is the simplest."""

from whet.environments.actors import TaskModel
from whet.environments.episodes import (
    Actor,
    ActorAction,
    ActorObservation,
    Conversation,
    Episode,
    Return,
    RewardingWorld,
    SingleTurn,
    Trajectory,
    Turn,
    World,
    WorldStep,
)
from whet.environments.play import play

__all__ = [
    "Actor",
    "ActorAction",
    "ActorObservation",
    "Conversation",
    "Episode",
    "Return",
    "RewardingWorld",
    "SingleTurn",
    "TaskModel",
    "Trajectory",
    "Turn",
    "World",
    "WorldStep",
    "play",
]
