"""`moor scheduler`, `moor controllers`, `moor node`: the options that each part runs with."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.api.host_ports import Listener
from moorage.attach.processes import controllers, node, scheduler
from moorage.attach.processes.connection import ApiUnusableError
from moorage.controllers import ControllerOptions
from moorage.node.options import NodeOptions, ServerOptions
from moorage.scheduler import SchedulerOptions
from moorage.wire.client.config import ClientConfig
from tests.cli.moor import FakeFactory


class Part(FakeFactory):
    """A part that ends at its start, as if stopped, or with `error`; what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.started: object = None
        self.uid = 0
        self.given: tuple[Any, ...] = ()
        self.settings: dict[str, Any] = {}
        self.error: BaseException | None = None
        self.steps: list[str] = []

    def start_part(self, work: Any, ready: Callable[[], None]) -> Coroutine[Any, Any, None]:
        self.started = work.func
        return self._work(ready, *work.args, **work.keywords)

    async def _work(self, ready: Callable[[], None], *given: Any, **settings: Any) -> None:
        self.given, self.settings = given, settings
        if self.error is not None:
            raise self.error
        ready()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    def ready(self) -> None:
        self.steps.append("ready")

    def stopping(self) -> None:
        self.steps.append("stopping")

    def service(self) -> Any:
        return self

    def configure_logs(self, level: str) -> None:
        self.steps.append(level)

    def calm_collector(self) -> None: ...

    def euid(self) -> int:
        return self.uid


@pytest.fixture
def part() -> Iterator[Part]:
    part = Part()
    before = os.umask(0o022)
    yield part
    os.umask(before)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return write_kubeconfig(tmp_path / "kubeconfig", b"authority")


def write_kubeconfig(path: Path, authority: bytes | None) -> Path:
    cluster = {"server": "https://api.example:6443"}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u"}},
        {"name": "there", "context": {"cluster": "c", "user": "v"}},
    ]
    users = [{"name": name, "user": {"token": f"token of {name}"}} for name in ("u", "v")]
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": users,
                "contexts": contexts,
                "current-context": "here",
            }
        )
    )
    return path


def test_the_scheduler_runs_with_its_options(part: Part, kubeconfig: Path) -> None:
    assert part.moor("scheduler", "--kubeconfig", kubeconfig).status == 0
    assert part.started is scheduler.run
    config, options = part.given
    assert config == ClientConfig("https://api.example:6443", ca=b"authority", token="token of u")
    assert options == SchedulerOptions()
    assert part.steps == ["info", "ready", "stopping"]
    more = ("--context", "there", "--name", "own", "--scheduler-like-upstream")
    assert (
        part.moor("scheduler", "--kubeconfig", kubeconfig, *more, "--log-level", "debug").status
        == 0
    )
    config, options = part.given
    assert config.token == "token of v"
    assert options == SchedulerOptions(name="own", filters_by_handler=False)
    assert part.steps[3] == "debug"


def test_the_controllers_have_the_kubeconfigs_authority_or_another(
    part: Part, kubeconfig: Path, tmp_path: Path
) -> None:
    assert part.moor("controllers", "--kubeconfig", kubeconfig).status == 0
    assert part.started is controllers.run
    assert part.given[1] == ControllerOptions(cluster_ca="authority")
    authority, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    authority.write_text("another")
    key.write_text("key")
    options = ("--cluster-ca", authority, "--cluster-ca-key", key)
    assert part.moor("controllers", "--kubeconfig", kubeconfig, *options).status == 0
    assert part.given[1] == ControllerOptions(cluster_ca="another", cluster_ca_key=key)
    write_kubeconfig(kubeconfig, None)
    answer = part.moor("controllers", "--kubeconfig", kubeconfig)
    assert answer.status == 2
    assert "has no certificate authority: give --cluster-ca" in answer.err


def run_node(part: Part, kubeconfig: Path, *options: object) -> NodeOptions:
    endpoint = ("--cri", "unix:///run/engine.sock")
    answer = part.moor("node", "--kubeconfig", kubeconfig, *endpoint, *options)
    assert answer.status == 0, answer.err
    assert part.started is node.run
    config, cri, _, chosen, _ = part.given
    assert config.token == "token of u"
    assert cri == "unix:///run/engine.sock"
    assert isinstance(chosen, NodeOptions)
    return chosen


