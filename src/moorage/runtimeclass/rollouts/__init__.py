"""Rollouts of a RuntimeClass: the state machine that moves workloads from one class to another.

Pure: what is seen goes in, moves and a status come out. Reading and writing is the controller's.
"""

from moorage.runtimeclass.rollouts.obstacles import (
    NodeFacts,
    Obstacle,
    find_obstacle,
    find_return_obstacle,
    is_active,
)
from moorage.runtimeclass.rollouts.step import Move, Observation, Step, standing_stop, step
from moorage.runtimeclass.rollouts.workloads import Mark, PodFacts, Unmovable, Workload

__all__ = [
    "Mark",
    "Move",
    "NodeFacts",
    "Observation",
    "Obstacle",
    "PodFacts",
    "Step",
    "Unmovable",
    "Workload",
    "find_obstacle",
    "find_return_obstacle",
    "is_active",
    "standing_stop",
    "step",
]
