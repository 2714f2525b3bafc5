"""Shim program: `start` returns the address of a running shim, `delete` cleans up after one.

Source: containerd, "Runtime v2", sections on shim commands and bootstrapping.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from moorage.engine.handlers.adapters.adapter import AdapterError
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.definition import CgroupDriver, ShimOptions
from moorage.linux.command import Answer, CommandError, run

# Shim task options, from a handler's definition, in the message type of each kind of shim.

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


NAMESPACE = "moorage"
_START_DEADLINE_S = 20.0
_PROTOCOL = "ttrpc"
_UNIX = "unix://"
# Shims of containerd 1 ran this for each event; later ones call the engine at TTRPC_ADDRESS.
# Moorage collects exits with blocking calls, so the program need not do anything.
_PUBLISHER = "/bin/true"


class Address(msgspec.Struct, frozen=True):
    """Address of a running shim: the socket's path, and the version of its task service."""

    path: str
    version: int = 2

    @property
    def service(self) -> str:
        """Name of the ttrpc task service."""
        return f"containerd.task.v{self.version}.Task"


class _Bootstrap(msgspec.Struct, frozen=True):
    address: str
    version: int = 2
    protocol: str = _PROTOCOL


@dataclass(frozen=True, slots=True)
class ShimProgram:
    """A shim's program and its fixed arguments. `events` is the path of the event socket."""

    binary: Path
    events: Path
    search_path: str

    async def start(self, task_id: str, bundle: Path, options: bytes) -> Address:
        """Start the shim for a task and return its address.

        It may be the address of the sandbox's shim.

        Raises AdapterError with the shim's message.
        """
        answer = await self._run(task_id, bundle, ("start",), options)
        if not answer.is_success:
            raise AdapterError(f"{self.binary.name} start: {answer.complaint}")
        return parse_address(answer.text)

    async def delete(self, task_id: str, bundle: Path) -> pb.DeleteResponse:
        """Clean up after a shim that has exited: kill the task and delete it.

        Raises AdapterError.
        """
        answer = await self._run(task_id, bundle, ("-bundle", str(bundle), "delete"), b"")
        if not answer.is_success:
            raise AdapterError(f"{self.binary.name} delete: {answer.complaint}")
        try:
            return pb.DeleteResponse.FromString(answer.output)
        except DecodeError as error:
            raise AdapterError(f"{self.binary.name} delete: invalid response") from error

    async def _run(
        self, task_id: str, bundle: Path, words: tuple[str, ...], stdin: bytes
    ) -> Answer:
        argv = (
            *(str(self.binary), "-namespace", NAMESPACE, "-address", str(self.events)),
            *("-publish-binary", _PUBLISHER, "-id", task_id, *words),
        )
        try:
            return await run(
                argv,
                deadline_s=_START_DEADLINE_S,
                stdin=stdin,
                environment=self._environment,
                directory=bundle,
            )
        except CommandError as error:
            raise AdapterError(str(error)) from error

    @property
    def _environment(self) -> Mapping[str, str]:
        return {
            **{name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ},
            "PATH": self.search_path,
            "TTRPC_ADDRESS": str(self.events),
            "GRPC_ADDRESS": str(self.events),
            "NAMESPACE": NAMESPACE,
            "MAX_SHIM_VERSION": "3",
            # Saves a thread in each of many idle shims, as containerd does.
            "GOMAXPROCS": "2",
        }


def parse_address(printed: str) -> Address:
    """Parse the output of `start`: a bare address from older shims, or a JSON object.

    Raises AdapterError for an address that is not ttrpc version 2 or 3 over a Unix socket.
    """
    text = printed.strip()
    bootstrap = _Bootstrap(text)
    if text.startswith("{"):
        try:
            bootstrap = msgspec.json.decode(text, type=_Bootstrap)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise AdapterError(f"the shim's address cannot be parsed: {text!r}: {error}") from error
    path = bootstrap.address.removeprefix(_UNIX)
    if (
        bootstrap.protocol != _PROTOCOL
        or bootstrap.version not in (2, 3)
        or not path.startswith("/")
    ):
        raise AdapterError(
            f"the shim is at {json.dumps(text)}: only ttrpc, version 2 or 3, over a Unix socket "
            "is supported"
        )
    return Address(path, bootstrap.version)
