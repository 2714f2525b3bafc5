"""What a shim is told of a handler: the options of its tasks, each kind in its own message."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from moorage.cri.containerd import RUNC_SHIM
from moorage.handlers.adapters.generated import shim_pb2 as pb
from moorage.handlers.definition import CgroupDriver, ShimOptions

_RUNC = "containerd.runc.v1.Options"
_RUNC_CHECKPOINT = "containerd.runc.v1.CheckpointOptions"
_OTHERS = "runtimeoptions.v1.Options"
_SPEC = "types.containerd.io/opencontainers/runtime-spec/1/"
PROCESS = _SPEC + "Process"
RESOURCES = _SPEC + "LinuxResources"


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """A handler's options as a shim understands them. `root` is for the runtime's state."""

    handler: ShimOptions
    cgroup_driver: CgroupDriver
    runtime: Path | None
    root: Path

    @property
    def is_runc(self) -> bool:
        return self.handler.runtime_type == RUNC_SHIM

    @property
    def any(self) -> AnyMessage | None:
        """The options; None when the shim shall go by its own defaults."""
        if self.is_runc:
            return pack(
                _RUNC,
                pb.RuncOptions(
                    no_pivot_root=self.handler.no_pivot_root,
                    no_new_keyring=self.handler.no_new_keyring,
                    binary_name=str(self.runtime or ""),
                    root=self.handler.root or str(self.root),
                    systemd_cgroup=self.cgroup_driver is CgroupDriver.SYSTEMD,
                ),
            )
        if self.handler.config_path is None and self.handler.options_type_url is None:
            return None
        return pack(
            _OTHERS,
            pb.RuntimeOptions(
                type_url=self.handler.options_type_url or "",
                config_path=self.handler.config_path or "",
            ),
        )

    def checkpoint(self, *, keeps_running: bool) -> AnyMessage | None:
        """How a checkpoint is taken; None when the shim has no such options."""
        if not self.is_runc:
            return None
        return pack(_RUNC_CHECKPOINT, pb.RuncCheckpointOptions(exit=not keeps_running))


def pack(kind: str, message: Message) -> AnyMessage:
    """A message under the name that its receiver knows it by, which is not ours."""
    return AnyMessage(type_url=kind, value=message.SerializeToString())


def pack_json(kind: str, document: bytes) -> AnyMessage:
    """An OCI document, which shims take as JSON."""
    return AnyMessage(type_url=kind, value=document)
