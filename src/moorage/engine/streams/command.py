"""Command streams: copies between a client's channels and a process.

    client stdin, resize ──▶ process        process output ──▶ client stdout, stderr
                             its exit       ──▶ client error channel, last of all

Nothing is buffered: a client that does not read blocks the process, and a process that does not
read blocks the client. When the client disconnects, the transport's task cancels the copying.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from moorage.api.logs import Log
from moorage.engine.errors import EngineError
from moorage.engine.handlers.adapters import STDERR, STDOUT, AdapterError, ExecProcess, Streams
from moorage.engine.streams.requests import Target
from moorage.wire.cri import pb
from moorage.wire.streaming.pipe import ByteStream
from moorage.wire.streaming.race import first_to_end

log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """The client's channels; None for those that it did not request.

    With `has_json_status` the outcome is written as a Status object, else as a sentence.
    """

    error: ByteStream
    stdin: ByteStream | None = None
    stdout: ByteStream | None = None
    stderr: ByteStream | None = None
    resize: ByteStream | None = None
    has_json_status: bool = True

    @property
    def outputs(self) -> Mapping[int, ByteStream]:
        """Return the output channels by the process's descriptor (1, 2)."""
        by_descriptor = {STDOUT: self.stdout, STDERR: self.stderr}
        return {number: channel for number, channel in by_descriptor.items() if channel}


async def exec_into(
    target: Target, request: pb.ExecRequest, channels: Channels, drain_s: float
) -> None:
    """Run the requested process with the channels, and write its outcome to the error channel.

    Blocks until the process exits; kills it on cancellation. Output that descendants hold open is
    copied until it has been silent for `drain_s` after the process's exit. A failure of the engine
    or the runtime is written to the error channel. Raises OSError when the client has disconnected.
    """
    outcome: Outcome
    try:
        process = await target.exec(request)
    except (EngineError, AdapterError, OSError) as error:
        outcome = _failed("executing command in container", error)
    else:
        try:
            async with process:
                outcome = Exited(await _until_exit(process, channels, drain_s))
        except (EngineError, AdapterError) as error:
            outcome = _failed("executing command in container", error)
    await _finish(channels, outcome)


async def attach_to(target: Target, request: pb.AttachRequest, channels: Channels) -> None:
    """Copy the container's streams to the channels, and write the outcome to the error channel.

    Blocks until the output ends; on cancellation the container continues to run. A failure of the
    engine or the runtime is written to the error channel. Raises OSError when the client has
    disconnected.
    """
    outcome: Outcome = Exited()
    try:
        streams = await target.attach(request)
    except (EngineError, AdapterError, OSError) as error:
        outcome = _failed("attaching to container", error)
    else:
        try:
            async with streams:
                await _with_inputs(streams, channels, _Output(streams, channels.outputs))
        except (EngineError, AdapterError) as error:
            outcome = _failed("attaching to container", error)
    await _finish(channels, outcome)


@dataclass(slots=True)
class _Output:
    """Copies output to the client until it ends, or is silent after `hurry`."""

    streams: Streams
    channels: Mapping[int, ByteStream]
    _patience_s: float | None = None
    _reading: asyncio.Timeout | None = field(default=None, repr=False)

    async def copy(self) -> None:
        """Copy until the end of the output. Drops output without a channel."""
        while (output := await self._next()) is not None:
            descriptor, data = output
            if (channel := self.channels.get(descriptor)) is not None:
                await channel.write(data)

    def hurry(self, patience_s: float) -> None:
        """Abort after `patience_s` without output; backpressure from the client does not count."""
        self._patience_s = patience_s
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time() + patience_s)

    async def _next(self) -> tuple[int, bytes] | None:
        try:
            async with asyncio.timeout(self._patience_s) as self._reading:
                return await self.streams.read()
        except TimeoutError:
            return None
        except OSError as error:
            # Translated because callers take an OSError for a disconnected client.
            raise AdapterError(f"reading the output: {error}") from error
        finally:
            self._reading = None


async def _until_exit(process: ExecProcess, channels: Channels, drain_s: float) -> int:
    """Return the exit code. Blocks until the process has exited and its output is copied."""
    output = _Output(process, channels.outputs)
    exiting = asyncio.ensure_future(process.wait())
    exiting.add_done_callback(lambda _: output.hurry(drain_s))
    try:
        await _with_inputs(process, channels, output, exiting)
        return exiting.result()
    finally:
        exiting.cancel()


