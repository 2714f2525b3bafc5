"""A network for engines that are measured: one bridge, as Moorage's clusters have it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

BRIDGE = "moor-bench"


def write_conflist(directory: Path, leases: Path) -> None:
    """The configuration of the bridge, with host ports, for the engines to read."""
    directory.mkdir(parents=True)
    ipam = {
        "type": "host-local",
        "dataDir": str(leases),
        "ranges": [[{"subnet": "198.18.0.0/22"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [
        {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
    ]
    document = {"cniVersion": "0.4.0", "name": "bench", "plugins": plugins}
    (directory / "10-bench.conflist").write_text(json.dumps(document))


def remove_bridge() -> None:
    """Take the bridge off the machine; not there is no error."""
    if Path("/sys/class/net", BRIDGE).exists():
        subprocess.run(["ip", "link", "delete", BRIDGE], check=True)
