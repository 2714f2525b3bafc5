"""Container configuration for CRI CreateContainer.

Combines the results of this package's other modules. Source: CRI ContainerConfig, kubelet
`generateContainerConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from moorage.api import quantity
from moorage.api.pods import Pod
from moorage.api.qos import BEST_EFFORT, GUARANTEED
from moorage.api.quantity import Quantity
from moorage.api.resource_names import HUGEPAGES_PREFIX, is_hugepages
from moorage.node.config.environment import Environment, expand_all
from moorage.node.config.errors import ConfigError
from moorage.node.config.namespaces import namespaces
from moorage.node.config.security import ImageUser, SecurityDefaults, container_security
from moorage.node.paths import container_log
from moorage.node.pod_facts.containers import sidecars
from moorage.node.pod_facts.labels import AnyContainer, container_annotations, container_labels
from moorage.node.pod_facts.qos import pod_qos_class
from moorage.runtimeclass import pod_limits
from moorage.runtimeclass.overhead import pod_requests_without_overhead
from moorage.wire.cri import pb

# CPU shares, quotas, memory limits and OOM scores, in the kernel's units.
#
# Pure. Used for containers, for the pod's resources in the sandbox configuration, and for the pod's
# cgroup. Source: kubelet `cm/helpers_linux.go`, `qos/policy.go`; CFS bandwidth control.

MIN_SHARES = 2
MAX_SHARES = 262144
PERIOD_US = 100_000
MIN_QUOTA_US = 1000

_SHARES_PER_CPU = 1024
_GUARANTEED_SCORE = -997
_BEST_EFFORT_SCORE = 1000
_FIXED_SCORES = {GUARANTEED: _GUARANTEED_SCORE, BEST_EFFORT: _BEST_EFFORT_SCORE}
_NODE_CRITICAL_PRIORITY = 2_000_001_000
_ZERO = Quantity(0)


def shares(milli_cpu: int) -> int:
    """Return cpu.shares for an amount of CPU in millicores."""
    return max(MIN_SHARES, min(MAX_SHARES, milli_cpu * _SHARES_PER_CPU // 1000))


def quota_us(milli_cpu: int) -> int:
    """Return the CFS quota in microseconds per period; 0 for no limit."""
    if milli_cpu == 0:
        return 0
    return max(MIN_QUOTA_US, milli_cpu * PERIOD_US // 1000)


def linux_resources(
    cpu_request: Quantity | None, cpu_limit: Quantity, memory_limit: Quantity
) -> pb.LinuxContainerResources:
    """Return the CRI resources. Without a CPU request the limit is used for the shares."""
    weight = cpu_limit if cpu_request is None else cpu_request
    return pb.LinuxContainerResources(
        cpu_period=PERIOD_US,
        cpu_quota=quota_us(cpu_limit.milli),
        cpu_shares=shares(weight.milli),
        memory_limit_in_bytes=memory_limit.value,
    )


def overhead_resources(pod: Pod) -> pb.LinuxContainerResources:
    """Return the sandbox's overhead, with requests equal to limits; empty without overhead."""
    if not pod.spec.overhead:
        return pb.LinuxContainerResources()
    cpu = _amount(pod.spec.overhead, "cpu")
    return linux_resources(cpu, cpu, _amount(pod.spec.overhead, "memory"))


def sandbox_resources(pod: Pod) -> pb.LinuxContainerResources:
    """Return the sum of the containers' resources, without overhead."""
    requests = pod_requests_without_overhead(pod.spec)
    limits = pod_limits(msgspec.structs.replace(pod.spec, overhead={}))
    return linux_resources(
        requests.get("cpu"), limits.get("cpu", _ZERO), limits.get("memory", _ZERO)
    )


def container_resources(
    pod: Pod, container: AnyContainer, *, memory_capacity_bytes: int, oom_score_floor: int
) -> pb.LinuxContainerResources:
    """Return a container's resources; pod-level limits apply where it has none."""
    own = container.resources
    request = quantity.parse(own.requests["cpu"]) if "cpu" in own.requests else None
    resources = linux_resources(
        request, _limit(pod, container, "cpu"), _limit(pod, container, "memory")
    )
    score = oom_score_adj(pod, container, memory_capacity_bytes)
    resources.oom_score_adj = max(score, oom_score_floor)
    for name, text in sorted(own.limits.items()):
        if is_hugepages(name):
            page = quantity.parse(name.removeprefix(HUGEPAGES_PREFIX))
            resources.hugepage_limits.add(
                page_size=page_name(page.value), limit=quantity.parse(text).value
            )
    return resources


