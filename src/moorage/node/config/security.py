"""Container privileges: users, capabilities, seccomp, AppArmor and masked paths of /proc.

Pure. The container's settings override the pod's. Source: core/v1 SecurityContext, kubelet
`kuberuntime/security_context.go`, Pod Security "procMount".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from moorage.api import names
from moorage.api.containers import AppArmorProfile, SeccompProfile, SecurityContext, SELinuxOptions
from moorage.api.pods import HostAlias, Pod, PodSecurityContext
from moorage.node.config.errors import ConfigError
from moorage.node.pod_facts.containers import members
from moorage.node.pod_facts.labels import AnyContainer
from moorage.node.pod_facts.sources import format_pod
from moorage.wire.cri import pb

# Pod identity: hostname, domain and /etc/hosts.
#
# Pure. Source: core/v1 PodSpec `hostname`, `subdomain`, `hostnameOverride`, `hostAliases`; kubelet
# `GeneratePodHostNameAndDomain`, `managedHostsFileContent`.

HOSTS_PATH = "/etc/hosts"

_LONGEST = 63
_LONGEST_NODENAME = 64
_TAB = "\t"
_HEADER = "# Kubernetes-managed hosts file.\n"
_HEADER_HOST_NETWORK = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


@dataclass(frozen=True, slots=True)
class Hostname:
    """Hostname of a pod; `domain` is empty without a subdomain."""

    name: str
    domain: str = ""

    @property
    def full(self) -> str:
        """Hostname with the domain, if there is one."""
        return f"{self.name}.{self.domain}" if self.domain else self.name


def hostname_of(pod: Pod, cluster_domain: str) -> Hostname:
    """Return the pod's hostname and domain. Raises ConfigError for an invalid name."""
    spec = pod.spec
    if spec.hostname_override is not None:
        _check("HostnameOverride", spec.hostname_override, names.dns_subdomain_errors)
        return Hostname(_cut(spec.hostname_override, pod))
    if spec.hostname:
        _check("Hostname", spec.hostname, names.dns_label_errors)
    domain = ""
    if spec.subdomain:
        _check("Subdomain", spec.subdomain, names.dns_label_errors)
        domain = f"{spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}"
    return Hostname(_cut(spec.hostname or pod.metadata.name, pod), domain)


def kernel_hostname(pod: Pod, hostname: Hostname) -> str:
    """Return the kernel hostname (`uname -n`) of the pod.

    Raises ConfigError when it exceeds 64 characters.
    """
    if not (pod.spec.set_hostname_as_fqdn and hostname.domain):
        return hostname.name
    if len(hostname.full) > _LONGEST_NODENAME:
        raise ConfigError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {hostname.full} "
            f"is too long ({_LONGEST_NODENAME} characters is the max, {len(hostname.full)} "
            "characters requested)"
        )
    return hostname.full


def hosts_file(hostname: Hostname, addresses: Iterable[str], aliases: Iterable[HostAlias]) -> str:
    """Return the /etc/hosts of a pod with its own network."""
    own_names = f"{hostname.full}\t{hostname.name}" if hostname.domain else hostname.name
    own = "".join(f"{address}\t{own_names}\n" for address in addresses)
    return _HEADER + _LOCAL + own + _alias_lines(aliases)


def host_network_hosts_file(of_node: str, aliases: Iterable[HostAlias]) -> str:
    """Return the /etc/hosts of a pod on the host network: the node's, with the aliases appended."""
    return _HEADER_HOST_NETWORK + of_node + _alias_lines(aliases)


def _alias_lines(aliases: Iterable[HostAlias]) -> str:
    lines = [f"{alias.ip}\t{_TAB.join(alias.hostnames)}\n" for alias in aliases]
    if not lines:
        return ""
    return "\n# Entries added by HostAliases.\n" + "".join(lines)


