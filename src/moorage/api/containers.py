"""Containers of a pod: command, environment, resources, probes and security context.

Source: core/v1 `Container`.
"""

from __future__ import annotations

from msgspec import field

from moorage.api.meta import Object, Raw
from moorage.api.volumes import ObjectFieldSelector, ResourceFieldSelector

# Image pull credential verification: policies for images already on the node.
#
# Source: KubeletConfiguration `imagePullCredentialsVerificationPolicy`.

NEVER_VERIFY = "NeverVerify"
NEVER_VERIFY_PRELOADED = "NeverVerifyPreloadedImages"
NEVER_VERIFY_ALLOWLISTED = "NeverVerifyAllowlistedImages"
ALWAYS_VERIFY = "AlwaysVerify"
POLICIES = (NEVER_VERIFY, NEVER_VERIFY_PRELOADED, NEVER_VERIFY_ALLOWLISTED, ALWAYS_VERIFY)


class ContainerPort(Object, frozen=True):
    name: str = ""
    host_port: int = 0
    container_port: int = 0
    protocol: str = ""
    host_ip: str = field(default="", name="hostIP")


class ConfigMapEnvSource(Object, frozen=True):
    name: str = ""
    optional: bool | None = None


class SecretEnvSource(Object, frozen=True):
    name: str = ""
    optional: bool | None = None


class EnvFromSource(Object, frozen=True):
    prefix: str = ""
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None


class ConfigMapKeySelector(Object, frozen=True):
    name: str = ""
    key: str = ""
    optional: bool | None = None


class SecretKeySelector(Object, frozen=True):
    name: str = ""
    key: str = ""
    optional: bool | None = None


class FileKeySelector(Object, frozen=True):
    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool | None = None


class EnvVarSource(Object, frozen=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(Object, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class ResourceClaim(Object, frozen=True):
    name: str = ""
    request: str = ""


class ResourceRequirements(Object, frozen=True):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    claims: tuple[ResourceClaim, ...] = ()


class ContainerResizePolicy(Object, frozen=True):
    resource_name: str = ""
    restart_policy: str = ""


class ContainerRestartRuleOnExitCodes(Object, frozen=True):
    operator: str = ""
    values: tuple[int, ...] = ()


class ContainerRestartRule(Object, frozen=True):
    action: str = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class VolumeMount(Object, frozen=True):
    name: str = ""
    read_only: bool = False
    recursive_read_only: str | None = None
    mount_path: str = ""
    sub_path: str = ""
    mount_propagation: str | None = None
    sub_path_expr: str = ""


class VolumeDevice(Object, frozen=True):
    name: str = ""
    device_path: str = ""


class ExecAction(Object, frozen=True):
    command: tuple[str, ...] = ()


class HTTPHeader(Object, frozen=True):
    name: str = ""
    value: str = ""


class HTTPGetAction(Object, frozen=True):
    path: str = ""
    port: int | str = 0
    host: str = ""
    scheme: str = ""
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(Object, frozen=True):
    port: int | str = 0
    host: str = ""


class GRPCAction(Object, frozen=True):
    port: int = 0
    service: str | None = None


class Probe(Object, frozen=True):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0
    termination_grace_period_seconds: int | None = None


class SleepAction(Object, frozen=True):
    seconds: int = 0


class LifecycleHandler(Object, frozen=True):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Object, frozen=True):
    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None


class Capabilities(Object, frozen=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SELinuxOptions(Object, frozen=True):
    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class SeccompProfile(Object, frozen=True):
    type: str = ""
    localhost_profile: str | None = None


class AppArmorProfile(Object, frozen=True):
    type: str = ""
    localhost_profile: str | None = None


class SecurityContext(Object, frozen=True):
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: Raw | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None


class Container(Object, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class EphemeralContainer(Object, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    target_container_name: str = ""
