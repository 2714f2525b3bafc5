"""Spec writer: assembles an OCI `config.json`, for a container and for an infra task.

Pure: values and lookups in, a JSON object out. Each part is decided by the module of its name. The
writer caches what is the same for every pod of a host. Source: OCI runtime-spec 1.0.2, which all
current runtimes accept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from moorage.engine.cgroups import container_cgroup
from moorage.engine.errors import InvalidError
from moorage.engine.oci.capabilities import CapabilitySets, container_capabilities
from moorage.engine.oci.cdi import NO_EDITS, ContainerEdits, Hook
from moorage.engine.oci.context import (
    ContainerRequest,
    Document,
    HandlerTraits,
    HostFacts,
    SandboxContext,
    SandboxRequest,
)
from moorage.engine.oci.devices import device_rules
from moorage.engine.oci.findings import Findings
from moorage.engine.oci.identity import MAX_ID
from moorage.engine.oci.mounts import container_mounts, sandbox_mounts
from moorage.engine.oci.namespaces import (
    container_namespaces,
    mapping_fields,
    sandbox_namespaces,
    user_namespace,
    verify_sandbox_namespaces,
)
from moorage.engine.oci.process import (
    DEFAULT_PATH,
    Labels,
    app_armor_profile,
    arguments,
    environment,
    rlimit_documents,
    selinux_labels,
    user_document,
    working_directory,
)
from moorage.engine.oci.propagation import rootfs_propagation
from moorage.engine.oci.resources import SANDBOX_OOM_SCORE, SANDBOX_SHARES, oom_score, resources_of
from moorage.engine.oci.seccomp import SeccompProfiles, choose_seccomp
from moorage.engine.oci.seccomp.profile import SecurityContext
from moorage.engine.oci.sysctls import sandbox_sysctls
from moorage.wire.cri import pb

# Debian's crun refuses 1.2 and later.
OCI_VERSION = "1.0.2"


class SpecWriter:
    """Writes specs for one host. Thread-safe."""

    def __init__(self, host: HostFacts) -> None:
        self._host = host
        self._profiles = SeccompProfiles(host.machine, host.kernel)

    def container(self, request: ContainerRequest, findings: Findings) -> Document:
        """Return the `config.json` of a container. Parts of it are shared: do not modify it.

        Hot path: within 0.5 ms (bench/hotpaths.py). Raises InvalidError naming the field,
        PreconditionError when the sandbox is gone.
        """
        config, sandbox, handler = request.config, request.sandbox, request.handler
        security = config.linux.security_context
        capabilities = container_capabilities(
            security, self._host, is_virtualised=handler.is_virtualised
        )
        pods = sandbox.config.linux.security_context
        labels = selinux_labels(security, pods, sandbox.id, self._host)
        linux = self._linux(sandbox, handler, request.id, labels)
        linux["namespaces"] = container_namespaces(request, self._host)
        resources = resources_of(config.linux.resources, self._host)
        resources["devices"] = device_rules(
            findings.devices,
            is_all_allowed=security.privileged and handler.has_host_devices_when_privileged,
        )
        linux["resources"] = resources
        linux["devices"] = [device.node() for device in findings.devices]
        if not security.privileged:
            linux["maskedPaths"] = list(security.masked_paths)
            linux["readonlyPaths"] = list(security.readonly_paths)
        if propagation := rootfs_propagation(mount.propagation for mount in config.mounts):
            linux["rootfsPropagation"] = propagation
        self._filter(linux, security, handler, capabilities, findings)
        process = self._process(security, capabilities, labels, findings)
        process |= {
            "terminal": config.tty,
            "user": user_document(request.identity),
            "args": arguments(config, request.image),
            "env": environment(config, request.image, sandbox.hostname),
            "cwd": working_directory(config, request.image),
            "noNewPrivileges": security.no_new_privs,
            "oomScoreAdj": oom_score(config.linux.resources.oom_score_adj, self._host),
        }
        if request.rlimits:
            process["rlimits"] = rlimit_documents(request.rlimits)
        spec = {
            "ociVersion": OCI_VERSION,
            "process": process,
            "root": {"path": str(request.rootfs), "readonly": security.readonly_rootfs},
            "mounts": container_mounts(request, self._host, findings),
            "annotations": container_annotations(request),
            "linux": linux,
        }
        return apply_edits(spec, findings.edits)

    def sandbox(self, request: SandboxRequest, findings: Findings) -> Document:
        """Return the `config.json` of an infra task.

        It has no capabilities and the lowest CPU share; a virtualised runtime's sandbox runs the
        containers, so it has no share of its own. Raises InvalidError.
        """
        sandbox, handler = request.sandbox, request.handler
        linux_config = sandbox.config.linux
        security = linux_config.security_context
        verify_sandbox_namespaces(sandbox.options, handler)
        nothing = CapabilitySets(frozenset())
        labels = selinux_labels(security, security, sandbox.id, self._host)
        linux = self._linux(sandbox, handler, sandbox.id, labels)
        linux["namespaces"] = sandbox_namespaces(sandbox, self._host)
        linux["resources"] = {
            "devices": device_rules((), is_all_allowed=False),
            **({} if handler.is_virtualised else {"cpu": {"shares": SANDBOX_SHARES}}),
        }
        linux["sysctl"] = {sysctl.key: sysctl.value for sysctl in sandbox_sysctls(sandbox.config)}
        self._filter(linux, security, handler, nothing, findings)
        process = self._process(security, nothing, labels, findings)
        process |= {
            "terminal": False,
            "user": _sandbox_user(security),
            "args": list(request.argv),
            "env": [
                f"{name}={value}"
                for name, value in ({"PATH": DEFAULT_PATH} | dict(request.env)).items()
            ],
            "cwd": "/",
            "noNewPrivileges": True,
            "oomScoreAdj": oom_score(SANDBOX_OOM_SCORE, self._host),
        }
        spec: Document = {
            "ociVersion": OCI_VERSION,
            "process": process,
            "root": {"path": str(request.rootfs), "readonly": True},
            "mounts": sandbox_mounts(request),
            "annotations": sandbox_annotations(request),
            "linux": linux,
        }
        if sandbox.hostname and not sandbox.is_on_host_network:
            spec["hostname"] = sandbox.hostname
        return spec

    def _linux(
        self, sandbox: SandboxContext, handler: HandlerTraits, task_id: str, labels: Labels
    ) -> Document:
        place = container_cgroup(handler.cgroup_driver, sandbox.config.linux.cgroup_parent, task_id)
        fields: Document = {"cgroupsPath": place.oci}
        fields.update(mapping_fields(user_namespace(sandbox.options)))
        if labels.mount:
            fields["mountLabel"] = labels.mount
        return fields

    def _process(
        self,
        security: SecurityContext,
        capabilities: CapabilitySets,
        labels: Labels,
        findings: Findings,
    ) -> Document:
        process: Document = {"capabilities": capabilities.document()}
        if profile := app_armor_profile(security, self._host, findings.app_armor):
            process["apparmorProfile"] = profile
        if labels.process:
            process["selinuxLabel"] = labels.process
        return process

    def _filter(
        self,
        linux: Document,
        security: SecurityContext,
        handler: HandlerTraits,
        capabilities: CapabilitySets,
        findings: Findings,
    ) -> None:
        """Set the seccomp profile, if there is one."""
        chosen = choose_seccomp(
            security, handler.default_seccomp, has_seccomp=self._host.has_seccomp
        )
        if chosen.is_built_in:
            linux["seccomp"] = self._profiles.built_in(capabilities.held)
        elif chosen.path:
            if findings.seccomp is None:
                # Without the profile the container would silently run unconfined.
                raise ValueError(f"seccomp profile {chosen.path} has not been looked up")
            linux["seccomp"] = findings.seccomp


def _sandbox_user(security: pb.LinuxSandboxSecurityContext) -> dict[str, Any]:
    """Return the infra process's user, by number only: it has no passwd file."""
    if security.HasField("run_as_group") and not security.HasField("run_as_user"):
        raise InvalidError("run_as_group of the sandbox is specified without user; set run_as_user")
    uid, gid = security.run_as_user.value, security.run_as_group.value
    groups = list(dict.fromkeys((gid, *security.supplemental_groups)))
    for id_ in (uid, *groups):
        if not 0 <= id_ <= MAX_ID:
            raise InvalidError(
                f"user or group {id_} of the sandbox is out of range; it must be 0 to {MAX_ID}"
            )
    return {"uid": uid, "gid": gid, "additionalGids": groups}


