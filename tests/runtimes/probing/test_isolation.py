"""Isolation levels from what containers see."""

from __future__ import annotations

import pytest

from moorage.runtimeclass.isolation import Isolation
from moorage.runtimes.probing.evidence import isolation_of
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.programs import ProgramOutput

_HOST = HostFacts(kernel="6.1.0", boot_id="host", architecture="amd64", product="Server")
_LINUX = "Linux version 6.1.0 (builder)"
_GVISOR = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"


def _seen(version: str, boot_id: str = "", cpuinfo: str = "", **more: str) -> ProgramOutput:
    return ProgramOutput(
        {
            "/proc/version": version,
            "/proc/sys/kernel/random/boot_id": boot_id,
            "/proc/cpuinfo": cpuinfo,
            **{key.replace("_", " "): value for key, value in more.items()},
        }
    )


@pytest.mark.parametrize(
    ("output", "level"),
    [
        (_seen(_LINUX, "host"), Isolation.SHARED_KERNEL),
        (_seen(_GVISOR), Isolation.USER_SPACE_KERNEL),
        (_seen("Linux version 4.19.0-gvisor"), Isolation.USER_SPACE_KERNEL),
        (_seen("Linux", kernel_log="[0.0] Starting gVisor..."), Isolation.USER_SPACE_KERNEL),
        (_seen(_LINUX, "guest", "flags : fpu hypervisor"), Isolation.VIRTUAL_MACHINE),
        (
            _seen(_LINUX, "guest", "flags : hypervisor tdx_guest"),
            Isolation.CONFIDENTIAL_VIRTUAL_MACHINE,
        ),
        # A boot id of its own without a sign of a hypervisor proves nothing.
        (_seen(_LINUX, "guest", "flags : fpu"), None),
        (_seen(_LINUX), None),
        (ProgramOutput(), None),
    ],
)
def test_levels_are_proven_or_unknown(output: ProgramOutput, level: Isolation | None) -> None:
    assert isolation_of(output, _HOST) is level


def test_another_product_is_another_machine() -> None:
    output = _seen(_LINUX, "guest", "Features : fp asimd")
    output.sections["/sys/class/dmi/id/product_name"] = "Virtual"
    assert isolation_of(output, _HOST) is Isolation.VIRTUAL_MACHINE


def test_a_node_whose_boot_is_unknown_proves_nothing() -> None:
    host = HostFacts(kernel="6.1.0", boot_id="", architecture="amd64")
    assert isolation_of(_seen(_LINUX, "host"), host) is None
