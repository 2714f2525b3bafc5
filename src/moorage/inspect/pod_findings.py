"""Findings about a pod: exits, memory, slow starts, refused probes, choice of the class.

Pure. Each finding has what happened in one line, and the remedy; `moor explain` shows those of a
pod, and groups those of a workload. Source: core/v1 ContainerStatus, the kubelet's prober.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from moorage.api.containers import Container, Probe
from moorage.api.events import Event
from moorage.api.pods import ContainerStateTerminated, ContainerStatus, Pod
from moorage.api.text import counted
from moorage.runtimeclass.start_phases import (
    CONTAINERS,
    CREATE,
    IMAGE,
    INIT,
    READY,
    SANDBOX,
    SCHEDULE,
    START,
    VOLUMES,
    duration_words,
    length_words,
    phase_words,
    phases_of,
    second_words,
)

CLASS_CHOICE = "runtime.moorage.dev/class-choice"
CLASS_CHOICE_REASON = "runtime.moorage.dev/class-choice-reason"
"""Annotations that admission writes on a pod whose class it chose."""

SLOW_START_MS = 5000.0
"""A start that takes longer is a finding."""

_LONGEST_TEXT = 300
_OOM_KILLED = "OOMKilled"
_CODES = {
    126: "the command is not executable",
    127: "the command was not found",
}
_REMEDIES_BY_SIGNAL = {
    "SIGSYS": "the runtime or its seccomp profile refuses a system call of the program",
    "SIGILL": "the program needs instructions that the processor, or the sandbox, lacks",
}
_REMEDIES_BY_PHASE = {
    SCHEDULE: "no node had room or the handler at first: see the events",
    SANDBOX: "the handler takes long to make a sandbox: compare with `moor bench classes`",
    VOLUMES: "a volume takes long: its claim, config map or secret may have come late",
    IMAGE: "load the image beforehand with `moor image load`, or set imagePullPolicy: IfNotPresent",
    CREATE: "the container is created late: see its reason under containers",
    START: "the handler takes long to start the program: compare with `moor bench classes`",
    CONTAINERS: "see the events: the image was pulled late, or the program was started late",
    INIT: "the init containers take long: see their logs",
    READY: "the program becomes ready late: see its log, and initialDelaySeconds and periodSeconds "
    "of its readiness probe",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that goes wrong in a pod: what, and the remedy."""

    sentence: str
    remedy: str = ""


def findings_of(pod: Pod, events: Iterable[Event]) -> tuple[Finding, ...]:
    """Return everything found about a pod. `events` are those of the pod."""
    return (*_exits(pod), *_refused_probes(pod, events), *_slow_start(pod))


def start_words(pod: Pod) -> str:
    """Return the phases of the pod's start in one line; empty if nothing is known of them."""
    phases = phases_of(pod)
    return phase_words(phases) if phases is not None else ""


def choice_words(annotations: dict[str, str]) -> str:
    """Return how the class was chosen, from the pod's or template's annotations; empty if it was
    not chosen.

    The annotations can be anyone's: they are shown as text of one line, and cut.
    """
    choice = annotations.get(CLASS_CHOICE, "")
    if not choice:
        return ""
    reason = annotations.get(CLASS_CHOICE_REASON, "")
    return _one_line(f"{choice} was chosen at admission" + (f": {reason}" if reason else ""))


def exit_words(ended: ContainerStateTerminated) -> str:
    """Return how a container ended: `exit code 137 (SIGKILL), OOMKilled`."""
    words = f"exit code {ended.exit_code}"
    name = _signal_name(ended)
    if name:
        words += f" ({name})"
    if ended.reason not in ("", "Error", "Completed"):
        words += f", {ended.reason}"
    return words


def last_end(status: ContainerStatus) -> ContainerStateTerminated | None:
    """Return the latest end of a container that has failed; None if it has not."""
    for ended in (status.state.terminated, status.last_state.terminated):
        if ended is not None and (ended.exit_code != 0 or ended.reason == _OOM_KILLED):
            return ended
    return None


