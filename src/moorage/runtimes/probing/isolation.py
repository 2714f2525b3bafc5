"""Isolation of a handler, from what a container under it sees of the kernel.

Pure. The boot id says whether the kernel is the node's own. Sources: proc(5), random(4); gVisor's
`/proc/version` and kernel log; Intel TDX's and the hypervisors' processor flags.
"""

from __future__ import annotations

from moorage.runtimeclass.isolation import Isolation
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.programs import ProgramOutput
from moorage.runtimes.probing.programs.facts import KERNEL_LOG

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_VERSION = "/proc/version"
_PRODUCT = "/sys/class/dmi/id/product_name"
_GVISOR_DATE = "Sun Jan 10 15:06:54 PST 2016"
"""Build date that every gVisor reports."""
_GVISOR = "gvisor"
_CONFIDENTIAL_FLAGS = frozenset({"tdx_guest", "sev_guest"})
_HYPERVISOR_FLAG = "hypervisor"


def isolation_of(output: ProgramOutput, host: HostFacts) -> Isolation | None:
    """Return the level that the facts of a plain probe prove; None if they prove none."""
    version = output.section(_VERSION)
    if _GVISOR_DATE in version or _GVISOR in f"{version}{output.section(KERNEL_LOG)}".lower():
        return Isolation.USER_SPACE_KERNEL
    boot_id = output.section(_BOOT_ID)
    if not boot_id or not host.boot_id:
        return None
    if boot_id == host.boot_id:
        return Isolation.SHARED_KERNEL
    flags = _processor_flags(output.section("/proc/cpuinfo"))
    if flags & _CONFIDENTIAL_FLAGS:
        return Isolation.CONFIDENTIAL_VIRTUAL_MACHINE
    product = output.section(_PRODUCT)
    if _HYPERVISOR_FLAG in flags or (product and host.product and product != host.product):
        return Isolation.VIRTUAL_MACHINE
    return None


def _processor_flags(cpuinfo: str) -> frozenset[str]:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
