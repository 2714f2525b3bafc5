"""Choices for a cluster, given when it is started."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Options of a start; None for each option that was not given.

    `cri` is empty for the cluster's own engine, `audit_policy` for no audit log,
    `admission_configuration` for the defaults of all admission plugins, `kubelet_configuration` for
    those of the node agent.
    `accepts_loss`: start although files that record the cluster are missing or older than recorded.
    """

    name: str | None = None
    node_name: str | None = None
    api_port: int | None = None
    node_port: int | None = None
    pod_network: str | None = None
    service_network: str | None = None
    cri: str | None = None
    has_node: bool | None = None
    without: tuple[str, ...] | None = None
    filters_by_handler: bool | None = None
    log_level: str | None = None
    seccomp_default: bool | None = None
    pod_pids_limit: int | None = None
    image_limit_bytes: int | None = None
    audit_policy: str | None = None
    admission_configuration: str | None = None
    kubelet_configuration: str | None = None
    default_classes: bool | None = None
    accepts_loss: bool = False
    image_verification: str | None = None
    image_allowlist: tuple[str, ...] | None = None
    gates: dict[str, bool] = field(default_factory=dict)
    registry_mirrors: dict[str, str] = field(default_factory=dict)

    def given(self) -> dict[str, object]:
        """Return the settings that were given, by name; `accepts_loss` is not a setting."""
        return {
            name: value
            for name in self.__dataclass_fields__
            if name != "accepts_loss" and (value := getattr(self, name)) not in (None, {})
        }
