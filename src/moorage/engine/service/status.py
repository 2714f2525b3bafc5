"""Engine RPCs of the CRI: Version, Status, RuntimeConfig, UpdateRuntimeConfig."""

from __future__ import annotations

import moorage
from moorage.engine.context import EngineContext
from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.handlers.templates import OfferedHandler
from moorage.engine.networks import ConflistError, read_conflist
from moorage.wire.cri import pb

_API_VERSION, _KUBE_API_VERSION = "v1", "0.1.0"
_NAME = "moorage"
_DRIVERS = {CgroupDriver.CGROUPFS: pb.CGROUPFS, CgroupDriver.SYSTEMD: pb.SYSTEMD}


class StatusServicer:
    """Version, status and configuration of an engine."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def version(self, request: pb.VersionRequest) -> pb.VersionResponse:
        del request
        return pb.VersionResponse(
            version=_KUBE_API_VERSION,
            runtime_name=_NAME,
            runtime_version=moorage.__version__,
            runtime_api_version=_API_VERSION,
        )

    async def status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        """Return the conditions RuntimeReady and NetworkReady, and the available handlers."""
        catalogue = self._context.handlers()
        available = [handler for handler in catalogue if handler.is_available]
        listed = [runtime_handler(handler) for handler in available]
        default = catalogue.find("")
        if default is not None and default.is_available:
            listed.insert(0, runtime_handler(default, name=""))
        info = {"handlers": self._verbose_info()} if request.verbose else {}
        return pb.StatusResponse(
            status=pb.RuntimeStatus(
                conditions=[self._runtime_ready(bool(available)), self._network_ready()]
            ),
            runtime_handlers=listed,
            features=pb.RuntimeFeatures(supplemental_groups_policy=True),
            info=info,
        )

    async def runtime_config(self, request: pb.RuntimeConfigRequest) -> pb.RuntimeConfigResponse:
        """Return the cgroup driver that the kubelet must use: that of the default handler."""
        del request
        default = self._context.handlers().find("")
        own = self._context.options.cgroup_driver
        driver = own if default is None else default.definition.cgroup_driver or own
        return pb.RuntimeConfigResponse(
            linux=pb.LinuxRuntimeConfiguration(cgroup_driver=_DRIVERS[driver])
        )

    async def update_runtime_config(
        self, request: pb.UpdateRuntimeConfigRequest
    ) -> pb.UpdateRuntimeConfigResponse:
        """Accept the request: the engine makes no network configuration from a pod CIDR."""
        del request
        return pb.UpdateRuntimeConfigResponse()

    def _runtime_ready(self, has_handler: bool) -> pb.RuntimeCondition:
        if has_handler:
            return pb.RuntimeCondition(type="RuntimeReady", status=True)
        reasons = "; ".join(
            f"{handler.name}: {handler.verdict.reason} ({handler.verdict.remedy})"
            for handler in self._context.handlers()
        )
        return pb.RuntimeCondition(
            type="RuntimeReady",
            status=False,
            reason="NoRuntimeHandler",
            message=f"no runtime handler is available: {reasons or 'none is configured'}",
        )

    def _network_ready(self) -> pb.RuntimeCondition:
        try:
            read_conflist(self._context.options.cni_configurations)
        except ConflistError as error:
            return pb.RuntimeCondition(
                type="NetworkReady",
                status=False,
                reason="NetworkPluginNotReady",
                message=f"network plugin is not ready: {error}",
            )
        return pb.RuntimeCondition(type="NetworkReady", status=True)

    def _verbose_info(self) -> str:
        lines = [
            f"{handler.name}: {'available' if handler.is_available else handler.verdict.reason}"
            for handler in self._context.handlers()
        ]
        lines += [str(complaint) for complaint in self._context.handlers().complaints]
        return "\n".join(lines)


def runtime_handler(handler: OfferedHandler, name: str | None = None) -> pb.RuntimeHandler:
    """Return a handler's entry in `Status`; `name` "" marks the default handler."""
    return pb.RuntimeHandler(
        name=handler.name if name is None else name,
        features=pb.RuntimeHandlerFeatures(
            recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
            user_namespaces=handler.features.user_namespaces,
        ),
    )
