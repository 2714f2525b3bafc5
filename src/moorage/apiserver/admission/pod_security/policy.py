"""Policies: the levels and versions that the labels of a namespace set.

Source: `pod-security-admission/api` of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.admission.options import (
    ConfigurationError,
    Strict,
    converted,
    of_another_kind,
)
from moorage.apiserver.admission.pod_security import checks
from moorage.apiserver.admission.pod_security.checks import Check, Violation, unless_user_namespace
from moorage.apiserver.registry.kind import Obj

PREFIX = "pod-security.kubernetes.io/"
PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS = (PRIVILEGED, BASELINE, RESTRICTED)
"""From the least to the most strict."""

LATEST = 10**6
"""The version `latest`, beyond that of any check."""

_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,5})")
MODES = ("enforce", "audit", "warn")


class Standard(msgspec.Struct, frozen=True):
    """A level in a minor version of Kubernetes 1."""

    level: str = PRIVILEGED
    version: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.version == LATEST else f'v1.{self.version}'}"

    @property
    def strictness(self) -> int:
        return LEVELS.index(self.level)

    @property
    def permits_all(self) -> bool:
        return self.level == PRIVILEGED


class Policy(msgspec.Struct, frozen=True):
    """What a namespace enforces, audits and warns about. `errors` are those of its labels."""

    enforce: Standard = Standard()
    warn: Standard = Standard()
    errors: tuple[FieldError, ...] = msgspec.field(default=())
    audit: Standard = Standard()

    @property
    def permits_all(self) -> bool:
        standards = (self.enforce, self.warn, self.audit)
        return not self.errors and all(one.permits_all for one in standards)


NO_POLICY = Policy()


def policy_of(labels: Mapping[str, str], defaults: Policy = NO_POLICY) -> Policy:
    """Return the policy of a namespace's labels, `defaults` where they set nothing.

    A level that is none is enforced as `restricted` and otherwise ignored. Without one of its own,
    warnings are about what is enforced.
    """
    if not any(label.startswith(PREFIX) for label in labels):
        return defaults
    errors: list[FieldError] = []
    standards = {mode: _standard(labels, mode, getattr(defaults, mode), errors) for mode in MODES}
    enforce, warn = standards["enforce"], standards["warn"]
    enforced = labels.get(f"{PREFIX}enforce")
    if (
        f"{PREFIX}warn" not in labels
        and enforced in LEVELS
        and enforce.strictness > warn.strictness
    ):
        has_version = f"{PREFIX}warn-version" in labels
        warn = replace(enforce, version=warn.version if has_version else enforce.version)
    return Policy(enforce, warn, tuple(errors), standards["audit"])


def parse_version(text: str) -> int | None:
    """Return the minor version of `v1.x`, LATEST for `latest`, None for what is no version."""
    if text == "latest":
        return LATEST
    match = _VERSION.fullmatch(text)
    return None if match is None else int(match[1])


def _standard(
    labels: Mapping[str, str], mode: str, standard: Standard, errors: list[FieldError]
) -> Standard:
    level, version = labels.get(f"{PREFIX}{mode}"), labels.get(f"{PREFIX}{mode}-version")
    if level in LEVELS:
        standard = replace(standard, level=level)
    elif level is not None:
        errors.append(_invalid(mode, level, f"must be one of {', '.join(LEVELS)}"))
        standard = replace(standard, level=RESTRICTED if mode == "enforce" else PRIVILEGED)
    if version is None:
        return standard
    parsed = parse_version(version)
    if parsed is None:
        errors.append(_invalid(f"{mode}-version", version, 'must be "latest" or "v1.x"'))
    return replace(standard, version=LATEST if parsed is None else parsed)


def _invalid(label: str, value: str, detail: str) -> FieldError:
    return FieldError.invalid(f"metadata.labels[{PREFIX}{label}]", value, detail)


# Configuration of Pod Security: the policy of namespaces without labels, and exemptions.
#
# Source: `pod-security.admission.config.k8s.io/v1`; API docs "Enforce Pod Security Standards by
# Configuring the Built-in Admission Controller".

API_VERSION = "pod-security.admission.config.k8s.io/v1"
KIND = "PodSecurityConfiguration"


@dataclass(frozen=True, slots=True)
class Exemptions:
    """Whose pods are not checked: by the user that asks, by namespace, by RuntimeClass."""

    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


class PodLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the check of a namespace's pods; other requests run after `pods_a_turn`."""

    most_pods: int = 3000
    longest_s: float = 1.0
    pods_a_turn: int = 50


