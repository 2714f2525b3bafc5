"""Each part of a cluster with fakes in the places of what it serves: what it is given, in order."""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.api.errors import StatusError
from moorage.api.host_ports import Listener
from moorage.apiserver.endpoints.node_agents import NodeTls
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.daemon import Service
from moorage.cluster.engine.paths import engine_paths
from moorage.cluster.engine.plan import EnginePlan
from moorage.cluster.images import PAUSE, NoPauseError
from moorage.cluster.layout import ISSUER, Layout
from moorage.cluster.network import pod_network
from moorage.cluster.parts import __main__ as main_module
from moorage.cluster.parts import apiserver, connection, controllers
from moorage.cluster.parts import engine as engine_part
from moorage.cluster.settings import Settings, SettingsError, save
from moorage.cluster.supervision import readiness
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE, PORT_TAKEN_STATUS, READY_MESSAGE
from moorage.controllers import ControllerOptions
from moorage.linux.trust import PASSABLE
from moorage.wire.client.rest import UnreachableError
from tests.clocks import settle
from tests.cluster.test_settings import SETTINGS


class Steps(list[Any]):
    """What happened, in order, and the arguments of the last call of each."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: dict[str, tuple[Any, ...]] = {}

    def call(self, name: str, answer: Any = None) -> Any:
        async def call(*arguments: Any) -> Any:
            self.append(name)
            self.arguments[name] = arguments
            return answer

        return call

    def plain(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> None:
            self.append(name)

        return call

    def block(self, name: str, answer: Any = None) -> Any:
        @asynccontextmanager
        async def block(*arguments: Any) -> AsyncIterator[Any]:
            self.append(name)
            self.arguments[name] = arguments
            try:
                yield answer
            finally:
                self.append(f"end of {name}")

        return block


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "d")
    layout.root.mkdir()
    credentials = Credentials(layout)
    pairs = (credentials.authority, credentials.controllers, credentials.scheduler)
    for pair in pairs:
        for file in (pair.certificate, pair.key):
            file.parent.mkdir(exist_ok=True)
            file.write_text(file.name)
    return layout


# The program.


@pytest.fixture
def started(
    layout: Layout, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    """The part `engine`, which ends with `error`."""
    save(layout.settings, msgspec.structs.replace(SETTINGS, log_level="debug"))
    part = SimpleNamespace(error=None, masks=[])

    async def run(part_layout: Layout, settings: Settings) -> None:
        steps.append((part_layout.root, settings.log_level))
        part.masks.append(os.umask(0o022))
        if part.error is not None:
            raise part.error

    monkeypatch.setattr(importlib, "import_module", lambda name: (
        steps.append(name), SimpleNamespace(run=run))[1])  # fmt: skip
    monkeypatch.setattr(main_module, "die_with_parent", steps.plain("dies with parent"))
    monkeypatch.setattr(main_module, "calm_collector", steps.plain("calm"))
    monkeypatch.setattr(main_module, "LogFile", lambda path: path)
    monkeypatch.setattr(
        main_module, "configure", lambda level, file: steps.append(f"logs {level} to {file.name}")
    )
    monkeypatch.setattr(main_module.log, "exception", lambda *_, **__: steps.append("failed"))
    monkeypatch.setattr(Service, "taken_from_environment", steps.plain("service forgotten"))
    before = os.umask(0o022)
    yield part
    os.umask(before)


def test_a_part_is_run_with_its_settings(
    started: SimpleNamespace, layout: Layout, steps: Steps
) -> None:
    assert main_module.main(["engine", str(layout.root)]) == 0
    assert steps == [
        "dies with parent", "service forgotten", "logs debug to engine.log",
        "moorage.cluster.parts.engine", "calm", (layout.root, "debug"),
    ]  # fmt: skip
    assert started.masks == [0o077]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("x"), 1),
        (OSError(errno.EADDRINUSE, "taken"), PORT_TAKEN_STATUS),
        (OSError(errno.EACCES, "denied"), 1),
        (ExceptionGroup("g", [ValueError(), OSError(errno.EADDRINUSE, "x")]), PORT_TAKEN_STATUS),
        (ExceptionGroup("g", [ValueError(), OSError(errno.EACCES, "x")]), 1),
    ],
)
def test_a_part_that_fails_says_whether_its_port_was_taken(
    started: SimpleNamespace, layout: Layout, steps: Steps, error: Exception, status: int
) -> None:
    started.error = error
    assert main_module.main(["engine", str(layout.root)]) == status
    assert steps[-1] == "failed"


@pytest.mark.parametrize("argv", [[], ["engine"], ["other", "/d"], ["engine", "/d", "more"]])
def test_wrong_usage(
    started: SimpleNamespace, steps: Steps, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_module.main(argv) == 2
    assert steps == []
    assert started.masks == []
    captured = capsys.readouterr()
    assert "apiserver|controllers|engine|node DATA_DIR" in captured.err
    assert captured.out == ""


def test_without_settings_there_is_no_part(started: SimpleNamespace, layout: Layout) -> None:
    layout.settings.unlink()
    with pytest.raises(SettingsError, match="no such file; `moor up` makes it"):
        main_module.main(["engine", str(layout.root)])
    assert started.masks == []


def test_only_the_engine_runs_on_a_loop_with_child_watching() -> None:
    loops = {name: run.__module__.partition(".")[0] for name, run in main_module._LOOPS.items()}
    assert loops == {
        "apiserver": "uvloop", "controllers": "uvloop", "engine": "asyncio", "node": "uvloop"
    }  # fmt: skip


async def test_it_beats_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[str] = []

    async def beat() -> None:
        beats.append("begun")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            beats.append("ended")

    async def work() -> None:
        beats.append("working")
        await may_end.wait()
        raise KeyError

    may_end = asyncio.Event()
    monkeypatch.setattr(main_module, "send_heartbeats", beat)
    working = asyncio.ensure_future(main_module._with_heartbeats(work()))
    await settle()
    assert beats == ["begun", "working"]
    may_end.set()
    with pytest.raises(KeyError):
        await working
    await settle()
    assert beats == ["begun", "working", "ended"]


# The API server.


@pytest.fixture
def network(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.cluster.host.gather", steps.call("gather", "host"))
    monkeypatch.setattr("moorage.cluster.network.protect", steps.call("protect"))
    monkeypatch.setattr("moorage.cluster.network.unprotect", steps.call("unprotect"))


OTHER = {"cri": "unix:///x.sock"}


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, []),
        (OTHER, ["gather", "protect", "unprotect"]),
        ({"has_node": False}, ["gather", "protect", "unprotect"]),
    ],
)
async def test_without_an_engine_of_its_own_the_server_protects_its_ports(
    layout: Layout, steps: Steps, changes: dict[str, Any], wanted: list[str]
) -> None:
    settings = msgspec.structs.replace(SETTINGS, **changes)

    async def serve() -> None:
        async with apiserver._protected_ports(layout, settings):
            assert steps == wanted[:2]
            raise KeyError

    with pytest.raises(KeyError):
        await serve()
    assert steps == wanted
    assert steps.arguments.get("gather", (layout.root,)) == (layout.root,)


@pytest.mark.parametrize(
    ("changes", "services", "bridges"),
    [(OTHER, IPv4Network("10.96.0.0/16"), ("b0",)), ({"has_node": False}, None, ())],
)
async def test_what_the_server_protects(
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    services: IPv4Network | None,
    bridges: tuple[str, ...],
) -> None:
    calls: list[Any] = []

    async def gather(root: Path) -> str:
        assert root == layout.root
        return "host"

    async def protect(*arguments: Any) -> None:
        calls.append(arguments)

    engine = Listener("engine", "127.0.0.1", 1007)
    monkeypatch.setattr("moorage.cluster.host.gather", gather)
    monkeypatch.setattr("moorage.cluster.network.protect", protect)
    monkeypatch.setattr("moorage.cluster.network.unprotect", protect)
    monkeypatch.setattr("moorage.cluster.network.pod_bridges", lambda: ("b0",))
    monkeypatch.setattr(apiserver, "engine_process", lambda _: 7)
    monkeypatch.setattr(apiserver, "engine_listeners", lambda *_: (engine,))
    settings = msgspec.structs.replace(SETTINGS, **changes)
    async with apiserver._protected_ports(layout, settings):
        pass
    network = pod_network(settings, engine_paths(layout, settings).leases)
    listeners = (*settings.listeners, *((engine,) if settings.cri else ()))
    assert calls == [
        (replace(network, listeners=listeners, services=services), "host", bridges),
        (network, "host"),
    ]


async def test_the_server_has_the_clusters_files_and_addresses(
    layout: Layout, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[Any] = []
    server = SimpleNamespace(run=steps.call("run"))

    def make(*options: Any) -> Any:
        passed.extend(options)
        return steps.block("server", server)()

    monkeypatch.setattr(apiserver, "ApiServer", make)
    monkeypatch.setattr(apiserver, "notify_ready", steps.plain("ready"))
    monkeypatch.setattr(apiserver, "raise_descriptor_limit", steps.plain("descriptors"))
    settings = msgspec.structs.replace(SETTINGS, gates={"RuntimeClass": False})
    await apiserver.run(layout, settings)
    assert steps == ["descriptors", "server", "ready", "run", "end of server"]
    options, api = passed
    credentials = Credentials(layout)
    authority = credentials.authority.certificate
    assert (options.database, options.mark) == (layout.database, layout.store_mark)
    assert (options.certificate, options.key, options.client_ca) == (
        credentials.api_server.certificate, credentials.api_server.key, authority
    )  # fmt: skip
    assert (options.addresses, options.port) == (("127.0.0.1", "10.244.0.1"), 6443)
    assert (api.signing_key, api.public_url) == (
        credentials.signing_key, "https://10.244.0.1:6443"
    )  # fmt: skip
    assert str(api.service_network) == "10.96.0.0/16"
    assert api.issuer == ISSUER
    node = credentials.node_client
    assert api.node_tls == NodeTls(node.certificate, node.key, authority)
    assert (api.listeners, api.gates) == (settings.listeners, {"RuntimeClass": False})
    assert layout.database.parent.stat().st_mode & 0o777 == 0o700


# How others come to it.


class Api:
    """A server that answers once it is ready."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.asked: list[tuple[str, str]] = []
        self.config: Any = None
        self.user_agent = ""

    def __call__(self, config: Any, user_agent: str) -> Api:
        self.config, self.user_agent = config, user_agent
        return self

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.asked.append(("closed", ""))

    async def request(self, method: str, path: str) -> None:
        self.asked.append((method, path))
        if self.refusals:
            raise self.refusals.pop(0)