def page_name(size_bytes: int) -> str:
    """Return a page size in the spelling of the kernel's cgroup files: `2MB`, `1GB`."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def _limit(pod: Pod, container: AnyContainer, name: str) -> Quantity:
    own = _amount(container.resources.limits, name)
    if own or pod.spec.resources is None:
        return own
    return _amount(pod.spec.resources.limits, name)


def oom_score_adj(pod: Pod, container: AnyContainer, memory_capacity_bytes: int) -> int:
    """Return oom_score_adj of a container: the kernel kills higher scores first."""
    if (pod.spec.priority or 0) >= _NODE_CRITICAL_PRIORITY:
        return _GUARANTEED_SCORE
    fixed = _FIXED_SCORES.get(pod_qos_class(pod))
    if fixed is not None:
        return fixed
    spare = _spare_memory_share(pod)
    score = _share_score(container, spare, memory_capacity_bytes)
    if container in sidecars(pod.spec):
        least = min(pod.spec.containers, key=_memory_request)
        score = min(score, _share_score(least, spare, memory_capacity_bytes))
    return max(1000 + _GUARANTEED_SCORE, min(score, _BEST_EFFORT_SCORE - 1))


def _share_score(container: AnyContainer, spare_bytes: int, capacity_bytes: int) -> int:
    wanted = _memory_request(container) + spare_bytes
    return 1000 - 1000 * wanted // max(capacity_bytes, 1)


def _spare_memory_share(pod: Pod) -> int:
    """Return each container's equal share of the pod's unassigned memory request.

    That is the part of the pod-level request that exceeds the containers' requests.
    """
    if pod.spec.resources is None or not pod.spec.resources.requests:
        return 0
    own = msgspec.structs.replace(pod.spec, resources=None)
    together = pod_requests_without_overhead(own).get("memory", _ZERO).value
    spare = _amount(pod.spec.resources.requests, "memory").value - together
    count = len(pod.spec.containers) + len(pod.spec.init_containers)
    return max(spare, 0) // max(count, 1)


def _memory_request(container: AnyContainer) -> int:
    return _amount(container.resources.requests, "memory").value


def _amount(resources: Mapping[str, str], name: str) -> Quantity:
    return quantity.parse(resources.get(name, "0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSetting:
    """Inputs of a container configuration besides its spec.

    `target` is the ID of the target container of an ephemeral container, whose processes it sees.
    """

    restart_count: int
    image_ref: str
    image_user: ImageUser
    environment: Environment
    mounts: Sequence[pb.Mount]
    security: SecurityDefaults
    memory_capacity_bytes: int
    oom_score_floor: int
    user_namespace: pb.UserNamespace | None = None
    target: str | None = None


def container_config(
    pod: Pod, container: AnyContainer, setting: ContainerSetting
) -> pb.ContainerConfig:
    """Return the CRI ContainerConfig. Raises ConfigError."""
    variables = setting.environment
    config = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=container.name, attempt=setting.restart_count),
        image=pb.ImageSpec(image=setting.image_ref, user_specified_image=container.image),
        command=expand_all(container.command, variables),
        args=expand_all(container.args, variables),
        working_dir=container.working_dir,
        envs=[
            pb.KeyValue(key=name, value=value.encode(errors="surrogateescape"))
            for name, value in variables.items()
        ],
        mounts=setting.mounts,
        labels=container_labels(pod, container),
        annotations=container_annotations(pod, container, setting.restart_count),
        log_path=container_log(container.name, setting.restart_count),
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        linux=_linux(pod, container, setting),
    )
    stop_signal = container.lifecycle.stop_signal if container.lifecycle is not None else None
    if stop_signal:
        config.stop_signal = _signal(stop_signal)
    if setting.user_namespace is not None:
        for mount in config.mounts:
            mount.uidMappings.extend(setting.user_namespace.uids)
            mount.gidMappings.extend(setting.user_namespace.gids)
    return config


def _linux(pod: Pod, container: AnyContainer, setting: ContainerSetting) -> pb.LinuxContainerConfig:
    security = container_security(pod, container, setting.image_user, setting.security)
    security.namespace_options.CopyFrom(
        namespaces(pod.spec, setting.user_namespace, setting.target)
    )
    return pb.LinuxContainerConfig(
        resources=container_resources(
            pod,
            container,
            memory_capacity_bytes=setting.memory_capacity_bytes,
            oom_score_floor=setting.oom_score_floor,
        ),
        security_context=security,
    )


def _signal(name: str) -> pb.Signal.ValueType:
    try:
        return pb.Signal.Value(name)
    except ValueError:
        raise ConfigError(f'unknown stop signal "{name}"') from None
