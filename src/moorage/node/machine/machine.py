"""Host access for the agent: facts, cgroups and mount table in one injectable object."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.linux.cgroups import Cgroups
from moorage.linux.host import Host, read_host
from moorage.node.machine.facts import MachineFacts, facts_of
from moorage.node.volumes.mounting import Mounter, SystemMounter


@dataclass(frozen=True, slots=True)
class Machine:
    """The host that an agent runs on."""

    facts: MachineFacts
    cgroups: Cgroups
    mounter: Mounter


def this_machine(root_dir: Path, host: Host | None = None) -> Machine:
    """Return the host of this process, read now if it is not given. Blocks."""
    host = host or read_host()
    return Machine(facts_of(host, root_dir), host.cgroups, SystemMounter())
