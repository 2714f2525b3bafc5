"""Plans of engines that are stand-ins, with everything below a folder of the test's."""

from __future__ import annotations

import sys
from ipaddress import IPv4Network
from pathlib import Path

from moorage.cluster.containerd import EnginePaths, EnginePlan
from moorage.cluster.host import Tool
from moorage.cluster.network import PodNetwork
from moorage.cri.containerd import NATIVE, Configuration, write_configuration
from moorage.cri.version import Version
from moorage.handlers import Containerd, Handler, runtime_tables
from tests.cluster.hosts import a_host, tools_without
from tests.cluster.programs import write_program

FAKE = Path(__file__).with_name("fake_containerd.py")
VERSION = Version((1, 7, 24), "1.7.24")
RUNC = Handler(handler="runc", runtime="runc", path="/usr/sbin/runc", available=True)
_ROOT = Path(__file__).parents[3]


def engine_paths(root: Path) -> EnginePaths:
    return EnginePaths(root / "data", root / "run", root / "logs" / "engine.log")


def a_plan(root: Path, log_level: str = "warn") -> EnginePlan:
    """A plan whose containerd is the stand-in."""
    paths = engine_paths(root)
    script = f'PYTHONPATH={_ROOT} exec {sys.executable} {FAKE} "$@"'
    program = write_program(root / "bin", "containerd", script)
    tools = tools_without("containerd") | {"containerd": Tool(program, VERSION.text)}
    configuration = Configuration(
        root=paths.root,
        state=paths.state,
        socket=paths.socket,
        runtimes=runtime_tables((RUNC,), paths.runtimes),
        default_handler="runc",
        sandbox_image="pause",
        cni_programs=Path("/opt/cni/bin"),
        cni_configurations=paths.cni,
        snapshotter=NATIVE,
        registry_hosts=paths.registries,
        log_level=log_level,
    )
    return EnginePlan(
        paths=paths,
        host=a_host(tools=tools, path=f"{root / 'bin'}:/usr/bin:/bin"),
        network=PodNetwork(
            cluster_id="0a1b2c3d",
            subnet=IPv4Network("198.51.100.0/24"),
            leases=paths.leases,
            mtu=1500,
        ),
        containerd=Containerd(VERSION),
        handlers=(RUNC,),
        configuration=configuration,
        text=write_configuration(configuration, VERSION),
        registries={"docker.io": "server = 'x'\n"},
    )
