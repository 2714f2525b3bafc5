"""Which runtime handlers an engine offers, whatever its age.

Engines since 2024 list them in `Status` (KEP-3857, KEP-127). Older containerd says so only in the
configuration it prints on a verbose `Status`. An engine that does neither is refused by name: a
class could neither be placed nor refused in time.
"""

from __future__ import annotations

import msgspec

from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.cri.client import CriClient
from moorage.cri.generated import runtime_pb2 as pb

STATUS_TIMEOUT_S = 10.0
_CONFIGURATION = "config"


class HandlersUnknownError(Exception):
    """The engine answers, but does not tell its runtime handlers."""

    def __init__(self, engine: str, endpoint: str) -> None:
        super().__init__(
            f"the engine {engine} at {endpoint} does not tell which runtime handlers it has, so "
            "RuntimeClasses cannot work with it: use containerd 1.3 or later, or CRI-O 1.31 or "
            "later, or leave out --cri for an engine of our own"
        )


class _ContainerdRuntimes(msgspec.Struct, frozen=True, rename="camel"):
    runtimes: dict[str, msgspec.Raw]
    default_runtime_name: str = ""


class _ContainerdConfiguration(msgspec.Struct, frozen=True):
    containerd: _ContainerdRuntimes


async def handlers_of(cri: CriClient) -> tuple[NodeRuntimeHandler, ...]:
    """`node.status.runtimeHandlers` for an engine; the name `""` is its default handler.

    Raises HandlersUnknownError for an engine that does not tell, CriError when it fails.
    """
    listed = handlers_in(await _status(cri, is_verbose=False))
    if not listed:
        # The verbose form costs an engine its whole configuration, so only where it is needed.
        listed = handlers_in(await _status(cri, is_verbose=True))
    if not listed:
        version = await cri.call(
            cri.runtime.Version, pb.VersionRequest(version="0.1.0"), timeout_s=STATUS_TIMEOUT_S
        )
        engine = f"{version.runtime_name} {version.runtime_version}"
        raise HandlersUnknownError(engine, cri.endpoint)
    return listed


def handlers_in(reply: pb.StatusResponse) -> tuple[NodeRuntimeHandler, ...]:
    """The handlers a `Status` reply tells of, in the engine's order; none when it doesn't tell.

    Both features are always written, as the kubelet does; an engine too old to list its handlers
    honours neither, whatever its runtimes can do.
    """
    if reply.runtime_handlers:
        return tuple(
            _handler(
                each.name,
                recursive_read_only=each.features.recursive_read_only_mounts,
                user_namespaces=each.features.user_namespaces,
            )
            for each in reply.runtime_handlers
        )
    return tuple(map(_handler, _configured(reply.info.get(_CONFIGURATION, ""))))


async def _status(cri: CriClient, *, is_verbose: bool) -> pb.StatusResponse:
    request = pb.StatusRequest(verbose=is_verbose)
    return await cri.call(cri.runtime.Status, request, timeout_s=STATUS_TIMEOUT_S)


def _configured(configuration: str) -> list[str]:
    """The handler names in containerd's configuration, the default first."""
    try:
        told = msgspec.json.decode(configuration, type=_ContainerdConfiguration)
    except (msgspec.DecodeError, msgspec.ValidationError):
        # Other engines print something else here, or nothing.
        return []
    names = sorted(told.containerd.runtimes)
    return ["", *names] if told.containerd.default_runtime_name in names else names


def _handler(
    name: str, *, recursive_read_only: bool = False, user_namespaces: bool = False
) -> NodeRuntimeHandler:
    return NodeRuntimeHandler(
        name=name,
        features=NodeRuntimeHandlerFeatures(
            recursive_read_only_mounts=recursive_read_only, user_namespaces=user_namespaces
        ),
    )
