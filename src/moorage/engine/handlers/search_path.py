"""Search path for runtimes: PATH and the system directories."""

from __future__ import annotations

import os
from collections.abc import Mapping

SYSTEM_DIRECTORIES = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    # Where Kata's releases and kata-deploy put its shim.
    "/opt/kata/bin",
)


def search_path(environment: Mapping[str, str] = os.environ) -> str:
    """Return PATH with the system directories appended.

    They hold runtimes, but PATH often lacks them.
    """
    directories = [*environment.get("PATH", "").split(os.pathsep), *SYSTEM_DIRECTORIES]
    return os.pathsep.join(dict.fromkeys(filter(None, directories)))
