"""System reserved: resources that pods cannot request, for the rest of the host.

Without a reserve, pods that use all memory or all process IDs starve the administrator's shell and
the cluster's own parts. Source: KubeletConfiguration `systemReserved`; the kubelet's default
reserves nothing.
"""

from __future__ import annotations

_MIB = 1024 * 1024
_MEMORY_SHARE = 0.05
_LEAST_MEMORY_BYTES = 256 * _MIB
_MOST_MEMORY_BYTES = 1024 * _MIB
_SMALL_MACHINE_SHARE = 0.25
_PIDS_SHARE = 0.10
_MOST_PIDS = 4096


def system_reserved(memory_bytes: int, max_pids: int) -> dict[str, str]:
    """Return the quantities that a host of that size reserves, by resource name.

    Memory: 5 %, at least 256 MiB but at most a quarter of the host's, and at most 1 GiB.
    Process IDs: a tenth, at most 4096.
    """
    memory = max(int(memory_bytes * _MEMORY_SHARE), _LEAST_MEMORY_BYTES)
    memory = min(memory, _MOST_MEMORY_BYTES, int(memory_bytes * _SMALL_MACHINE_SHARE))
    pids = min(int(max_pids * _PIDS_SHARE), _MOST_PIDS)
    return {"memory": f"{memory // _MIB}Mi", "pid": str(pids)}
