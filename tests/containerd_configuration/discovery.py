"""The containerd of this host, and which handlers work under it.

containerd drives every runtime through a shim, writes OCI versions that old runtimes refuse, and
honours runtime features only since version 2.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from moorage.engine.handlers import KNOWN_RUNTIMES, Handler, Runtime
from moorage.engine.handlers.search_path import QUERY_DEADLINE_S
from moorage.linux.command import CommandError, run
from moorage.linux.program import Version, parse_version

_RUNTIMES = {runtime.name: runtime for runtime in KNOWN_RUNTIMES}
# Runtime → containerd's major version → the first version of the runtime that works under it.
_MINIMUM_VERSIONS = {"crun": {2: (1, 14, 2)}}


@dataclass(frozen=True, slots=True)
class Containerd:
    """A containerd, and the shims on its PATH (program → path)."""

    version: Version
    shims: Mapping[str, Path] = field(default_factory=dict)

    @property
    def reports_features(self) -> bool:
        """Return whether containerd honours runtime features.

        Before 2.0 it silently drops recursive read-only mounts and user namespaces.
        """
        return self.version.major >= 2


async def find_containerd(path: str) -> Containerd | None:
    """Find containerd and its shims on a search path; None if it is not installed.

    Raises CommandError when containerd does not answer the version query.
    """
    program = shutil.which("containerd", path=path)
    if program is None:
        return None
    answer = await run([program, "--version"], deadline_s=QUERY_DEADLINE_S)
    version = parse_version(answer.text)
    if version is None:
        raise CommandError(answer.argv, f"no version in its answer: {answer.complaint}")
    # containerd also searches its own directory.
    wide = os.pathsep.join((path, str(Path(program).parent)))
    names = {shim_program(runtime.shim_type) for runtime in KNOWN_RUNTIMES}
    paths = {name: shutil.which(name, path=wide) for name in sorted(names)}
    return Containerd(
        version, {name: Path(shim) for name, shim in paths.items() if shim is not None}
    )


def shim_program(shim_type: str) -> str:
    """Return the program that containerd starts for a runtime type.

    `io.containerd.runc.v2` gives `containerd-shim-runc-v2`. Source: containerd, "Runtime v2".
    """
    name, version = shim_type.split(".")[-2:]
    return f"containerd-shim-{name}-{version}"


def under_containerd(handlers: Iterable[Handler], containerd: Containerd) -> tuple[Handler, ...]:
    """Return handlers of this host as containerd has them: some unavailable, some featureless."""
    return tuple(_under(handler, containerd) for handler in handlers)


def _under(handler: Handler, containerd: Containerd) -> Handler:
    if not handler.available:
        return handler
    reason = _refusal(_RUNTIMES[handler.runtime], handler.version, containerd)
    if reason:
        return msgspec.structs.replace(handler, available=False, reason=reason, features=())
    if not containerd.reports_features:
        return msgspec.structs.replace(handler, features=())
    return handler


def _refusal(runtime: Runtime, version: str, containerd: Containerd) -> str:
    shim = shim_program(runtime.shim_type)
    if not runtime.is_shim and shim not in containerd.shims:
        return f"containerd needs the shim {shim}, which is not on PATH"
    needed = _MINIMUM_VERSIONS.get(runtime.name, {}).get(containerd.version.major)
    installed = parse_version(version)
    if needed is not None and installed is not None and installed.is_before(needed):
        return (
            f"{runtime.name} {version} refuses the OCI version that containerd "
            f"{containerd.version} writes"
        )
    return ""
