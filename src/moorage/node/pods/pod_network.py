"""Network of a pod beyond its address: what must be in force before its containers start.

A seam: the node agent does not know who routes Services and enforces policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from moorage.api.pods import Pod


class PodNetworkError(Exception):
    """A pod's rules are not in force; the text says why, and what to do."""


class PodNetwork(Protocol):
    """Puts pods' rules in force."""

    async def admit(self, pod: Pod, addresses: Sequence[str]) -> None:
        """Put a pod's rules in force; do nothing if they are. Raises PodNetworkError.

        Called before each container of a pod with a network of its own.
        """


class OpenNetwork:
    """A network without rules of ours, as a node agent has it that runs alone."""

    async def admit(self, pod: Pod, addresses: Sequence[str]) -> None:
        """Do nothing."""
