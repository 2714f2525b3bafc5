"""Rollouts of a RuntimeClass: the state machine that moves workloads from one class to another.

Pure: what is seen goes in, moves and a status come out. Reading and writing is the controller's.
"""

from moorage.runtimeclass.rollouts.obstacles import (
    Mark,
    NodeFacts,
    Obstacle,
    PodFacts,
    Unmovable,
    Workload,
    find_obstacle,
    find_return_obstacle,
    is_active,
)
from moorage.runtimeclass.rollouts.record import Moved, Record, record_of
from moorage.runtimeclass.rollouts.step import Move, Observation, Step, standing_stop, step

__all__ = [
    "Mark",
    "Move",
    "Moved",
    "NodeFacts",
    "Observation",
    "Obstacle",
    "PodFacts",
    "Record",
    "Step",
    "Unmovable",
    "Workload",
    "find_obstacle",
    "find_return_obstacle",
    "is_active",
    "record_of",
    "standing_stop",
    "step",
]