# CDI edits of a spec. Pure.
#
# Source: CNCF Container Device Interface 1.0, `containerEdits`; OCI runtime-spec, "POSIX-platform
# Hooks".

_HOOKS = frozenset(
    {
        "prestart",
        "createRuntime",
        "createContainer",
        "startContainer",
        "poststart",
        "poststop",
    }
)
_MOUNT_OPTIONS = ("ro", "nosuid", "nodev", "bind")


def apply_edits(spec: Document, edits: ContainerEdits) -> Document:
    """Return the spec with a container's edits: environment, mounts, groups and hooks.

    The device nodes are in the spec already. Raises InvalidError for an unknown hook.
    """
    if edits == NO_EDITS:
        return spec
    process = dict(spec["process"])
    names = {variable.partition("=")[0] for variable in edits.env}
    process["env"] = [
        *(variable for variable in process["env"] if variable.partition("=")[0] not in names),
        *edits.env,
    ]
    groups = (*process["user"]["additionalGids"], *edits.additional_gids)
    process["user"] = process["user"] | {"additionalGids": list(dict.fromkeys(groups))}
    replaced = {mount.container_path for mount in edits.mounts}
    added = [
        {
            "destination": mount.container_path,
            "type": mount.type or "bind",
            "source": mount.host_path,
            "options": list(mount.options or _MOUNT_OPTIONS),
        }
        for mount in edits.mounts
    ]
    mounts = [mount for mount in spec["mounts"] if mount["destination"] not in replaced]
    edited = spec | {"process": process, "mounts": mounts + added}
    if edits.hooks:
        edited["hooks"] = _hooks(edits.hooks)
    if edits.intel_rdt:
        edited["linux"] = spec["linux"] | {"intelRdt": edits.intel_rdt}
    return edited


