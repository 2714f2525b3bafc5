"""Checks: what a pod's specification may not ask for, and what it must.

Each takes a pod's metadata and specification as JSON and returns a violation or None. Source: API
docs "Pod Security Standards"; `pod-security-admission/policy` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from moorage.apiserver.registry.kind import Obj

Check = Callable[[Obj, Obj], "Violation | None"]

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_DEFAULT_CAPABILITIES = frozenset((
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
))  # fmt: skip
_SAFE_VOLUMES = frozenset((
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
))  # fmt: skip
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_SAFE_PROFILES = ("RuntimeDefault", "Localhost")
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"


class Violation(msgspec.Struct, frozen=True):
    """What a check objects to: `reason` in short, `detail` with names."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})"


def host_namespaces(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    fields = ("hostNetwork", "hostPID", "hostIPC")
    used = [f"{field}=true" for field in fields if spec.get(field)]
    return Violation("host namespaces", ", ".join(used)) if used else None


def privileged(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    names = _names(spec, lambda context: context.get("privileged") is True)
    if not names:
        return None
    return Violation(
        "privileged", f"{_containers(names)} must not set securityContext.privileged=true"
    )


def baseline_capabilities(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    names, added = _adding(spec, _DEFAULT_CAPABILITIES)
    if not names:
        return None
    return Violation("non-default capabilities", _must_not_add(names, added))


def restricted_capabilities(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    keeping = _names(
        spec, lambda context: "ALL" not in (context.get("capabilities") or {}).get("drop", ())
    )
    names, added = _adding(spec, frozenset(("NET_BIND_SERVICE",)))
    details = []
    if keeping:
        details.append(f'{_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if names:
        details.append(_must_not_add(names, added))
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def _adding(spec: Obj, allowed: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return the containers that add other capabilities, and these."""
    names: list[str] = []
    others: set[str] = set()
    for name, context in _contexts(spec):
        added = set((context.get("capabilities") or {}).get("add", ())) - allowed
        if added:
            names.append(name)
            others |= added
    return names, sorted(others)


def _must_not_add(names: Sequence[str], added: Sequence[str]) -> str:
    return (
        f"{_containers(names)} must not include {_quoted(added)} in "
        "securityContext.capabilities.add"
    )


def host_path_volumes(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    names = [volume["name"] for volume in spec.get("volumes", ()) if "hostPath" in volume]
    return Violation("hostPath volumes", _counted("volume", names)) if names else None


def restricted_volumes(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    names: list[str] = []
    types: set[str] = set()
    for volume in spec.get("volumes", ()):
        sources = [key for key in volume if key != "name"]
        if not _SAFE_VOLUMES.intersection(sources):
            names.append(volume["name"])
            types.add(sources[0] if sources else "unknown")
    if not names:
        return None
    kinds = _counted("restricted volume type", sorted(types))
    return Violation(
        "restricted volume types", f"{_counted('volume', names)} {_use(names)} {kinds}"
    )


def host_ports(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    names: list[str] = []
    ports: set[str] = set()
    for container in _each(spec):
        own = {str(port["hostPort"]) for port in container.get("ports", ()) if port.get("hostPort")}
        if own:
            names.append(container["name"])
            ports |= own
    if not names:
        return None
    what = "hostPort" if len(ports) == 1 else "hostPorts"
    detail = f"{_containers(names)} {_use(names)} {what} {', '.join(sorted(ports))}"
    return Violation("hostPort", detail)


def host_probes(metadata: Obj, spec: Obj) -> Violation | None:
    """Probes and hooks that go to another host than the pod."""
    del metadata
    names: set[str] = set()
    hosts: set[str] = set()
    for container in _each(spec):
        lifecycle = container.get("lifecycle") or {}
        handlers = [
            *(
                container.get(probe)
                for probe in ("livenessProbe", "readinessProbe", "startupProbe")
            ),
            *(lifecycle.get(hook) for hook in ("postStart", "preStop")),
        ]
        own = {
            handler[action]["host"]
            for handler in handlers
            for action in ("httpGet", "tcpSocket")
            if handler and (handler.get(action) or {}).get("host")
        }
        if own:
            names.add(container["name"])
            hosts |= own
    if not names:
        return None
    shown = _counted("probe or lifecycle host", sorted(hosts))
    detail = f"{_containers(sorted(names))} {_use(names)} {shown}"
    return Violation("probe or lifecycle host", detail)


def app_armor(metadata: Obj, spec: Obj) -> Violation | None:
    setters, values = _with_profile(spec, "appArmorProfile")
    annotations = sorted(
        f'{key}="{value}"'
        for key, value in _annotations(metadata).items()
        if key.startswith(_APP_ARMOR)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    if annotations:
        values += annotations
        setters.append("annotation" if len(annotations) == 1 else "annotations")
    if not setters:
        return None
    reason = "forbidden AppArmor profile" if len(values) == 1 else "forbidden AppArmor profiles"
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(values)}"
    return Violation(reason, detail)


def seccomp_annotations(metadata: Obj, spec: Obj) -> Violation | None:
    """Seccomp profiles as annotations, before they became fields in 1.19."""
    annotations = _annotations(metadata)
    keys = [_SECCOMP_POD, *(_SECCOMP_CONTAINER + container["name"] for container in _each(spec))]
    wrong = sorted(
        {
            f'{key}="{annotations[key]}"'
            for key in keys
            if key in annotations
            and annotations[key] not in ("runtime/default", "docker/default")
            and not annotations[key].startswith("localhost/")
        }
    )
    if not wrong:
        return None
    what = "annotation" if len(wrong) == 1 else "annotations"
    return Violation("seccompProfile", f"forbidden {what} {', '.join(wrong)}")


def baseline_seccomp(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    setters, values = _with_profile(spec, "seccompProfile")
    return _wrong_seccomp(setters, values) if setters else None


def restricted_seccomp(metadata: Obj, spec: Obj) -> Violation | None:
    wrong = baseline_seccomp(metadata, spec)
    if wrong is not None or "seccompProfile" in _pod_context(spec):
        return wrong
    names = _names(spec, lambda context: "seccompProfile" not in context)
    if not names:
        return None
    return Violation(
        "seccompProfile",
        f"pod or {_containers(names)} must set securityContext.seccompProfile.type to "
        '"RuntimeDefault" or "Localhost"',
    )


def _wrong_seccomp(setters: Sequence[str], values: Sequence[str]) -> Violation:
    detail = f"must not set securityContext.seccompProfile.type to {_quoted(values)}"
    return Violation("seccompProfile", f"{' and '.join(setters)} {detail}")


def _with_profile(spec: Obj, field: str) -> tuple[list[str], list[str]]:
    """Return who sets another type of profile than the safe ones, and these types."""

    def is_wrong(context: Obj) -> bool:
        return field in context and context[field].get("type") not in _SAFE_PROFILES

    values = {
        context[field].get("type", "")
        for context in (_pod_context(spec), *(context for _, context in _contexts(spec)))
        if is_wrong(context)
    }
    return _setters(spec, is_wrong), sorted(values)


def proc_mount(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    mounts = {
        name: context["procMount"]
        for name, context in _contexts(spec)
        if context.get("procMount", "Default") != "Default"
    }
    if not mounts:
        return None
    detail = (
        f"{_containers(list(mounts))} must not set securityContext.procMount to "
        f"{_quoted(sorted(set(mounts.values())))}"
    )
    return Violation("procMount", detail)


def se_linux(*types: str) -> Check:
    """Return the check of SELinux options, with the types that are allowed."""
    allowed = ("", *types)

    def check(metadata: Obj, spec: Obj) -> Violation | None:
        del metadata

        def is_wrong(context: Obj) -> bool:
            options = context.get("seLinuxOptions") or {}
            wrong = options.get("type", "") not in allowed
            return wrong or bool(options.get("user") or options.get("role"))

        setters = _setters(spec, is_wrong)
        if not setters:
            return None
        every = [_pod_context(spec), *(context for _, context in _contexts(spec))]
        options = [context.get("seLinuxOptions") or {} for context in every]
        wrong = sorted({one.get("type", "") for one in options} - set(allowed))
        data = [_counted("type", wrong)] if wrong else []
        data += [f"{key} may not be set" for key in ("user", "role")
                 if any(one.get(key) for one in options)]  # fmt: skip
        return Violation(
            "seLinuxOptions",
            f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: "
            f"{'; '.join(data)}",
        )

    return check


def sysctls(*names: str) -> Check:
    """Return the check of sysctls, with those that are allowed."""

    def check(metadata: Obj, spec: Obj) -> Violation | None:
        del metadata
        stated = [sysctl["name"] for sysctl in _pod_context(spec).get("sysctls", ())]
        wrong = [name for name in stated if name not in names]
        return Violation("forbidden sysctls", ", ".join(wrong)) if wrong else None

    return check


def windows_host_process(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    setters = _setters(
        spec, lambda context: (context.get("windowsOptions") or {}).get("hostProcess") is True
    )
    if not setters:
        return None
    detail = "must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", f"{' and '.join(setters)} {detail}")


def privilege_escalation(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    names = _names(spec, lambda context: context.get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    detail = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def run_as_non_root(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    field, reason = "runAsNonRoot", "runAsNonRoot != true"
    setters = _setters(spec, lambda context: context.get(field) is False)
    if setters:
        return Violation(
            reason, f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false"
        )
    if _pod_context(spec).get(field):
        return None
    names = _names(spec, lambda context: field not in context)
    if not names:
        return None
    return Violation(
        reason, f"pod or {_containers(names)} must set securityContext.runAsNonRoot=true"
    )


def run_as_user(metadata: Obj, spec: Obj) -> Violation | None:
    del metadata
    setters = _setters(spec, lambda context: context.get("runAsUser") == 0)
    if not setters:
        return None
    return Violation("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0")


def unless_windows(check: Check) -> Check:
    """Return a check that pods for Windows pass."""
    return lambda metadata, spec: (
        None if (spec.get("os") or {}).get("name") == "windows" else check(metadata, spec)
    )


def unless_user_namespace(check: Check) -> Check:
    """Return a check that pods in a user namespace of their own pass. Source: KEP-127."""
    return lambda metadata, spec: None if spec.get("hostUsers") is False else check(metadata, spec)


def _each(spec: Obj) -> Iterator[Obj]:
    for field in _CONTAINERS:
        yield from spec.get(field) or ()


def _contexts(spec: Obj) -> Iterator[tuple[str, Obj]]:
    """Yield the name and the security context of each container."""
    for container in _each(spec):
        yield container["name"], container.get("securityContext") or {}


def _pod_context(spec: Obj) -> Obj:
    context: Obj = spec.get("securityContext") or {}
    return context


def _names(spec: Obj, is_wrong: Callable[[Obj], bool]) -> list[str]:
    return [name for name, context in _contexts(spec) if is_wrong(context)]


def _setters(spec: Obj, is_wrong: Callable[[Obj], bool]) -> list[str]:
    """Return who has a wrong security context, in words: the pod, its containers."""
    names = _names(spec, is_wrong)
    pod = ["pod"] if is_wrong(_pod_context(spec)) else []
    return [*pod, *([_containers(names)] if names else [])]


def _containers(names: Sequence[str]) -> str:
    return _counted("container", names)


def _counted(noun: str, names: Sequence[str]) -> str:
    return f"{noun if len(names) == 1 else f'{noun}s'} {_quoted(names)}"


def _use(names: Iterable[str]) -> str:
    return "uses" if len(list(names)) == 1 else "use"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _annotations(metadata: Obj) -> Mapping[str, Any]:
    annotations: Mapping[str, Any] = metadata.get("annotations") or {}
    return annotations
