"""Known defects of runtime versions: system calls that do not behave as on Linux.

A handler with a defect stays available, since few programs are affected. `moor doctor` and `moor
runtimes` print a warning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Weekly releases are named by their date: `release-20230227.0`, in Debian `0.0~20221219.0`.
_GVISOR_DATE = re.compile(r"(?<!\d)20\d{6}(?!\d)")
_GVISOR_SITE = "https://gvisor.dev/docs/user_guide/install/"


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect and its remedy; both texts are empty when no defect is known."""

    meaning: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class _GvisorDefect:
    fixed_in: int
    meaning: str


# Sorted by fix date, oldest first. Source: the log of gVisor's
# pkg/sentry/syscalls/linux/sys_stat.go, "Ignore AT_NO_AUTOMOUNT flag in statx() calls" and "… in
# fstatat(2)".
_GVISOR_DEFECTS = (
    _GvisorDefect(
        20230227,
        "statx fails with EINVAL where AT_NO_AUTOMOUNT is given, so `ls` and `stat` of Debian 12 "
        'and other images with coreutils 9 fail ("Invalid argument"); busybox images work',
    ),
    _GvisorDefect(20231030, "fstatat fails with EINVAL where AT_NO_AUTOMOUNT is given"),
)

GVISOR_REMEDY = (
    f"get runsc {_GVISOR_DEFECTS[-1].fixed_in} or later (with Go: `CGO_ENABLED=0 go install "
    f"gvisor.dev/gvisor/runsc@latest`; without: {_GVISOR_SITE}), then `moor runtime add gvisor-new "
    "--binary PATH`, and use the class gvisor-new"
)
"""What helps against the defects of older versions."""


def gvisor_date(version: str) -> int | None:
    """Return the date of a gVisor release as YYYYMMDD, or None if its version contains none."""
    match = _GVISOR_DATE.search(version)
    return int(match[0]) if match else None


def gvisor_defect(version: str) -> Defect:
    """Return the most severe known defect of a runsc version; empty without one."""
    date = gvisor_date(version)
    defects = [defect for defect in _GVISOR_DEFECTS if date is not None and date < defect.fixed_in]
    if not defects:
        return Defect()
    return Defect(defects[0].meaning, GVISOR_REMEDY)