def _hooks(hooks: tuple[Hook, ...]) -> Document:
    hooks_document: Document = {}
    for hook in hooks:
        if hook.hook_name not in _HOOKS:
            raise InvalidError(
                f"a CDI device has the hook {hook.hook_name!r}; it must be one of "
                f"{', '.join(sorted(_HOOKS))}"
            )
        entry: Document = {"path": hook.path}
        if hook.args:
            entry["args"] = list(hook.args)
        if hook.env:
            entry["env"] = list(hook.env)
        if hook.timeout is not None:
            entry["timeout"] = hook.timeout
        hooks_document.setdefault(hook.hook_name, []).append(entry)
    return hooks_document


# Spec annotations, from which virtualised runtimes learn whether a task is the sandbox or joins
# one.
#
# Both containerd's and CRI-O's keys are written, since each runtime knows at least one of them.
# Source: containerd `annotations`, CRI-O `annotations`; gVisor and Kata read either.

_CRI = "io.kubernetes.cri."
_CRI_O = "io.kubernetes.cri-o."
_SIZES = (("cpu-period", "cpu_period"), ("cpu-quota", "cpu_quota"), ("cpu-shares", "cpu_shares"),
          ("memory", "memory_limit_in_bytes"))  # fmt: skip


def container_annotations(request: ContainerRequest) -> dict[str, str]:
    """Return the annotations of a container's spec."""
    config, sandbox, handler = request.config, request.sandbox, request.handler
    passed = _passed(sandbox.config.annotations, handler.annotation_patterns)
    passed |= _passed(config.annotations, handler.container_annotation_patterns)
    image = config.image.user_specified_image or config.image.image
    return passed | {
        **_of_pod("container", sandbox.id, sandbox.config.metadata),
        f"{_CRI}container-name": config.metadata.name,
        f"{_CRI}image-name": image,
    }


def sandbox_annotations(request: SandboxRequest) -> dict[str, str]:
    """Return the annotations of a sandbox's spec, with the pod's resources if the client
    set them.
    """
    sandbox = request.sandbox
    config = sandbox.config
    return (
        _passed(config.annotations, request.handler.annotation_patterns)
        | _of_pod("sandbox", sandbox.id, config.metadata)
        | {f"{_CRI}sandbox-log-directory": config.log_directory}
        | _size(config.linux.resources)
    )


def _of_pod(kind: str, sandbox_id: str, metadata: pb.PodSandboxMetadata) -> dict[str, str]:
    return {
        f"{_CRI}container-type": kind,
        f"{_CRI}sandbox-id": sandbox_id,
        f"{_CRI}sandbox-name": metadata.name,
        f"{_CRI}sandbox-namespace": metadata.namespace,
        f"{_CRI}sandbox-uid": metadata.uid,
        f"{_CRI_O}ContainerType": kind,
        f"{_CRI_O}SandboxID": sandbox_id,
    }


def _size(resources: pb.LinuxContainerResources) -> dict[str, str]:
    return {
        f"{_CRI}sandbox-{name}": str(value)
        for name, field in _SIZES
        if (value := getattr(resources, field))
    }


def _passed(annotations: Mapping[str, str], patterns: Iterable[str]) -> dict[str, str]:
    globs = tuple(patterns)
    if not globs:
        return {}
    return {
        key: value
        for key, value in annotations.items()
        if any(fnmatchcase(key, glob) for glob in globs)
    }
