"""The machine under the agent: its facts, its cgroups and its mount table, as one seam."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.linux.cgroups import Cgroups, current_cgroups
from moorage.node.machine.facts import MachineFacts, read_facts
from moorage.node.volumes.mounting import Mounter, SystemMounter


@dataclass(frozen=True, slots=True)
class Machine:
    """What an agent finds where it runs."""

    facts: MachineFacts
    cgroups: Cgroups
    mounter: Mounter


def this_machine(root_dir: Path) -> Machine:
    """The machine this process runs on. Blocks."""
    return Machine(read_facts(root_dir), current_cgroups(), SystemMounter())
