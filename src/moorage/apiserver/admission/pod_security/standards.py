"""Standards: which checks each level has in each minor version.

Source: API docs "Pod Security Standards"; `pod-security-admission/policy` of Kubernetes 1.36.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from moorage.apiserver.admission.pod_security import checks
from moorage.apiserver.admission.pod_security.checks import Check, Violation, unless_user_namespace
from moorage.apiserver.admission.pod_security.policy import (
    BASELINE,
    PRIVILEGED,
    RESTRICTED,
    Standard,
)
from moorage.apiserver.registry.kind import Obj

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
