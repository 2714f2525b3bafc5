"""Host access for the agent: facts, cgroups and mount table in one injectable object."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.linux.cgroups import Cgroups, current_cgroups
from moorage.node.machine.facts import MachineFacts, read_facts
from moorage.node.volumes.mounting import Mounter, SystemMounter


@dataclass(frozen=True, slots=True)
class Machine:
    """The host that an agent runs on."""

    facts: MachineFacts
    cgroups: Cgroups
    mounter: Mounter


def this_machine(root_dir: Path) -> Machine:
    """Return the host of this process. Blocks."""
    return Machine(read_facts(root_dir), current_cgroups(), SystemMounter())
