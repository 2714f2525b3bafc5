"""Allocation records: the resources each pod was promised, in the pod's directory.

What the API shows of a pod is what it asks for; an agent that starts must know which of it was
promised, or a resize that does not fit would take effect by a restart. Source: kubelet
`allocation/state/state_checkpoint.go`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.linux.atomic_file import replace_file
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.labels import Given
from moorage.node.pod_facts.resources import Allocation

log = Log(__name__)


class AllocationRecord(msgspec.Struct, frozen=True):
    """A pod's allocation; by container ID what running containers were resized to.

    `unsure` are the IDs of those whose resize had begun: it may have been carried out or not.
    """

    allocation: Allocation
    given: dict[str, Given] = {}
    unsure: frozenset[str] = frozenset()


class AllocationRecords:
    """The records of this node's pods. Every call blocks on the file system."""

    def __init__(self, paths: NodePaths) -> None:
        self._paths = paths

    def read(self, uid: str) -> AllocationRecord | None:
        """Return the record of a pod; None without a readable one."""
        file = self._paths.pod(uid).resources
        try:
            return msgspec.json.decode(file.read_bytes(), type=AllocationRecord)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            # The specification is the best guess that is left.
            log.warning("allocation not readable", file=file, error=error)
            return None

    def write(self, uid: str, record: AllocationRecord) -> None:
        """Write a pod's record, in its directory, which must exist. Raises OSError."""
        file: Path = self._paths.pod(uid).resources
        replace_file(file, msgspec.json.encode(record))
