"""Search path for runtimes: PATH and the system directories; whether a program there runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.handlers.features import HandlerFeatures, parse_features
from moorage.engine.handlers.runtimes import Runtime
from moorage.linux.command import CommandError, run
from moorage.linux.program import Version, parse_version
from moorage.linux.trust import Distrust, distrust

# Program probe: queries a runtime's program for its version and features.

# While a host boots, every program takes long.
QUERY_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program's answer; `failure` is why the query failed, `distrust` why it was not made.

    `is_unanswered`: the program did not answer in time or could not be started, which may be
    different at the next query.
    """

    path: Path
    version: Version | None = None
    features: HandlerFeatures | None = None
    failure: str = ""
    distrust: Distrust | None = None
    is_unanswered: bool = False


async def probe_program(
    runtime: Runtime, path: Path, kernel: tuple[int, int], *, deadline_s: float = QUERY_DEADLINE_S
) -> Program:
    """Query a program for its version and features. Does not raise: failures are in the result."""
    distrusted = distrust(path)
    if distrusted is not None:
        # A query would run it as root.
        return Program(path, distrust=distrusted)
    if not runtime.version_arguments:
        return Program(path)
    try:
        version_query = await run([path, *runtime.version_arguments], deadline_s=deadline_s)
        if not version_query.is_success:
            return Program(path, failure=version_query.complaint)
        version = parse_version(version_query.text)
        if runtime.is_shim:
            return Program(path, version)
        if version is None:
            return Program(path, failure="it reports no version, so it is not a container runtime")
        # Without the command, a runtime prints a usage text, which is no features document.
        listed = await run([path, "features"], deadline_s=deadline_s)
    except CommandError as error:
        return Program(path, failure=error.why, is_unanswered=True)
    return Program(path, version, parse_features(listed.output, kernel))


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
