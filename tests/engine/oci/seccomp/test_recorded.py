"""The tables of system calls, and the profiles made of them, against recorded digests."""

from __future__ import annotations

from moorage.engine.oci.seccomp import built_in_profile
from moorage.engine.oci.seccomp import profile as syscalls
from moorage.linux.capabilities import NAMES
from tests.recording import assert_recorded, digest


def test_the_tables() -> None:
    result = {
        f"{table} {key}": value if isinstance(value, str) else list(value)
        for table in ("BY_MACHINE", "BY_CAPABILITY", "ARCHITECTURES", "SINCE_KERNEL")
        for key, value in getattr(syscalls, table).items()
    }
    assert_recorded("engine/oci/seccomp/tables", result)


def test_the_profile_of_each_machine_kernel_and_capability() -> None:
    table = {}
    for machine in (*syscalls.ARCHITECTURES, "unknown"):
        for kernel in ((4, 7), (4, 8), (6, 1)):
            profile = built_in_profile(frozenset(), machine, kernel)
            table[f"{machine} {kernel}"] = digest(profile)
    for name in NAMES:
        table[name] = digest(built_in_profile(frozenset({name}), "x86_64", (6, 1)))
    assert_recorded("engine/oci/seccomp/profiles", table)
