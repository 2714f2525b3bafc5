"""Supervisor process of a cluster, a module with the arguments DATA_DIR and MERGED_INTO.

`moor up` executes it once the cluster is created, so that only what supervising needs stays in
memory. MERGED_INTO is the user's kubeconfig that has the cluster, or empty.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.cluster.access.credentials import Credentials
from moorage.cluster.layout import ENGINE_SOCKET, SYSTEM_DATA_DIR, Layout
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import CONTROLLERS, SCHEDULER, Settings, SettingsError, load
from moorage.cluster.supervision.probes import CriProbe, HttpsProbe
from moorage.cluster.supervision.readiness import notify_ready
from moorage.cluster.supervision.supervisor import (
    COMPLETE,
    NOTIFY_VARIABLE,
    AlreadyRunningError,
    Part,
    PortTakenError,
    Supervisor,
    read_state,
    running_pid,
)
from moorage.linux.process_memory import resident_bytes
from moorage.linux.trust import UMASK

# Status of a cluster's processes, from its supervisor's state file.


@dataclass(frozen=True, slots=True)
class PartStatus:
    """Status of a process.

    `memory_bytes` is its resident set, `last_end` how the part's previous process ended.
    """

    part: str
    state: str
    pid: int | None
    restarts: int
    ready_after_s: float | None
    memory_bytes: int | None
    last_end: str = ""


def part_statuses(layout: Layout) -> tuple[PartStatus, ...]:
    """Return the status of the cluster's processes, none while the cluster is down."""
    pid = running_pid(layout)
    state = read_state(layout.state)
    if pid is None or state is None:
        return ()
    parts: Any = state["parts"]
    rows = [PartStatus("supervisor", "ready", pid, 0, None, resident_bytes(pid))]
    for name, part in parts.items():
        rows.append(
            PartStatus(
                name,
                part["state"],
                part["pid"],
                part["restarts"],
                part["ready_after_s"],
                resident_bytes(part["pid"]) if part["pid"] else None,
                part.get("last_end", ""),
            )
        )
    return tuple(rows)


# The other parts need the API server, and it starts in a second.
_LONGEST_API_RESTART_S = 2.0
# Freed memory is returned to the kernel at once: an idle part is small, whatever its start took.
MEMORY_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}


def parts_of(layout: Layout, settings: Settings) -> tuple[Part, ...]:
    """Return the parts of a cluster in the order in which they are started."""

    def part(name: str, label: str, **more: Any) -> Part:
        argv = (sys.executable, "-m", "moorage.cluster.parts", name, str(layout.root))
        return Part(name, label, argv, environment=MEMORY_ENVIRONMENT, beats=True, **more)

    credentials = Credentials(layout)
    authority = credentials.authority.certificate
    # This user's requests are exempt from limits: a flood of requests must not fail the probe.
    api_probe = HttpsProbe(
        "127.0.0.1", settings.api_port, "/livez", credentials.controllers, authority
    )
    node_probe = HttpsProbe(
        settings.node_ip, settings.node_port, "/healthz", credentials.node_client, authority
    )
    api = f"port {settings.api_port} of {' or '.join(settings.api_addresses)} (--api-port)"
    agent = f"port {settings.node_port} of {settings.node_ip} (--node-port)"
    parts = [
        part(
            "apiserver", "API server", probe=api_probe, listens_on=api,
            longest_restart_s=_LONGEST_API_RESTART_S,
        )
    ]  # fmt: skip
    if settings.has_node and not settings.cri:
        engine_probe = CriProbe(layout.run / settings.cluster_id / ENGINE_SOCKET)
        parts.append(part("engine", "container engine", probe=engine_probe))
        dns = f"port 53 of {settings.dns_address}"
        parts.append(part("dns", "cluster DNS", listens_on=dns))
    if settings.has_node:
        parts.append(part("node", f"node {settings.node_name}", probe=node_probe, listens_on=agent))
    clients = [name for name in (CONTROLLERS, SCHEDULER) if name not in settings.without]
    if settings.has_provisioner_alone:
        clients.append("provisioner")
    if clients:
        parts.append(part("controllers", " and ".join(clients)))
    return tuple(parts)


def usage(layout: Layout, settings: Settings, merged_into: str = "") -> str:
    """Return the commands for using a cluster that is ready, as text."""
    first = (
        f"kubectl config use-context {shlex.quote(settings.name)}"
        if merged_into
        else f"export KUBECONFIG={shlex.quote(str(layout.kubeconfig))}"
    )
    return f"\n  {first}\n  kubectl get runtimeclasses,nodes\n"


def moor_command(layout: Layout, command: str) -> str:
    """Return the command line of `command` on this cluster, for messages."""
    where = "" if layout.root == SYSTEM_DATA_DIR else f" --data-dir {shlex.quote(str(layout.root))}"
    return f"`moor {command}{where}`"


def _farewell(layout: Layout, settings: Settings) -> str:
    """Return the message after Ctrl-C: what keeps running, and how to resume or end it."""
    resume, end = moor_command(layout, "up"), moor_command(layout, "down")
    if not settings.has_node:
        return f"stopped; {resume} resumes the cluster"
    return f"stopped; the pods go on running: {resume} takes them over, {end} ends them"


def become_supervisor(
    layout: Layout,
    reservations: Reservations,
    merged_into: str = "",
    environment: Mapping[str, str] = os.environ,
    execute: Callable[[str, list[str]], object] = os.execv,
) -> None:
    """Replace this process with the supervisor, which inherits the reservations; do not return."""
    reservations.keep_through_exec()
    argv = [
        sys.executable,
        "-m",
        "moorage.cluster.supervision.supervise",
        str(layout.root),
        merged_into,
    ]
    sys.stdout.flush()
    if NOTIFY_VARIABLE in environment:
        os.set_inheritable(int(environment[NOTIFY_VARIABLE]), True)
    execute(sys.executable, argv)


def main(
    argv: list[str],
    parts_of: Callable[[Layout, Settings], tuple[Part, ...]] = parts_of,
    make: Callable[..., Supervisor] = Supervisor,
    notify: Callable[[], None] = notify_ready,
) -> int:
    """Supervise until SIGTERM, SIGINT or SIGHUP. Return the exit status.

    Raises SettingsError if the data directory has no settings, or damaged ones.
    """
    os.umask(UMASK)
    layout, merged_into = Layout(Path(argv[0])), argv[1]
    settings = load(layout.settings)
    if settings is None:
        raise SettingsError(f"{layout.settings}: no such file; `moor up` makes it")

    def report(sentence: str) -> None:
        print_line(sentence)
        if sentence == COMPLETE:
            print_line(usage(layout, settings, merged_into))
            notify()

    try:
        stop_signal = make(layout, parts_of(layout, settings), report).run()
    except (AlreadyRunningError, PortTakenError) as error:
        print(f"moor: {error}", file=sys.stderr)
        return 1
    if stop_signal == signal.SIGINT:
        print(f"moor: {_farewell(layout, settings)}", file=sys.stderr)
    return 0


def print_line(text: str) -> None:
    """Print a line; discard all further ones after standard output fails.

    Its reader may have exited, or its disk may be full: neither may end the cluster.
    """
    try:
        print(text, flush=True)
    except OSError:
        # The rest of the buffer would fail again when the process ends.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays for the life of the process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
