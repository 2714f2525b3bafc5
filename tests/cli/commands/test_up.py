"""`moor up`: what it decides before it supervises, and what it says of a cluster that runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.cluster.access.credentials import Credentials
from moorage.cluster.cluster import ClusterActions
from moorage.cluster.errors import StartError
from moorage.cluster.host import Inventory
from moorage.cluster.host.start_check import require_machine
from moorage.cluster.layout import Layout
from moorage.cluster.network import NoSubnetError, SubnetTakenError
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import Choices, Settings, SettingsError, load
from moorage.cluster.supervision.supervisor import AlreadyRunningError
from moorage.engine.handlers import Handler
from moorage.linux.routes import Route
from tests.cli.moor import Answer, FakeFactory, change, cluster, locked
from tests.cluster.hosts import a_host, tools_without
from tests.cluster.test_settings import SETTINGS
from tests.fake_crio import Behaviour, FakeCrio, serving_apart

_ROUTE = Route("eth0", IPv4Network("10.0.0.0/8"))


Report = Callable[[str], None] | None


class Start(FakeFactory, ClusterActions):
    """The steps of a start, in their order, and what they got."""

    def __init__(self, home: Path) -> None:
        super().__init__(actions=self)
        self.home = home
        self.steps: list[tuple[str, Any]] = []
        self.choices = Choices()
        self.host = a_host()
        self.failure: Exception | None = None
        self.start_failure: Exception | None = None
        self.claimed = 0
        self.handlers: tuple[Handler, ...] = ()

    @property
    def users_kubeconfig(self) -> Path:
        return self.home / "config"

    async def require_machine(self, layout: Layout, **options: Any) -> tuple[Handler, ...]:
        return await require_machine(layout, inspect=self.inspect_machine, **options)

    async def inspect_machine(
        self, layout: Layout, *, is_installing: bool = False, report: Report = None, **_: Any
    ) -> tuple[Inventory, tuple[Handler, ...]]:
        del layout
        if is_installing and report is not None:
            report("installing conmon")
        self.steps.append(("look", is_installing))
        return self.host, self.handlers

    def open_cluster(
        self, layout: Layout, choices: Choices, reservations: Reservations
    ) -> Settings:
        reservations.take(f"test {layout.root}")
        if self.failure is not None:
            raise self.failure
        self.steps.append(("open", layout.root))
        self.choices = choices
        return load(layout.settings) or SETTINGS

    def become_supervisor(
        self, _layout: Layout, reservations: Reservations, merged_into: str
    ) -> None:
        assert len(reservations.descriptors) == 1
        self.steps.append(("become", merged_into))

    async def start_supervisor(
        self, _layout: Layout, within_s: float, reservations: Reservations | None
    ) -> None:
        assert reservations is not None
        self.claimed = len(reservations.descriptors)
        self.steps.append(("detached", within_s > 10))
        if self.start_failure is not None:
            raise self.start_failure


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(tmp_path / "user")


def with_keys(layout: Layout) -> Layout:
    credentials = Credentials(layout)
    for path in (
        credentials.authority.certificate, credentials.admin.certificate, credentials.admin.key
    ):  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.name)
    return layout


def test_what_fails_under_a_runtime_is_said_in_one_line_unless_a_file_names_another(
    start: Start, tmp_path: Path
) -> None:
    def handler(name: str) -> Handler:
        return Handler(
            handler=name, runtime="runsc", path="/opt/runsc", version="2022", available=True,
            defect="`ls` fails", defect_remedy="get a newer one",
        )  # fmt: skip

    start.handlers = (handler("gvisor-a"), handler("gvisor-b"), handler("gvisor-c"))
    layout = with_keys(Layout(tmp_path))
    layout.root.chmod(0o700)
    own = layout.engine / "handlers.d"
    own.mkdir(parents=True)
    (own / "gvisor-c.toml").write_text('adapter = "runsc"\nbinary = "/bin/true"\n')
    answer = start.moor("up", "--data-dir", str(tmp_path))
    assert answer.err == (
        "moor: warning: classes of handler gvisor-a, gvisor-b (/opt/runsc 2022): `ls` fails; "
        "get a newer one\n"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {}),
        (("--no-node",), {"has_node": False}),
        (("--node",), {"has_node": True}),
        (("--without", "scheduler"), {"without": ("scheduler",)}),
        (
            ("--without", "node, controllers"),
            {"has_node": False, "without": ("controllers", "node")},
        ),
        (("--no-node", "--without", "node"), {"has_node": False, "without": ("node",)}),
        (("--own-engine",), {"cri": ""}),
        (("--name", "x", "--node-name", "y"), {"name": "x", "node_name": "y"}),
        (("--api-port", 1, "--node-port", 65535), {"api_port": 1, "node_port": 65535}),
        (
            ("--pod-network", "10.1.0.0/24", "--service-network", "10.2.0.0/16"),
            {"pod_network": "10.1.0.0/24", "service_network": "10.2.0.0/16"},
        ),
        (
            ("--registry-mirror", "a=b", "--registry-mirror", "c=d=e"),
            {"registry_mirrors": {"a": "b", "c": "d=e"}},
        ),
        (("--feature-gate", "RuntimeClass=False"), {"gates": {"RuntimeClass": False}}),
        (("--feature-gate", "RuntimeClass=true"), {"gates": {"RuntimeClass": True}}),
        (("--schedule-by-handler",), {"filters_by_handler": True}),
        (("--scheduler-like-upstream",), {"filters_by_handler": False}),
        (("--seccomp-default",), {"seccomp_default": True}),
        (("--no-seccomp-default",), {"seccomp_default": False}),
        (("--pod-pids-limit", -1), {"pod_pids_limit": -1}),
        (("--image-limit", "3Ki"), {"image_limit_bytes": 3072}),
        (("--log-level", "debug"), {"log_level": "debug"}),
        (
            ("--image-verification", "AlwaysVerify"),
            {"image_verification": "AlwaysVerify", "image_allowlist": ()},
        ),
        (
            (
                "--image-verification", "NeverVerifyAllowlistedImages",
                "--image-allowlist", "r.example/a", "--image-allowlist", "r.example/b/*",
            ),
            {
                "image_verification": "NeverVerifyAllowlistedImages",
                "image_allowlist": ("r.example/a", "r.example/b/*"),
            },
        ),
    ],
    ids=str,
)  # fmt: skip
def test_only_options_of_the_command_line_are_passed(
    start: Start, tmp_path: Path, options: tuple[object, ...], expected: dict[str, Any]
) -> None:
    answer = start.moor("up", *options, "--data-dir", tmp_path / "d")
    assert answer == Answer(0, "", "")
    assert start.choices.given() == expected
    assert not start.choices.accepts_loss
    looked = [] if expected.get("has_node") is False else [("look", False)]
    assert start.steps == [*looked, ("open", tmp_path / "d"), ("become", "")]


def test_loss_is_accepted_with_accept_loss(start: Start, tmp_path: Path) -> None:
    start.moor("up", "--accept-loss", "--data-dir", tmp_path / "d")
    assert start.choices.accepts_loss


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--feature-gate", "RuntimeClass=maybe"), "its value true or false"),
        (("--feature-gate", "Wings=true"), "the gate is RuntimeClass"),
        (("--feature-gate", "RuntimeClass"), "--feature-gate takes KEY=VALUE"),
        (("--api-port", 0), "--api-port"),
        (("--node-port", 65536), "--node-port"),
        (("--pod-pids-limit", -2), "--pod-pids-limit"),
        (("--image-limit", "much"), "--image-limit: 'much' is not a quantity"),
        (("--image-limit", "0"), "--image-limit: '0' must be greater than zero"),
        (("--cri", "unix:///x", "--own-engine"), "--cri and --own-engine exclude each other"),
        (("--cri", "/run/x.sock"), "--cri takes an endpoint of the form unix:///path/to.sock"),
        (("--image-allowlist", "r.example/a"), "NeverVerifyAllowlistedImages"),
        (("--without", "engine"), "--without engine: the parts are scheduler, controllers, node"),
        (("--without", ""), "the parts are scheduler, controllers, node"),
        (("--node", "--without", "node"), "--node and --without node exclude each other"),
    ],
    ids=str,
)
def test_invalid_options_are_a_usage_error(
    start: Start, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    answer = start.moor("up", *options, "--data-dir", tmp_path / "d")
    assert answer.status == 2
    assert message in answer.err
    assert start.steps == []


def test_missing_packages_are_installed_when_asked_for(start: Start, tmp_path: Path) -> None:
    answer = start.moor("up", "--install", "--data-dir", tmp_path / "d")
    assert answer.err == "installing conmon\n"
    assert start.steps[0] == ("look", True)


def test_a_machine_that_cannot_run_pods_is_status_4_with_each_problem(
    start: Start, tmp_path: Path
) -> None:
    start.host = a_host(is_root=False, tools=tools_without("conmon"))
    answer = start.moor("up", "--data-dir", tmp_path / "d")
    assert answer.status == 4
    assert answer.err.startswith("moor: this machine cannot run pods:\n  user: not root")
    assert " → run as root" in answer.err
    assert "conmon" in answer.err
    assert "kernel" not in answer.err
    assert start.steps == [("look", False)]


@pytest.mark.parametrize("merges", [True, False])
def test_a_detached_start_says_how_to_use_the_cluster(
    start: Start, tmp_path: Path, merges: bool
) -> None:
    layout = with_keys(cluster(tmp_path, name="mine", has_node=False))
    options = ("--merge",) if merges else ()
    answer = start.moor("up", "-d", "--no-node", *options, "--data-dir", layout.root)
    assert (answer.status, answer.err) == (0, "")
    first, rest = answer.out.split("\n", 1)
    assert first == "cluster ready"
    used = "use-context mine" if merges else f"export KUBECONFIG={layout.kubeconfig}"
    assert used in rest
    assert "kubectl get runtimeclasses,nodes" in rest
    assert start.steps == [("open", layout.root), ("detached", True)]
    assert start.claimed == 1
    user = tmp_path / "user" / "config"
    assert user.exists() == merges
    if merges:
        assert yaml.safe_load(user.read_text())["current-context"] == "mine"


def test_the_supervisor_learns_where_the_context_was_added(start: Start, tmp_path: Path) -> None:
    layout = with_keys(cluster(tmp_path))
    start.moor("up", "--merge", "--no-node", "--data-dir", layout.root)
    assert start.steps[-1] == ("become", str(tmp_path / "user" / "config"))


def test_failed_start_is_reported_in_one_line(start: Start, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    start.start_failure = StartError("not ready")
    answer = start.moor("up", "--detach", "--no-node", "--data-dir", layout.root)
    assert (answer.status, answer.err) == (1, "moor: not ready\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SettingsError("why"), "moor: why\n"),
        (NoSubnetError(_ROUTE.network), "every /24 network"),
        (SubnetTakenError(_ROUTE.network, _ROUTE), "reaches through eth0"),
        (OSError(28, "disk full"), "cannot be used for a cluster: disk full; choose another"),
    ],
)
def test_cluster_that_cannot_be_opened_is_an_error(
    start: Start, tmp_path: Path, error: Exception, message: str
) -> None:
    start.failure = error
    answer = start.moor("up", "--no-node", "--data-dir", tmp_path / "d")
    assert answer.status == 1
    assert message in answer.err
    assert start.steps == []


def test_cluster_started_meanwhile_is_an_error(start: Start, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    start.failure = AlreadyRunningError(layout, 7)
    answer = start.moor("up", "--no-node", "--data-dir", layout.root)
    assert answer.status == 1
    assert answer.err == f"moor: {start.failure}\n"


def test_external_engine_is_probed_instead_of_the_host(start: Start, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    missing = f"unix://{tmp_path}/none.sock"
    answer = start.moor("up", "--cri", missing, "--data-dir", layout.root)
    assert answer.status == 4
    assert f"the engine at {missing} cannot be used" in answer.err
    change(layout, cri=missing)
    assert start.moor("up", "--data-dir", layout.root).status == 4
    assert start.steps == []
    assert start.moor("up", "--no-node", "--data-dir", layout.root).status == 0
    start.moor("up", "--own-engine", "--data-dir", layout.root)
    assert start.steps[2] == ("look", False)


def test_an_engine_that_is_not_ready_is_a_warning(start: Start, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    with serving_apart(FakeCrio(Behaviour()), tmp_path) as endpoint:
        assert start.moor("up", "--cri", endpoint, "--data-dir", layout.root) == Answer(0, "", "")
    assert start.choices.cri == endpoint
    with serving_apart(FakeCrio(Behaviour(has_network=False)), tmp_path) as endpoint:
        answer = start.moor("up", "--cri", endpoint, "--data-dir", layout.root)
    assert answer.status == 0
    assert answer.err.startswith(f"moor: the engine at {endpoint}: ")


def test_one_that_runs_is_reported_and_nothing_is_opened(start: Start, tmp_path: Path) -> None:
    layout = with_keys(cluster(tmp_path, name="mine"))
    part = {"pid": os.getpid(), "restarts": 0, "ready_after_s": None}
    states = {"apiserver": "ready", "node": "starting", "engine": "restarting"}
    with locked(layout) as pid:
        plain = start.moor("up", "--data-dir", layout.root)
        assert not (tmp_path / "user").exists()
        parts = {name: {**part, "state": state} for name, state in states.items()}
        layout.state.write_text(json.dumps({"parts": parts}))
        waiting = start.moor("up", "--merge", "--name", "mine", "--data-dir", layout.root)
        change(layout, name="mine", has_node=False)
        without = start.moor("up", "--no-node", "--data-dir", layout.root)
    runs = f"the cluster in {layout.root} runs already"
    assert plain.out.splitlines()[0] == f"{runs} (supervisor process {pid})"
    assert f"export KUBECONFIG={layout.kubeconfig}" in plain.out
    assert waiting.out.splitlines()[0] == (
        f"{runs} (supervisor process {pid}); not ready yet: node, engine"
    )
    assert "kubectl config use-context mine" in waiting.out
    assert (tmp_path / "user" / "config").exists()
    assert without.out.startswith(f"{runs} without a node (supervisor process {pid}); ")
    assert start.steps == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--no-node",), "--node"),
        (("--feature-gate", "RuntimeClass=false"), "--feature-gate"),
        (("--registry-mirror", "a=b"), "--registry-mirror"),
        (("--scheduler-like-upstream",), "--schedule-by-handler"),
        (("--pod-pids-limit", 7), "--pod-pids-limit"),
        (("--image-limit", "7Gi"), "--image-limit"),
        (("--api-port", 1, "--name", "x"), "--name, --api-port"),
        (("--name", "moorage", "--node-name", "x"), "--node-name"),
    ],
    ids=str,
)
def test_one_that_runs_otherwise_is_left_alone(
    start: Start, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    layout = cluster(tmp_path)
    with locked(layout) as pid:
        answer = start.moor("up", *options, "--merge", "--data-dir", layout.root)
    assert (answer.status, answer.out) == (1, "")
    assert f"It runs with a different {message}, and options take effect" in answer.err
    assert str(pid) in answer.err
    assert f"`moor down --keep-pods --data-dir {layout.root}` first" in answer.err
    assert not (tmp_path / "user").exists()
    assert start.steps == []