def test_the_node_agent_without_certificates_opens_no_port(part: Part, kubeconfig: Path) -> None:
    options = run_node(part, kubeconfig)
    assert part.given[2] == Path("/var/lib/moorage-node")
    assert (options.root_dir, options.pod_logs_dir) == (
        Path("/var/lib/moorage-node/node"), Path("/var/lib/moorage-node/pods"),
    )  # fmt: skip
    assert (options.server, options.listeners, options.service_environment) == (None, (), {})
    assert options.cgroup_root == "/moorage-node"


def test_the_node_agent_with_all_its_options(part: Part, kubeconfig: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("crt", "key", "ca")]
    for path in files:
        path.touch()
    certificates = ("--tls-cert", files[0], "--tls-key", files[1], "--client-ca", files[2])
    options = run_node(
        part, kubeconfig, *certificates, "--node-name", "n1", "--node-ip", "192.0.2.7", "--port",
        10350, "--api-server-name", "api", "--cgroup-root", "/pods", "--node-label", "a=b",
        "--cluster-dns", "10.96.0.10", "--cluster-domain", "example", "--pod-api-server",
        "192.0.2.7:6443", "--data-dir", tmp_path,
    )  # fmt: skip
    assert (options.name, options.hostname, options.node_ip) == ("n1", "n1", "192.0.2.7")
    assert options.server == ServerOptions(
        certificate_file=files[0], key_file=files[1], client_ca_file=files[2],
        address="192.0.2.7", port=10350, api_server_names=frozenset({"api"}),
    )  # fmt: skip
    assert options.listeners == (Listener("agent of node n1", "192.0.2.7", 10350),)
    assert (options.cgroup_root, options.labels) == ("/pods", {"a": "b"})
    assert (options.cluster_dns, options.cluster_domain) == (("10.96.0.10",), "example")
    assert options.service_environment == {
        "KUBERNETES_SERVICE_HOST": "192.0.2.7",
        "KUBERNETES_SERVICE_PORT": "6443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
    }
    assert part.given[2] == tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Missing option '--cri'"),
        (("--cri", "/run/x.sock"), "--cri takes an endpoint of the form unix:///path/to.sock"),
        (("--cri", "unix:///x", "--tls-cert", __file__),
         "--tls-cert, --tls-key and --client-ca are given together"),
        (("--cri", "unix:///x", "--pod-api-server", "host"),
         "--pod-api-server takes HOST:PORT, not 'host'"),
        (("--cri", "unix:///x", "--cgroup-root", "pods"), "must be an absolute path"),
    ],
)  # fmt: skip
def test_what_the_node_agent_refuses(
    part: Part, kubeconfig: Path, options: tuple[str, ...], message: str
) -> None:
    answer = part.moor("node", "--kubeconfig", kubeconfig, *options)
    assert answer.status == 2
    assert message in answer.err
    assert part.given == ()


def test_the_node_agent_needs_root(part: Part, kubeconfig: Path) -> None:
    part.uid = 1000
    answer = part.moor("node", "--kubeconfig", kubeconfig, "--cri", "unix:///x")
    assert answer.status == 4
    assert "needs root" in answer.err
    assert part.given == ()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ApiUnusableError("https://api.example:6443 is not ready"), "moor: https://api.example"),
        (ExceptionGroup("g", [OSError(98, "Address already in use")]), "moor: Address already in"),
        (RuntimeError("surprise"), "moor: ended by a fault: surprise"),
        (ExceptionGroup("g", [RuntimeError("a"), RuntimeError("b")]), "ended by a fault: g"),
    ],
)
def test_failures_are_one_line(
    part: Part, kubeconfig: Path, error: BaseException, message: str
) -> None:
    part.error = error
    answer = part.moor("scheduler", "--kubeconfig", kubeconfig)
    assert answer.status == 1
    assert message in answer.err
    assert part.steps[-1] == "stopping"


def test_a_kubeconfig_that_cannot_be_used_is_one_line(part: Part, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("[]")
    answer = part.moor("scheduler", "--kubeconfig", path)
    assert (answer.status, answer.err) == (1, f"moor: {path}: not a kubeconfig\n")
    assert part.given == ()
