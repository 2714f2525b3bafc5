"""Runtime handlers of an engine, of any version.

Engines since 2024 list them in `Status` (KEP-3857, KEP-127). Older containerd reports them only in
the configuration of a verbose `Status`. An engine that does neither is refused: a class could not
be scheduled.
"""

from __future__ import annotations

import msgspec

from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.wire.cri.client import CriClient
from moorage.wire.cri.generated import runtime_pb2 as pb

STATUS_TIMEOUT_S = 10.0
_CONFIGURATION = "config"


class HandlersUnknownError(Exception):
    """The engine does not report its runtime handlers."""

    def __init__(self, engine: str, endpoint: str) -> None:
        super().__init__(
            f"the engine {engine} at {endpoint} does not report its runtime handlers, so "
            "RuntimeClasses cannot work with it: use containerd 1.3 or later, or CRI-O 1.31 or "
            "later, or leave out --cri for an engine of our own"
        )


class _ContainerdRuntimes(msgspec.Struct, frozen=True, rename="camel"):
    runtimes: dict[str, msgspec.Raw]
    default_runtime_name: str = ""


class _ContainerdConfiguration(msgspec.Struct, frozen=True):
    containerd: _ContainerdRuntimes


async def handlers_of(cri: CriClient) -> tuple[NodeRuntimeHandler, ...]:
    """Return `node.status.runtimeHandlers` for an engine; the name `""` is its default handler.

    Raises HandlersUnknownError for an engine that does not report them, CriError when the call
    fails.
    """
    listed = handlers_in(await _status(cri, is_verbose=False))
    if not listed:
        # The verbose form makes an engine serialise its whole configuration, so only if needed.
        listed = handlers_in(await _status(cri, is_verbose=True))
    if not listed:
        version = await cri.call(
            cri.runtime.Version, pb.VersionRequest(version="0.1.0"), timeout_s=STATUS_TIMEOUT_S
        )
        engine = f"{version.runtime_name} {version.runtime_version}"
        raise HandlersUnknownError(engine, cri.endpoint)
    return listed


def handlers_in(reply: pb.StatusResponse) -> tuple[NodeRuntimeHandler, ...]:
    """Return the handlers in a `Status` response, in the engine's order; none if it lists none.

    Both features are always written, as the kubelet does; an engine too old to list its handlers
    supports neither, whatever its runtimes support.
    """
    if reply.runtime_handlers:
        return tuple(
            _handler(
                runtime_handler.name,
                recursive_read_only=runtime_handler.features.recursive_read_only_mounts,
                user_namespaces=runtime_handler.features.user_namespaces,
            )
            for runtime_handler in reply.runtime_handlers
        )
    return tuple(map(_handler, _configured(reply.info.get(_CONFIGURATION, ""))))


async def _status(cri: CriClient, *, is_verbose: bool) -> pb.StatusResponse:
    request = pb.StatusRequest(verbose=is_verbose)
    return await cri.call(cri.runtime.Status, request, timeout_s=STATUS_TIMEOUT_S)


def _configured(configuration: str) -> list[str]:
    """Return the handler names in containerd's configuration, the default first."""
    try:
        parsed = msgspec.json.decode(configuration, type=_ContainerdConfiguration)
    except (msgspec.DecodeError, RecursionError):
        # Other engines have another format here, or nothing.
        return []
    names = sorted(parsed.containerd.runtimes)
    return ["", *names] if parsed.containerd.default_runtime_name in names else names


def _handler(
    name: str, *, recursive_read_only: bool = False, user_namespaces: bool = False
) -> NodeRuntimeHandler:
    return NodeRuntimeHandler(
        name=name,
        features=NodeRuntimeHandlerFeatures(
            recursive_read_only_mounts=recursive_read_only, user_namespaces=user_namespaces
        ),
    )