def _check(field: str, value: str, errors_of: Callable[[str], list[str]]) -> None:
    complaints = errors_of(value)
    if complaints:
        what = "DNS subdomain" if field == "HostnameOverride" else "DNS label"
        raise ConfigError(f'pod {field} "{value}" is not a valid {what}: {";".join(complaints)}')


def _cut(hostname: str, pod: Pod) -> str:
    if len(hostname) <= _LONGEST:
        return hostname
    cut = hostname[:_LONGEST].rstrip("-.")
    if not cut:
        raise ConfigError(f'hostname for pod "{pod.metadata.name}" was invalid: "{hostname}"')
    return cut


_MASKED = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_MAX_USER = 2**31 - 1

_EMPTY = SecurityContext()
_EMPTY_POD = PodSecurityContext()


@dataclass(frozen=True, slots=True)
class ImageUser:
    """User of an image's configuration: a numeric ID, a name, or neither."""

    uid: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityDefaults:
    """Node-side defaults: the profile directory, and whether seccomp is on by default.

    `masked_paths` are this host's additional masked paths, besides the standard ones.
    """

    seccomp_dir: Path
    has_seccomp_by_default: bool = False
    masked_paths: tuple[str, ...] = ()


def container_security(
    pod: Pod, container: AnyContainer, user: ImageUser, defaults: SecurityDefaults
) -> pb.LinuxContainerSecurityContext:
    """Return the CRI security context without namespaces. Raises ConfigError."""
    verify_non_root(pod, container, user)
    own = container.security_context or _EMPTY
    of_pod = pod.spec.security_context or _EMPTY_POD
    context = pb.LinuxContainerSecurityContext(
        privileged=bool(own.privileged),
        readonly_rootfs=bool(own.read_only_root_filesystem),
        no_new_privs=own.allow_privilege_escalation is False,
        seccomp=_seccomp(own.seccomp_profile or of_pod.seccomp_profile, defaults),
        selinux_options=_selinux(own.se_linux_options or of_pod.se_linux_options),
    )
    _apply_user(context, own, of_pod, user)
    _apply_groups(context, of_pod)
    _apply_app_armor(context, own.app_armor_profile or of_pod.app_armor_profile)
    if own.capabilities is not None:
        context.capabilities.add_capabilities.extend(own.capabilities.add)
        context.capabilities.drop_capabilities.extend(own.capabilities.drop)
    if own.proc_mount != "Unmasked":
        context.masked_paths.extend((*_MASKED, *defaults.masked_paths))
        context.readonly_paths.extend(_READ_ONLY)
    return context


def verify_non_root(pod: Pod, container: AnyContainer, user: ImageUser) -> None:
    """Raise ConfigError when `runAsNonRoot` is set and cannot be verified."""
    own = container.security_context or _EMPTY
    of_pod = pod.spec.security_context or _EMPTY_POD
    wanted = own.run_as_non_root if own.run_as_non_root is not None else of_pod.run_as_non_root
    if not wanted:
        return
    where = f'(pod: "{format_pod(pod)}", container: {container.name})'
    chosen = own.run_as_user if own.run_as_user is not None else of_pod.run_as_user
    if chosen is not None:
        if chosen == 0:
            raise ConfigError(f"container's runAsUser breaks non-root policy {where}")
        return
    if user.uid is None and user.name:
        raise ConfigError(
            f"container has runAsNonRoot and image has non-numeric user ({user.name}), "
            f"cannot verify user is non-root {where}"
        )
    if user.uid == 0:
        raise ConfigError(f"container has runAsNonRoot and image will run as root {where}")
    if user.uid is not None and not 0 <= user.uid <= _MAX_USER:
        raise ConfigError(
            f"container has runAsNonRoot and image has an invalid user id ({user.uid}). "
            f"(Must be 1-({_MAX_USER})): must be between 0 and {_MAX_USER}, inclusive {where}"
        )