async def test_the_server_is_asked_until_it_is_ready(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(UnreachableError("not yet"), StatusError("not yet"))
    monkeypatch.setattr(connection, "Client", api)
    credentials = Credentials(layout)
    pair = credentials.controllers
    async with connection.connected(SETTINGS, credentials, pair, "agent") as client:
        assert client is api  # type: ignore[comparison-overlap]
        assert api.asked == [("GET", "/readyz")] * 3
    assert api.asked[-1] == ("closed", "")
    assert (api.config.server, api.user_agent) == ("https://127.0.0.1:6443", "agent")
    names = [credentials.authority.certificate.name, pair.certificate.name, pair.key.name]
    config = api.config
    assert [config.ca, config.certificate, config.key] == [name.encode() for name in names]


async def test_a_server_that_is_never_ready_is_an_error(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(*[UnreachableError("no")] * 1000)
    monkeypatch.setattr(connection, "Client", api)
    monkeypatch.setattr(connection, "_FIRST_ANSWER_S", 0.01)
    credentials = Credentials(layout)
    with pytest.raises(UnreachableError, match=r"https://127\.0\.0\.1:6443 is not ready"):
        async with connection.connected(SETTINGS, credentials, credentials.controllers, "a"):
            pass
    assert api.asked[-1] == ("closed", "")


def own_kinds_served(steps: Steps) -> Any:
    async def wait_installed(client: str, _clock: object) -> None:
        steps.append(("own kinds", client))

    return wait_installed


async def test_a_part_is_ready_although_its_kinds_cannot_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wait_installed(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(controllers, "wait_installed", wait_installed)
    monkeypatch.setattr(controllers, "_OWN_KINDS_S", 0.01)
    await controllers._wait_own_kinds(None)  # type: ignore[arg-type]


async def test_controllers_and_scheduler_have_a_client_each(
    layout: Layout, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def connected(*arguments: Any) -> AsyncIterator[str]:
        steps.append((arguments[2].certificate.name, arguments[3]))
        yield arguments[3]

    def run(name: str) -> Any:
        async def run(client: str, options: Any, _clock: object, **_: object) -> None:
            steps.append((name, client, options))

        return run

    served: list[Any] = []

    async def serve_metrics(port: int, identity: Any, _: object, client: str, *__: object) -> None:
        served.append((port, identity.certificate.name, client))

    monkeypatch.setattr(controllers, "serve_metrics", serve_metrics)
    monkeypatch.setattr(controllers, "connected", connected)
    monkeypatch.setattr(controllers, "run_controllers", run("controllers"))
    monkeypatch.setattr(controllers, "run_scheduler", run("scheduler"))
    monkeypatch.setattr(controllers, "wait_installed", own_kinds_served(steps))
    monkeypatch.setattr(controllers, "notify_ready", steps.plain("ready"))
    settings = msgspec.structs.replace(SETTINGS, filters_by_handler=False, scheduler_port=10259)
    await controllers.run(layout, settings)
    # The controllers' port is 0 as after an earlier version's start, so it is not served.
    assert served == [(10259, "scheduler-server.crt", "moorage-scheduler")]
    credentials = Credentials(layout)
    assert steps[:5] == [
        (credentials.controllers.certificate.name, "moorage-controllers"),
        (credentials.scheduler.certificate.name, "moorage-scheduler"),
        (credentials.admin.certificate.name, "moorage-runtimes"),
        ("own kinds", "moorage-runtimes"),
        "ready",
    ]
    (_, first, options), (_, second, scheduling) = steps[5:]
    assert (first, second) == ("moorage-controllers", "moorage-scheduler")
    assert options.cluster_ca == credentials.authority.certificate.name
    assert scheduling.filters_by_handler is False


async def test_without_controllers_what_no_other_manager_has_runs_alone(
    layout: Layout, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def connected(*arguments: Any) -> AsyncIterator[str]:
        steps.append((arguments[2].certificate.name, arguments[3]))
        yield arguments[3]

    async def run_alone(client: str, admin: str, options: ControllerOptions, _: object) -> None:
        steps.append((client, admin, options.creates_classes))

    monkeypatch.setattr(controllers, "connected", connected)
    monkeypatch.setattr(controllers, "run_alone", run_alone)
    monkeypatch.setattr(controllers, "wait_installed", own_kinds_served(steps))
    monkeypatch.setattr(controllers, "notify_ready", steps.plain("ready"))
    settings = msgspec.structs.replace(SETTINGS, without=("scheduler", "controllers"))
    await controllers.run(layout, settings)
    credentials = Credentials(layout)
    assert steps == [
        (credentials.admin.certificate.name, "moorage-runtimes"),
        (credentials.controllers.certificate.name, "moorage-provisioner"),
        ("own kinds", "moorage-runtimes"),
        "ready",
        ("moorage-provisioner", "moorage-runtimes", True),
    ]


# The engine.


def a_plan(root: Path, *tools: str) -> EnginePlan:
    from moorage.cluster.engine.paths import engine_paths
    from moorage.cluster.engine.plan import plan_engine
    from tests.cluster.hosts import a_host, tools_without

    host = a_host(tools=tools_without(*tools))
    layout = Layout(root)
    plan = plan_engine(layout, SETTINGS, host)
    assert plan.paths == engine_paths(layout, SETTINGS)
    return plan


def test_the_port_of_streams_is_chosen_and_kept_from_pods(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    chosen = engine_part._with_stream_port(plan)
    port = chosen.options.stream_port
    assert port > 1023
    assert plan.options.stream_port == 0
    assert chosen.network.listeners == (
        *plan.network.listeners, Listener("engine", "127.0.0.1", port)
    )  # fmt: skip
    assert chosen.options.stream_address == "127.0.0.1"


@pytest.mark.parametrize("missing", [(), ("busybox",), ("catatonit",), ("busybox", "catatonit")])
async def test_images_of_the_machines_programs_are_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    passed: list[Any] = []

    async def catalogue(*programs: Any) -> tuple[Any, ...]:
        passed.append(programs)
        return SimpleNamespace(name=PAUSE), SimpleNamespace(name="x")

    async def import_images(images: Any, store: Any, scratch: Path) -> None:
        passed.append(([image.name for image in images], store, scratch))

    monkeypatch.setattr(engine_part, "catalogue", catalogue)
    monkeypatch.setattr(engine_part, "import_images", import_images)
    plan = a_plan(tmp_path, *missing)
    engine: Any = SimpleNamespace(images="store")
    await engine_part._bring_images(plan, engine)
    programs = tuple(
        None if name in missing else Path("/usr/bin", name) for name in ("busybox", "catatonit")
    )
    scratch = plan.options.paths.run / "images.tar"
    assert passed == [programs, (["x"], "store", scratch)]


async def test_without_programs_there_are_no_images(
    tmp_path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def catalogue(*_: Any) -> None:
        raise NoPauseError(["why"])

    monkeypatch.setattr(engine_part, "catalogue", catalogue)
    monkeypatch.setattr(engine_part, "import_images", steps.call("import"))
    engine: Any = SimpleNamespace(images="store")
    warned: list[str] = []
    monkeypatch.setattr(engine_part.log, "warning", lambda *_, reason: warned.append(str(reason)))
    await engine_part._bring_images(a_plan(tmp_path), engine)
    assert steps == []
    assert len(warned) == 1


@pytest.mark.parametrize("complaint", ["", "no route"])
async def test_the_engine_serves_once_its_images_are_there(
    tmp_path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch, complaint: str
) -> None:
    made: list[tuple[str, int]] = []
    serving = SimpleNamespace(serving=steps.block("serving"))
    monkeypatch.setattr("moorage.cluster.engine.paths.RUN", tmp_path / "run")
    plan = a_plan(tmp_path)
    monkeypatch.setattr(engine_part, "prepare_host", steps.call("host", plan.host))
    network = SimpleNamespace(complaint=complaint)
    monkeypatch.setattr(engine_part, "set_up", steps.call("network", network))
    monkeypatch.setattr(engine_part, "running", steps.block("engine", serving))
    monkeypatch.setattr(engine_part, "_bring_images", steps.call("images"))
    monkeypatch.setattr(engine_part, "notify_ready", steps.plain("ready"))
    monkeypatch.setattr(
        engine_part, "make_private",
        lambda path, mode=0o700: made.append((path.relative_to(tmp_path).as_posix(), mode)),
    )  # fmt: skip
    warned: list[str] = []
    monkeypatch.setattr(engine_part.log, "warning", lambda *_, **words: warned.append(str(words)))
    running = asyncio.ensure_future(engine_part.run(Layout(tmp_path), SETTINGS))
    await settle(100)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert steps == [
        "host", "network", "engine", "images", "serving", "ready", "end of serving",
        "end of engine",
    ]  # fmt: skip
    assert made == [("run/0a1b2c3d", PASSABLE), ("run/0a1b2c3d/leases", 0o700)]
    assert bool(warned) == bool(complaint)
    assert steps.arguments["host"] == (tmp_path,)
    network_plan, host, configurations = steps.arguments["network"]
    (options,) = steps.arguments["engine"]
    assert (host, configurations) == (plan.host, plan.paths.cni)
    # The port that was chosen is the engine's, and no pod can have it.
    assert network_plan.listeners[-1] == Listener("engine", "127.0.0.1", options.stream_port)
    assert replace(options, stream_port=0) == plan.options
    brought, engine = steps.arguments["images"]
    assert (brought.options, engine) == (options, serving)


# What a part says to its supervisor.


def test_ready_notification_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setenv(NOTIFY_VARIABLE, str(write_end))
    readiness.notify_ready()
    assert os.read(read_end, 100) == READY_MESSAGE
    assert NOTIFY_VARIABLE not in os.environ
    # Closed: nothing more comes.
    assert os.read(read_end, 100) == b""
    readiness.notify_ready()
    os.close(read_end)
    read_end, write_end = os.pipe()
    os.close(read_end)
    monkeypatch.setenv(NOTIFY_VARIABLE, str(write_end))
    readiness.notify_ready()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write_end)
