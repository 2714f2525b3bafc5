"""The supervisor's process: what it prints when the cluster is ready and when it is stopped."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cluster.access.credentials import Credentials
from moorage.cluster.layout import Layout
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import Settings, SettingsError, load, save
from moorage.cluster.supervision import supervise
from moorage.cluster.supervision.probes import CriProbe, HttpsProbe
from moorage.cluster.supervision.readiness import notify_ready
from moorage.cluster.supervision.supervise import become_supervisor, moor_command, parts_of, usage
from moorage.cluster.supervision.supervisor import (
    COMPLETE,
    NOTIFY_VARIABLE,
    READY_MESSAGE,
    AlreadyRunningError,
    Part,
    PortTakenError,
    read_state,
)
from moorage.cluster.teardown import stop_supervisor
from tests.cluster.test_settings import SETTINGS
from tests.running import until

_READY = f"echo {READY_MESSAGE.decode().strip()} >&$" + NOTIFY_VARIABLE


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    """A cluster with one part, ready at once."""
    layout = Layout(tmp_path / "data")
    layout.root.mkdir()
    umask = os.umask(0o022)
    yield layout
    os.umask(umask)


def _run(layout: Layout, number: signal.Signals) -> int:
    """Run the supervisor, and send it a signal as soon as it reports readiness."""
    part = Part("one", "one", ("/bin/bash", "-c", f"{_READY}; exec sleep 1000"))

    def parts(part_layout: Layout, settings: Settings) -> tuple[Part]:
        assert (part_layout, settings) == (layout, load(layout.settings))
        return (part,)

    read_end, write_end = os.pipe()
    environment = {NOTIFY_VARIABLE: str(write_end)}

    def stop() -> None:
        os.read(read_end, 64)
        os.kill(os.getpid(), number)

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        notify = partial(notify_ready, environment)
        return supervise.main([str(layout.root), ""], parts, notify=notify)
    finally:
        stopper.join()
        os.close(read_end)


@pytest.mark.parametrize(
    ("has_node", "farewell"),
    [
        (True, "stopped; the pods go on running: `moor up --data-dir {0}` takes them over, "
               "`moor down --data-dir {0}` ends them"),
        (False, "stopped; `moor up --data-dir {0}` resumes the cluster"),
    ],
)  # fmt: skip
def test_a_ready_cluster_says_how_it_is_used_and_ctrl_c_what_is_left(
    layout: Layout,
    capfd: pytest.CaptureFixture[str],
    has_node: bool,
    farewell: str,
) -> None:
    save(layout.settings, msgspec.structs.replace(SETTINGS, has_node=has_node))
    assert _run(layout, signal.SIGINT) == 0
    captured = capfd.readouterr()
    assert captured.out.count("export KUBECONFIG=") == 1
    assert captured.out.index("cluster ready") < captured.out.index("export KUBECONFIG=")
    assert captured.err == f"moor: {farewell.format(layout.root)}\n"


def test_a_cluster_that_is_stopped_otherwise_prints_no_farewell(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    save(layout.settings, SETTINGS)
    assert _run(layout, signal.SIGTERM) == 0
    assert capfd.readouterr().err == ""


def test_files_of_a_cluster_are_for_its_user_only(layout: Layout) -> None:
    save(layout.settings, SETTINGS)
    assert _run(layout, signal.SIGTERM) == 0
    umask = os.umask(0o022)
    assert umask == 0o077


@pytest.mark.parametrize("is_merged", [False, True])
def test_use_is_shown_for_the_kubeconfig_that_has_the_cluster(
    layout: Layout,
    capsys: pytest.CaptureFixture[str],
    is_merged: bool,
) -> None:
    save(layout.settings, SETTINGS)
    merged_into = "/home/me/.kube/config" if is_merged else ""
    ready: list[str] = []

    class FakeSupervisor:
        def __init__(self, _: Layout, __: Any, report: Callable[[str], None]) -> None:
            self._report = report

        def run(self) -> int:
            self._report("one ready")
            assert ready == []
            self._report(COMPLETE)
            assert ready == ["ready"]
            return signal.SIGHUP

    make: Any = FakeSupervisor
    argv = [str(layout.root), merged_into]
    assert supervise.main(argv, make=make, notify=lambda: ready.append("ready")) == 0
    captured = capsys.readouterr()
    shown = usage(layout, SETTINGS, merged_into)
    assert captured.out == f"one ready\n{COMPLETE}\n{shown}\n"
    assert captured.err == ""


def test_a_data_directory_or_port_of_another_is_an_error(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    save(layout.settings, SETTINGS)
    part = Part("one", "API server", (), listens_on="port 6443 (--api-port)")
    errors = [AlreadyRunningError(layout, 7), PortTakenError(part)]

    class FakeSupervisor:
        def __init__(self, *_: Any) -> None:
            pass

        def run(self) -> int:
            raise errors[0]

    make: Any = FakeSupervisor
    for error in list(errors):
        assert supervise.main([str(layout.root), ""], make=make) == 1
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", f"moor: {error}\n")
        errors.pop(0)


def test_a_line_is_printed_at_once() -> None:
    output = io.BytesIO()
    writer = io.TextIOWrapper(output)
    with redirect_stdout(writer):
        supervise.print_line("one ready")
    assert output.getvalue() == b"one ready\n"


def test_a_cluster_without_settings_is_not_supervised(layout: Layout) -> None:
    with pytest.raises(SettingsError, match="`moor up` makes it"):
        supervise.main([str(layout.root), ""])


SUPERVISES = '''
import sys
from pathlib import Path
from moorage.cluster.supervision import supervise
from moorage.cluster.supervision.supervisor import Part
code = """
from moorage.cluster.supervision.readiness import notify_ready
from moorage.linux.own_process import die_with_parent
die_with_parent(); notify_ready(); signal.pause()"""
part = Part("one", "one", (sys.executable, "-c", "import signal" + code))
sys.exit(supervise.main([sys.argv[1], ""], lambda *_: (part,)))
'''


@pytest.mark.parametrize("output", ["closed pipe", "/dev/full"])
def test_a_cluster_that_is_ready_after_its_starter_and_its_reader_went_goes_on(
    layout: Layout, output: str
) -> None:
    save(layout.settings, SETTINGS)
    notify_read, notify_write = os.pipe()
    output_read, output_write = os.pipe()
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISES, str(layout.root)],
            stdout=full if output == "/dev/full" else output_write,
            env={**os.environ, NOTIFY_VARIABLE: str(notify_write)},
            pass_fds=(notify_write,),
        )
    for end in (notify_read, notify_write, output_read, output_write):
        os.close(end)
    try:
        until(lambda: _part_state(layout) == "ready", "the part's readiness", 20)
        # It must still be there when it has reported that: it answers a request to end.
        assert asyncio.run(stop_supervisor(layout))
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def _part_state(layout: Layout) -> str:
    state: Any = read_state(layout.state)
    return str(state["parts"]["one"]["state"]) if state else ""


def test_what_is_started_and_how_it_is_used(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a b")

    def names(**chosen: Any) -> list[str]:
        settings = msgspec.structs.replace(SETTINGS, **chosen)
        return [part.name for part in parts_of(layout, settings)]

    assert names() == ["apiserver", "engine", "dns", "node", "controllers"]
    assert names(cri="unix:///run/x.sock") == ["apiserver", "node", "controllers"]
    assert names(has_node=False) == ["apiserver", "controllers"]
    others = ("scheduler", "controllers")
    assert names(has_node=False, without=(*others, "node")) == ["apiserver"]
    provisioner = parts_of(layout, msgspec.structs.replace(SETTINGS, without=others))[-1]
    assert (provisioner.name, provisioner.label) == ("controllers", "provisioner")
    only = parts_of(layout, msgspec.structs.replace(SETTINGS, without=("controllers",)))[-1]
    assert (only.name, only.label) == ("controllers", "scheduler and provisioner")
    assert f"export KUBECONFIG='{layout.root}/kubeconfig'\n" in usage(layout, SETTINGS)
    assert "use-context moorage\n" in usage(layout, SETTINGS, "/home/me/.kube/config")


def test_each_part_is_started_probed_and_named(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a b")
    credentials = Credentials(layout)
    authority = credentials.authority.certificate
    parts = parts_of(layout, SETTINGS)
    environment = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}
    for part in parts:
        argv = (sys.executable, "-m", "moorage.cluster.parts", part.name, str(layout.root))
        assert (part.argv, part.environment) == (argv, environment)
        assert (part.notifies, part.beats) == (True, True)
    probes = [
        HttpsProbe("127.0.0.1", 6443, "/livez", credentials.controllers, authority),
        CriProbe(Path("/run/moorage/0a1b2c3d/engine.sock")),
        HttpsProbe("192.0.2.7", 10250, "/healthz", credentials.node_client, authority),
    ]
    asked: list[Any] = [part.probe for part in parts if part.probe is not None]
    assert [(type(probe), vars(probe)) for probe in asked] == [
        (type(probe), vars(probe)) for probe in probes
    ]
    assert [(part.label, part.listens_on, part.longest_restart_s) for part in parts] == [
        ("API server", "port 6443 of 127.0.0.1 or 10.244.0.1 (--api-port)", 2.0),
        ("container engine", "", 30.0),
        ("cluster DNS", "port 53 of 10.244.0.2", 30.0),
        ("node n1", "port 10250 of 192.0.2.7 (--node-port)", 30.0),
        ("controllers and scheduler", "", 30.0),
    ]


@pytest.mark.parametrize(
    ("root", "command"),
    [("/var/lib/moorage", "`moor up`"), ("/a b", "`moor up --data-dir '/a b'`")],
)
def test_commands_name_the_directory_unless_it_is_the_systems(root: str, command: str) -> None:
    assert moor_command(Layout(Path(root)), "up") == command


@pytest.mark.parametrize(
    ("merged_into", "first"),
    [
        ("", "export KUBECONFIG='/a b/kubeconfig'"),
        ("/home/me/.kube/config", "kubectl config use-context 'my cluster'"),
    ],
)
def test_how_a_cluster_is_used(merged_into: str, first: str) -> None:
    settings = msgspec.structs.replace(SETTINGS, name="my cluster")
    text = usage(Layout(Path("/a b")), settings, merged_into)
    assert text == f"\n  {first}\n  kubectl get runtimeclasses,nodes\n"


def test_the_supervisor_takes_the_place_of_the_command(tmp_path: Path) -> None:
    executed: list[Any] = []
    output = io.BytesIO()

    def execute(*arguments: Any) -> None:
        # A buffer does not outlive the program.
        assert output.getvalue() == b"creating the cluster\n"
        executed.append(arguments)

    with Reservations() as reservations, redirect_stdout(io.TextIOWrapper(output)):
        print("creating the cluster")
        assert reservations.take(f"test-{tmp_path}")
        ready, wake = os.pipe()
        become_supervisor(
            Layout(tmp_path), reservations, "/home/me/.kube/config",
            {NOTIFY_VARIABLE: str(wake)}, execute,
        )  # fmt: skip
        assert [os.get_inheritable(fd) for fd in (*reservations.descriptors, wake)] == [True, True]
        os.close(ready)
        os.close(wake)
    argv = [sys.executable, "-m", "moorage.cluster.supervision.supervise", str(tmp_path),
            "/home/me/.kube/config"]  # fmt: skip
    assert executed == [(sys.executable, argv)]