async def _with_inputs(
    streams: Streams,
    channels: Channels,
    output: _Output,
    exiting: asyncio.Future[int] | None = None,
) -> None:
    """Copy input, output and sizes. Blocks until the output has ended, and `exiting` if given."""

    async def ending() -> None:
        await output.copy()
        if exiting is not None:
            # A process may close its output and continue to read.
            await exiting

    await first_to_end(
        ending(),
        *([_feed(channels.stdin, streams)] if channels.stdin else []),
        *([_resize(channels.resize, streams)] if channels.resize else []),
    )


async def _feed(stdin: ByteStream, streams: Streams) -> None:
    """Copy the client's input to the process; returns only by cancellation."""
    is_taken = True
    while data := await stdin.read():
        # Drop input that the process does not read, so that resizes behind it arrive.
        is_taken = is_taken and await _is_taken(streams, data)
    if is_taken:
        try:
            await streams.end_input()
        except OSError:
            # The stream is closed already.
            is_taken = False
    await _forever()


async def _is_taken(streams: Streams, data: bytes) -> bool:
    """Write a chunk of input. Returns False once the process does not read any more."""
    try:
        await streams.write(data)
    except OSError:
        return False
    return True


async def _resize(channel: ByteStream, streams: Streams) -> None:
    """Apply the client's terminal sizes; returns only by cancellation."""
    reader = SizeReader()
    while data := await channel.read():
        # Only the last size matters.
        for size in reader.feed(data)[-1:]:
            try:
                await streams.resize(size.width, size.height)
            except (AdapterError, OSError) as error:
                # The process may have exited, which is reported by its exit code.
                log.debug("terminal not resized", why=str(error))
    await _forever()


async def _finish(channels: Channels, outcome: Outcome) -> None:
    """Close the outputs, write the outcome to the error channel, and close that too."""
    for channel in channels.outputs.values():
        await channel.write_eof()
    if status := encode(outcome, as_json=channels.has_json_status):
        await channels.error.write(status)
    await channels.error.write_eof()


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


def _failed(what: str, error: Exception) -> Failed:
    return Failed(f"error {what}: {' '.join(str(error).split())}")


# Terminal sizes from a client: JSON objects in a byte stream, split at any point.
#
#     {"Width":80,"Height":24}
#     {"Width":81,…
#
# Source: client-go `remotecommand.TerminalSize`.

_LIMIT_CHARACTERS = 4096
_OBJECT = re.compile(rb"\{[^{}]*\}")

Length = Annotated[int, msgspec.Meta(gt=0, le=65535)]


class Size(msgspec.Struct, frozen=True):
    """A terminal's size in characters."""

    width: Length = msgspec.field(name="Width")
    height: Length = msgspec.field(name="Height")


class SizeReader:
    """Parses a byte stream into sizes. Invalid objects are ignored."""

    def __init__(self) -> None:
        self._pending = b""
        self._decoder = msgspec.json.Decoder(Size)

    def feed(self, data: bytes) -> list[Size]:
        """Add bytes. Returns the sizes that are complete, in their order."""
        self._pending = (self._pending + data)[-_LIMIT_CHARACTERS:]
        sizes, end = [], 0
        for match in _OBJECT.finditer(self._pending):
            end = match.end()
            try:
                sizes.append(self._decoder.decode(match[0]))
            except msgspec.DecodeError:
                continue
        self._pending = self._pending[end:]
        return sizes


# Command outcomes, as written to the error channel.
#
#     version 4 and later    a Status object, always
#     before                 a sentence on failure, nothing on success
#
# Source: apimachinery `remotecommand` (`NonZeroExitCode`, cause `ExitCode`), `NewInternalError`.

_INTERNAL_ERROR = 500


@dataclass(frozen=True, slots=True)
class Exited:
    """Outcome of a process that exited; code 0 also stands for an unknown one."""

    code: int = 0

    @property
    def sentence(self) -> str:
        """Return the failure as a sentence, empty for success."""
        return f"command terminated with non-zero exit code: {self.code}" if self.code else ""

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
        if not self.code:
            return {"metadata": {}, "status": "Success"}
        return {
            "metadata": {},
            "status": "Failure",
            "message": self.sentence,
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(self.code)}]},
        }


@dataclass(frozen=True, slots=True)
class Failed:
    """Outcome of a failed runtime call; `sentence` names the call and the cause."""

    sentence: str

    def status(self) -> dict[str, Any]:
        """Return the Status object of an internal error."""
        return {
            "metadata": {},
            "status": "Failure",
            "message": f"Internal error occurred: {self.sentence}",
            "reason": "InternalError",
            "details": {"causes": [{"message": self.sentence}]},
            "code": _INTERNAL_ERROR,
        }


Outcome = Exited | Failed


def encode(outcome: Outcome, *, as_json: bool) -> bytes:
    """Return the bytes for the error channel; empty for success before version 4."""
    if as_json:
        return msgspec.json.encode(outcome.status())
    return outcome.sentence.encode()
