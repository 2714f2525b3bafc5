"""Shim task options, from a handler's definition, in the message type of each kind of shim."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from moorage.engine.handlers.adapters.adapter import AdapterError
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.definition import CgroupDriver, ShimOptions

_RUNC = "containerd.runc.v1.Options"
_RUNC_CHECKPOINT = "containerd.runc.v1.CheckpointOptions"
_OTHERS = "runtimeoptions.v1.Options"
_SPEC = "types.containerd.io/opencontainers/runtime-spec/1/"
PROCESS = _SPEC + "Process"
RESOURCES = _SPEC + "LinuxResources"


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """A handler's options in the form its shim takes. `root` is the runtime's state directory.

    The runtime behind runc's shim is looked up on `search_path` for each task.
    """

    handler: ShimOptions
    cgroup_driver: CgroupDriver
    search_path: str
    root: Path

    def of_task(self) -> AnyMessage | None:
        """Return the options of a new task; None to use the shim's defaults.

        Raises:
            AdapterError: the runtime behind runc's shim cannot be found. The choice is never left
                to the shim: it would run its default runtime instead of the handler's.
        """
        if self.handler.runtime is not None:
            return pack(
                _RUNC,
                pb.RuncOptions(
                    no_pivot_root=self.handler.no_pivot_root,
                    no_new_keyring=self.handler.no_new_keyring,
                    binary_name=str(self._find_runtime(self.handler.runtime)),
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
        """Return the options of a checkpoint; None when the shim has no such options."""
        if self.handler.runtime is None:
            return None
        return pack(_RUNC_CHECKPOINT, pb.RuncCheckpointOptions(exit=not keeps_running))

    def _find_runtime(self, spelled: str) -> Path:
        program = shutil.which(spelled, path=self.search_path)
        if program is None:
            raise AdapterError(
                f"the runtime {spelled} behind the shim is not an executable on "
                f"{self.search_path}: install it, or correct runtime_binary in the handler's file"
            )
        return Path(program)


def pack(kind: str, message: Message) -> AnyMessage:
    """Pack a message under the type URL that its receiver knows, which differs from ours."""
    return AnyMessage(type_url=kind, value=message.SerializeToString())


def pack_json(kind: str, document: bytes) -> AnyMessage:
    """Pack an OCI document, which shims accept as JSON."""
    return AnyMessage(type_url=kind, value=document)