def sandbox_security(pod: Pod) -> pb.LinuxSandboxSecurityContext:
    """Return the sandbox's security context without namespaces. Raises ConfigError."""
    of_pod = pod.spec.security_context or _EMPTY_POD
    context = pb.LinuxSandboxSecurityContext(
        privileged=is_privileged(pod),
        # The sandbox's process needs no system call that the runtime's profile denies.
        seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
        selinux_options=_selinux(of_pod.se_linux_options),
    )
    if of_pod.run_as_user is not None:
        context.run_as_user.value = of_pod.run_as_user
    if of_pod.run_as_group is not None:
        context.run_as_group.value = of_pod.run_as_group
    _apply_groups(context, of_pod)
    return context


def is_privileged(pod: Pod) -> bool:
    """Return whether any container is privileged, which requires a privileged sandbox."""
    spec = pod.spec
    contexts = (container.container.security_context for container in members(spec))
    return any(context is not None and context.privileged for context in contexts)


def _apply_user(
    context: pb.LinuxContainerSecurityContext,
    own: SecurityContext,
    of_pod: PodSecurityContext,
    user: ImageUser,
) -> None:
    chosen = own.run_as_user if own.run_as_user is not None else of_pod.run_as_user
    group = own.run_as_group if own.run_as_group is not None else of_pod.run_as_group
    if chosen is not None:
        context.run_as_user.value = chosen
    else:
        if user.uid is not None:
            context.run_as_user.value = user.uid
        context.run_as_username = user.name
    if group is not None:
        context.run_as_group.value = group


def _apply_groups(
    context: pb.LinuxContainerSecurityContext | pb.LinuxSandboxSecurityContext,
    of_pod: PodSecurityContext,
) -> None:
    if of_pod.fs_group is not None:
        context.supplemental_groups.append(of_pod.fs_group)
    context.supplemental_groups.extend(of_pod.supplemental_groups)
    policy = of_pod.supplemental_groups_policy
    if policy is not None:
        try:
            context.supplemental_groups_policy = pb.SupplementalGroupsPolicy.Value(policy)
        except ValueError:
            raise ConfigError(f"unsupported supplementalGroupsPolicy: {policy}") from None


def _seccomp(profile: SeccompProfile | None, defaults: SecurityDefaults) -> pb.SecurityProfile:
    if profile is None:
        is_on = defaults.has_seccomp_by_default
        return _profile("RuntimeDefault" if is_on else "Unconfined", "")
    if profile.type == "Localhost":
        if not profile.localhost_profile:
            raise ConfigError("localhostProfile must be set if seccompProfile type is Localhost.")
        return _profile("Localhost", str(defaults.seccomp_dir / profile.localhost_profile))
    return _profile(profile.type, "")


def _apply_app_armor(
    context: pb.LinuxContainerSecurityContext, profile: AppArmorProfile | None
) -> None:
    """Set both the field and its deprecated string form, for engines that predate the field."""
    if profile is None:
        return
    if profile.type == "Localhost" and not profile.localhost_profile:
        raise ConfigError("missing localhost apparmor profile name")
    name = profile.localhost_profile or ""
    context.apparmor.CopyFrom(_profile(profile.type, name))
    older = {"RuntimeDefault": "runtime/default", "Unconfined": "unconfined"}
    context.apparmor_profile = older.get(profile.type, f"localhost/{name}")


def _profile(type_: str, reference: str) -> pb.SecurityProfile:
    try:
        kind = pb.SecurityProfile.ProfileType.Value(type_)
    except ValueError:
        raise ConfigError(f'unknown security profile type: "{type_}"') from None
    return pb.SecurityProfile(profile_type=kind, localhost_ref=reference)


def _selinux(options: SELinuxOptions | None) -> pb.SELinuxOption | None:
    if options is None:
        return None
    return pb.SELinuxOption(
        user=options.user, role=options.role, type=options.type, level=options.level
    )
