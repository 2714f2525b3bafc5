from __future__ import annotations

import pytest

from moorage.linux.capabilities import NAMES, NEEDED, effective_capabilities


def status(mask: str) -> str:
    return f"Name:\tmoor\nCapInh:\tffffffffffffffff\nCapEff:\t{mask}\nCapBnd:\t000001ffffffffff\n"


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        ("0000000000000000", frozenset()),
        ("0000000000000001", {"CAP_CHOWN"}),
        ("0000000000200000", {"CAP_SYS_ADMIN"}),
        ("0000000001001000", {"CAP_NET_ADMIN", "CAP_SYS_RESOURCE"}),
        ("0000010000000000", {"CAP_CHECKPOINT_RESTORE"}),
        ("000001ffffffffff", set(NAMES)),
        ("ffffffffffffffff", set(NAMES)),
    ],
)
def test_only_the_effective_set_counts(mask: str, wanted: set[str]) -> None:
    assert effective_capabilities(status(mask)) == wanted


def test_a_status_without_the_line_gives_none() -> None:
    assert effective_capabilities("Name:\tmoor\n") == frozenset()


def test_all_that_an_engine_needs_has_a_number() -> None:
    assert set(NEEDED) <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


# Source: linux/capability.h.
_BY_NUMBER = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ
PERFMON BPF CHECKPOINT_RESTORE
"""


@pytest.mark.parametrize(("number", "name"), list(enumerate(_BY_NUMBER.split())))
def test_each_bit_is_a_capability(number: int, name: str) -> None:
    assert effective_capabilities(status(f"{1 << number:016x}")) == {f"CAP_{name}"}


def test_an_engine_in_a_container_of_docker_lacks_three() -> None:
    """The others are among Docker's defaults: 14, three of which no engine needs."""
    defaults = effective_capabilities(status("00000000a80425fb"))
    assert set(NEEDED) - defaults == {"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_PTRACE"}
    assert defaults - set(NEEDED) == {"CAP_FSETID", "CAP_NET_BIND_SERVICE", "CAP_AUDIT_WRITE"}
