"""Requirements of an engine on its host: programs and directories.

Apart from the options, so that a command that only looks at a host imports no CRI.
"""

from __future__ import annotations

from pathlib import Path

CNI_PROGRAMS = (Path("/opt/cni/bin"), Path("/usr/lib/cni"), Path("/usr/libexec/cni"))
CNI_CONFIGURATIONS = Path("/etc/cni/net.d")
HANDLER_DIRECTORY = Path("/etc/moorage/handlers.d")

NEEDED_PROGRAMS = {"conmon": "conmon", "skopeo": "skopeo"}
"""Required programs, with their Debian packages."""