@dataclass(frozen=True, slots=True)
class Configuration:
    """`defaults` is the policy where a namespace's labels set none."""

    defaults: Policy = NO_POLICY
    exemptions: Exemptions = field(default_factory=Exemptions)


class _Defaults(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    enforce: str | None = None
    enforce_version: str | None = None
    audit: str | None = None
    audit_version: str | None = None
    warn: str | None = None
    warn_version: str | None = None


class _Exemptions(Strict, frozen=True, kw_only=True):
    usernames: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    runtime_classes: tuple[str, ...] | None = None


class _Inner(Strict, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    defaults: _Defaults | None = None
    exemptions: _Exemptions | None = None


def parse_configuration(value: Any) -> Configuration:
    """Parse a document. Raises ConfigurationError, which names every fault."""
    source = converted(value, _Inner)
    if (source.api_version, source.kind) != (API_VERSION, KIND):
        raise of_another_kind(source.api_version, source.kind, API_VERSION, KIND)
    defaults, exemptions = source.defaults or _Defaults(), source.exemptions or _Exemptions()
    lists = {
        "namespaces": (exemptions.namespaces or (), names.dns_label_errors),
        "runtimeClasses": (exemptions.runtime_classes or (), names.dns_subdomain_errors),
        "usernames": (exemptions.usernames or (), _username_errors),
    }
    faults = [*_default_faults(defaults)]
    for name, (values, check) in lists.items():
        faults += _list_faults(f"exemptions.{name}", values, check)
    if faults:
        raise ConfigurationError("; ".join(faults))
    policy = Policy(
        enforce=_default_standard(defaults.enforce, defaults.enforce_version),
        audit=_default_standard(defaults.audit, defaults.audit_version),
        warn=_default_standard(defaults.warn, defaults.warn_version),
    )
    usernames, namespaces, classes = (
        frozenset(lists[name][0]) for name in ("usernames", "namespaces", "runtimeClasses")
    )
    return Configuration(policy, Exemptions(usernames, namespaces, classes))


def _default_standard(level: str | None, version: str | None) -> Standard:
    return Standard(level or LEVELS[0], parse_version(version or "latest") or LATEST)


def _default_faults(defaults: _Defaults) -> Iterator[str]:
    for mode in ("enforce", "warn", "audit"):
        level, version = getattr(defaults, mode), getattr(defaults, f"{mode}_version")
        if level and level not in LEVELS:
            yield f'defaults.{mode}: Invalid value: "{level}": must be one of {", ".join(LEVELS)}'
        if version and parse_version(version) is None:
            yield (
                f'defaults.{mode}-version: Invalid value: "{version}": must be "latest" or "v1.x"'
            )


def _list_faults(
    path: str, values: Sequence[str], check: Callable[[str], list[str]]
) -> Iterator[str]:
    for index, value in enumerate(values):
        if errors := check(value):
            yield f'{path}[{index}]: Invalid value: "{value}": {", ".join(errors)}'
        elif value in values[:index]:
            yield f'{path}[{index}]: Duplicate value: "{value}"'


def _username_errors(value: str) -> list[str]:
    return [] if value else ["username must not be empty"]


# Standards: which checks each level has in each minor version.
#
# Source: API docs "Pod Security Standards"; `pod-security-admission/policy` of Kubernetes 1.36.

_SYSCTLS = (
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
)  # fmt: skip
_SYSCTLS_27 = (*_SYSCTLS, "net.ipv4.ip_local_reserved_ports")
_SYSCTLS_29 = (
    *_SYSCTLS_27, "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
)  # fmt: skip
_SYSCTLS_32 = (*_SYSCTLS_29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
_SYSCTLS_37 = (
    *_SYSCTLS_32, "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"
)  # fmt: skip
_SE_LINUX = ("container_t", "container_init_t", "container_kvm_t")


class _Rule(msgspec.Struct, frozen=True):
    """A check of a level, by the minor version from which it has its form.

    `replaces` is the rule of the baseline that it stands for in the restricted level.
    """

    level: str
    forms: dict[int, Check]
    replaces: str = ""

    def form(self, version: int) -> Check | None:
        since = max((since for since in self.forms if since <= version), default=None)
        return None if since is None else self.forms[since]


# In the order in which violations are listed: the baseline's, then the others, each by name.
_RULES = {
    "appArmorProfile": _Rule(BASELINE, {0: checks.app_armor}),
    "capabilities_baseline": _Rule(BASELINE, {0: checks.baseline_capabilities}),
    "hostNamespaces": _Rule(BASELINE, {0: checks.host_namespaces}),
    "hostPathVolumes": _Rule(BASELINE, {0: checks.host_path_volumes}),
    "hostPorts": _Rule(BASELINE, {0: checks.host_ports}),
    "hostProbesAndHostLifecycle": _Rule(BASELINE, {34: checks.host_probes}),
    "privileged": _Rule(BASELINE, {0: checks.privileged}),
    "procMount": _Rule(
        BASELINE, {0: checks.proc_mount, 35: unless_user_namespace(checks.proc_mount)}
    ),
    "seLinuxOptions": _Rule(
        BASELINE,
        {0: checks.se_linux(*_SE_LINUX), 31: checks.se_linux(*_SE_LINUX, "container_engine_t")},
    ),
    "seccompProfile_baseline": _Rule(
        BASELINE, {0: checks.seccomp_annotations, 19: checks.baseline_seccomp}
    ),
    "sysctls": _Rule(
        BASELINE,
        {
            0: checks.sysctls(*_SYSCTLS),
            27: checks.sysctls(*_SYSCTLS_27),
            29: checks.sysctls(*_SYSCTLS_29),
            32: checks.sysctls(*_SYSCTLS_32),
            37: checks.sysctls(*_SYSCTLS_37),
        },
    ),
    "windowsHostProcess": _Rule(BASELINE, {0: checks.windows_host_process}),
    "allowPrivilegeEscalation": _Rule(
        RESTRICTED,
        {8: checks.privilege_escalation, 25: checks.unless_windows(checks.privilege_escalation)},
    ),
    "capabilities_restricted": _Rule(
        RESTRICTED,
        {
            22: checks.restricted_capabilities,
            25: checks.unless_windows(checks.restricted_capabilities),
        },
        replaces="capabilities_baseline",
    ),
    "procMount_restricted": _Rule(RESTRICTED, {35: checks.proc_mount}, replaces="procMount"),
    "restrictedVolumes": _Rule(
        RESTRICTED, {0: checks.restricted_volumes}, replaces="hostPathVolumes"
    ),
    "runAsNonRoot": _Rule(
        RESTRICTED, {0: checks.run_as_non_root, 35: unless_user_namespace(checks.run_as_non_root)}
    ),
    "runAsUser": _Rule(
        RESTRICTED, {23: checks.run_as_user, 35: unless_user_namespace(checks.run_as_user)}
    ),
    "seccompProfile_restricted": _Rule(
        RESTRICTED,
        {19: checks.restricted_seccomp, 25: checks.unless_windows(checks.restricted_seccomp)},
        replaces="seccompProfile_baseline",
    ),
}


def violations(standard: Standard, metadata: Obj, spec: Obj) -> list[Violation]:
    """Return the violations of a standard by a pod."""
    found = (check(metadata, spec) for check in _checks(standard))
    return [violation for violation in found if violation is not None]


@lru_cache(maxsize=256)
def _checks(standard: Standard) -> tuple[Check, ...]:
    if standard.level == PRIVILEGED:
        return ()
    forms = {
        name: form
        for name, rule in _RULES.items()
        if (form := rule.form(standard.version)) is not None
        and standard.level in (RESTRICTED, rule.level)
    }
    replaced = {_RULES[name].replaces for name in forms}
    return tuple(form for name, form in forms.items() if name not in replaced)
