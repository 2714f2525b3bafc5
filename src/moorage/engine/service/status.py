"""The CRI's calls about the engine itself: its version, its health, its handlers."""

from __future__ import annotations

import moorage
from moorage.cri import pb
from moorage.engine.context import EngineContext
from moorage.engine.networks import ConflistError, read_conflist
from moorage.handlers.catalogue import OfferedHandler
from moorage.handlers.definition import CgroupDriver

_API_VERSION, _KUBE_API_VERSION = "v1", "0.1.0"
_NAME = "moorage"


class StatusCalls:
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
        """The two conditions every caller wants, and the handlers that can be used."""
        catalogue = self._context.handlers()
        usable = [each for each in catalogue if each.is_available]
        listed = [runtime_handler(each) for each in usable]
        default = catalogue.find("")
        if default is not None and default.is_available:
            listed.insert(0, runtime_handler(default, name=""))
        info = {"handlers": self._handlers_told()} if request.verbose else {}
        return pb.StatusResponse(
            status=pb.RuntimeStatus(conditions=[self._runtime(bool(usable)), self._network()]),
            runtime_handlers=listed,
            features=pb.RuntimeFeatures(supplemental_groups_policy=True),
            info=info,
        )

    async def runtime_config(self, request: pb.RuntimeConfigRequest) -> pb.RuntimeConfigResponse:
        """Which cgroup driver a kubelet must use: that of the default handler."""
        del request
        default = self._context.handlers().find("")
        is_systemd = (
            default is not None and default.definition.cgroup_driver is CgroupDriver.SYSTEMD
        )
        driver = pb.SYSTEMD if is_systemd else pb.CGROUPFS
        return pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=driver))

    async def update_runtime_config(
        self, request: pb.UpdateRuntimeConfigRequest
    ) -> pb.UpdateRuntimeConfigResponse:
        """Accepted and not needed: no network configuration here is made from a pod CIDR."""
        del request
        return pb.UpdateRuntimeConfigResponse()

    def _runtime(self, is_usable: bool) -> pb.RuntimeCondition:
        if is_usable:
            return pb.RuntimeCondition(type="RuntimeReady", status=True)
        reasons = "; ".join(
            f"{each.name}: {each.verdict.reason} ({each.verdict.remedy})"
            for each in self._context.handlers()
        )
        return pb.RuntimeCondition(
            type="RuntimeReady",
            status=False,
            reason="NoRuntimeHandler",
            message=f"no runtime handler can be used: {reasons or 'there is none'}",
        )

    def _network(self) -> pb.RuntimeCondition:
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

    def _handlers_told(self) -> str:
        lines = [
            f"{each.name}: {'available' if each.is_available else each.verdict.reason}"
            for each in self._context.handlers()
        ]
        lines += [str(each) for each in self._context.handlers().complaints]
        return "\n".join(lines)


def runtime_handler(handler: OfferedHandler, name: str | None = None) -> pb.RuntimeHandler:
    """A handler as `Status` lists it; with the name "" for the default one."""
    return pb.RuntimeHandler(
        name=handler.name if name is None else name,
        features=pb.RuntimeHandlerFeatures(
            recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
            user_namespaces=handler.features.user_namespaces,
        ),
    )
