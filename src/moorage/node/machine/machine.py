"""The machine under the agent: its facts, its cgroups and its mount table, as one seam."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.node.cgroups.layout import CgroupLayout, layout_of
from moorage.node.machine.facts import MachineFacts, read_facts
from moorage.node.volumes.mounting import Mounter, SystemMounter


@dataclass(frozen=True, slots=True)
class Machine:
    """What an agent finds where it runs."""

    facts: MachineFacts
    cgroups: CgroupLayout
    mounter: Mounter


def this_machine(root_dir: Path) -> Machine:
    """The machine this process runs on. Blocks."""
    layout = layout_of(Path("/proc/self/mountinfo").read_text())
    return Machine(read_facts(root_dir), layout, SystemMounter())