def _exits(pod: Pod) -> Iterator[Finding]:
    by_name = {
        container.name: container for container in (*pod.spec.init_containers, *pod.spec.containers)
    }
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = last_end(status)
        if ended is not None:
            times = f", {counted(status.restart_count, 'restart')}" if status.restart_count else ""
            sentence = f"container {status.name} ended with {exit_words(ended)}{times}"
            yield Finding(sentence, _exit_remedy(pod, by_name.get(status.name), status, ended))


def _exit_remedy(
    pod: Pod, container: Container | None, status: ContainerStatus, ended: ContainerStateTerminated
) -> str:
    if ended.reason == _OOM_KILLED:
        limit = container.resources.limits.get("memory", "") if container is not None else ""
        has = f" ({limit})" if limit else ""
        return f"raise resources.limits.memory{has} of container {status.name}, or use less memory"
    if ended.exit_code in _CODES:
        return f"{_CODES[ended.exit_code]}: correct command or image of container {status.name}"
    if ended.reason == "StartError":
        return f"correct the command of container {status.name}, or its limits"
    why = _REMEDIES_BY_SIGNAL.get(_signal_name(ended), "")
    if why:
        return f"{why}: run the command under other classes with `moor run --class A,B`"
    flag = " --previous" if status.state.running is not None or status.restart_count else ""
    meta = pod.metadata
    return f"see what it wrote: kubectl logs{flag} -n {meta.namespace} {meta.name} -c {status.name}"


def _signal_name(ended: ContainerStateTerminated) -> str:
    number = ended.signal or (ended.exit_code - 128 if ended.exit_code > 128 else 0)
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _refused_probes(pod: Pod, events: Iterable[Event]) -> Iterator[Finding]:
    """Yield the failing probes of containers that do not pass them now."""
    unready = {
        status.name
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if not status.ready or status.restart_count
    }
    latest: dict[str, Event] = {}
    for event in events:
        if event.reason == "Unhealthy":
            path = event.involved_object.field_path
            latest[path.partition("{")[2].rstrip("}")] = event
    for name, event in latest.items():
        if name and name not in unready:
            continue
        text = _one_line(event.message)
        about = f"container {name}: " if name else ""
        if "connection refused" in text:
            yield Finding(f"{about}{text}", _refusal_remedy(pod, name))
        else:
            yield Finding(f"{about}{text}", "see the program's log, and the probe's definition")


def _refusal_remedy(pod: Pod, name: str) -> str:
    ports = sorted({
        str(port)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        if not name or container.name == name
        for probe in (container.liveness_probe, container.readiness_probe, container.startup_probe)
        for port in _ports(probe)
    })  # fmt: skip
    where = f"port {', '.join(ports)}" if ports else "the probed port"
    return (
        f"nothing listens on {where}: let the program listen on all addresses (not 127.0.0.1), "
        "correct the probe's port, or give the program time with a startupProbe"
    )


def _ports(probe: Probe | None) -> Iterator[int | str]:
    if probe is None:
        return
    for action in (probe.http_get, probe.tcp_socket, probe.grpc):
        if action is not None:
            yield action.port


def _slow_start(pod: Pod) -> Iterator[Finding]:
    phases = phases_of(pod)
    if phases is None or max(phases.latency_ms, phases.ms(SCHEDULE) or 0.0) < SLOW_START_MS:
        return
    if phases.is_measured and phases.latency_ms >= SLOW_START_MS:
        longest, total = (
            phases.longest_of_latency,
            f"{duration_words(phases.latency_ms)} on the node",
        )
    else:
        longest, total = phases.longest, second_words(phases.total_ms)
    if longest is None:
        return
    yield Finding(
        f"slow start: {total}, of which {longest.name} {length_words(longest)}",
        _REMEDIES_BY_PHASE.get(longest.name, ""),
    )


def _one_line(text: str) -> str:
    joined = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return joined if len(joined) <= _LONGEST_TEXT else joined[: _LONGEST_TEXT - 1] + "…"
