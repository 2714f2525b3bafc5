"""Installations of runtimes on many nodes: which may change, and what each does. Pure."""

from moorage.runtimeclass.installations.node_step import (
    NodeFacts,
    Record,
    Step,
    next_step,
    source_digest,
    source_of,
)
from moorage.runtimeclass.installations.waves import InstallationPlan, TargetNode, plan_waves

__all__ = [
    "InstallationPlan",
    "NodeFacts",
    "Record",
    "Step",
    "TargetNode",
    "next_step",
    "plan_waves",
    "source_digest",
    "source_of",
]
