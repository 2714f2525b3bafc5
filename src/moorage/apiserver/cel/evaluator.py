"""Evaluator: asks the worker process, with a deadline, and replaces it when it is lost.

The worker is started with the first expression: a server without rules never has one. Rules that
took long are evaluated by a second one for a minute, so that others wait for them once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec

from moorage.apiserver.cel.messages import (
    Answer,
    Check,
    CheckObject,
    CheckPolicy,
    CheckSchema,
    CheckTypes,
    EvaluateMutation,
    EvaluatePolicy,
    KeepSchema,
    Mutation,
    PolicyInput,
    PolicyResult,
    Problem,
    Reply,
    Request,
    Verdict,
    Violation,
)
from moorage.linux.child import Child

DEADLINE_S = 2.0
"""How long one request may take in the worker."""

_DEFINITION_S = 30.0
"""How long the rules of a definition or policy may take to compile.

Definitions have schemas of several megabytes, and those who write them administer the cluster.
"""

_COMPILATIONS = (CheckSchema, KeepSchema, CheckPolicy, CheckTypes)
_ATTEMPTS = 4

_START_S = 30.0
_LONG_S = 0.25
"""How long a request may compute before its rules count as slow."""

_SLOW_S = 60.0
"""How long rules count as slow."""

_MOST_SLOW = 256
_WAITING = 256
_WAITING_SLOW = 32
_HEADER_BYTES = 4

_log = logging.getLogger("cel")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)

Authorize = Callable[[Check], Verdict]
"""Decides the authorization checks of expressions; runs in this process, without waiting."""


def deny(check: Check) -> Verdict:
    """Deny every check: for expressions that have no authorizer."""
    return Verdict(is_allowed=False, reason=f"{check.verb} is not decided here")


class LimitError(Exception):
    """The expressions took more time or memory than they may; the text says which."""


class BusyError(Exception):
    """Too many requests wait for the worker."""


class _Worker:
    """A running worker process and the connection to it."""

    def __init__(self, python: str) -> None:
        own, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = Child(
                    [python, "-m", "moorage.apiserver.cel.worker", str(theirs.fileno())],
                    stderr=subprocess.DEVNULL,
                    passing=[theirs.fileno()],
                )
            except OSError:
                own.close()
                raise
        self._socket = own
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def be_ready(self) -> None:
        """Wait for its start, whose imports are no request's fault.

        Raises EOFError and OSError when it is lost.
        """
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        await self._read(self._reader)

    async def ask(self, request: Request, authorize: Authorize) -> Answer:
        """Send a request, answer the worker's questions and return its answer.

        Raises EOFError and OSError when it is lost.
        """
        assert self._reader is not None, "the worker is ready"
        assert self._writer is not None, "the worker is ready"
        await self._send(self._writer, request)
        while True:
            reply = await self._read(self._reader)
            if isinstance(reply, Answer):
                return reply
            await self._send(self._writer, authorize(reply.check))

    async def _read(self, reader: asyncio.StreamReader) -> Reply:
        header = await reader.readexactly(_HEADER_BYTES)
        return _decoder.decode(await reader.readexactly(int.from_bytes(header)))

    async def _send(self, writer: asyncio.StreamWriter, message: Any) -> None:
        body = _encoder.encode(message)
        writer.write(len(body).to_bytes(_HEADER_BYTES) + body)
        await writer.drain()

    async def end(self) -> None:
        """Kill it."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        self._socket.close()
        await self._child.end()
        self._child.close()


class _Lane:
    """A worker that is replaced when it is lost, and those who wait for it."""

    def __init__(self, deadline_s: float, most_waiting: int, python: str) -> None:
        self._python = python
        self._deadline_s = deadline_s
        self._most_waiting = most_waiting
        self._worker: _Worker | None = None
        self._waiting = 0
        self.turn = asyncio.Lock()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Take a place among those who wait. Raises BusyError."""
        if self._waiting >= self._most_waiting:
            raise BusyError("too many requests wait for CEL rules already, please try again later")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the worker; a later request starts another."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.end()

    async def ask(self, request: Request, authorize: Authorize) -> Answer:
        """Ask the worker, in one's turn; one that does not answer is killed. Raises LimitError."""
        is_definition = isinstance(request, _COMPILATIONS)
        deadline_s = max(self._deadline_s, _DEFINITION_S) if is_definition else self._deadline_s
        is_answered = False
        try:
            if self._worker is None:
                self._worker = _Worker(self._python)
                async with asyncio.timeout(_START_S):
                    await self._worker.be_ready()
            async with asyncio.timeout(deadline_s):
                answer = await self._worker.ask(request, authorize)
            is_answered = True
            return answer
        except TimeoutError as error:
            raise LimitError(f"the rules took longer than {deadline_s:g} s") from error
        except (OSError, EOFError) as error:
            raise LimitError("the rules needed more memory than they may") from error
        finally:
            if not is_answered:
                _log.warning("the CEL worker is replaced: it did not answer")
                await self.close()


class Evaluator:
    """Compiles and evaluates expressions in another process. `async with` ends that.

    What took long goes to a second process for a while, so that it holds up only its own kind.
    """

    def __init__(
        self,
        *,
        deadline_s: float = DEADLINE_S,
        waiting: int = _WAITING,
        python: str = sys.executable,
    ) -> None:
        self._lane = _Lane(deadline_s, waiting, python)
        self._slow_lane = _Lane(deadline_s, _WAITING_SLOW, python)
        self._slow: OrderedDict[str, float] = OrderedDict()
        """Until when, by the loop's time, the rules of a key count as slow."""
        self._begun: set[asyncio.Task[bytes]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the workers; a later request starts another."""
        begun = tuple(self._begun)
        for task in begun:
            task.cancel()
        if begun:
            await asyncio.wait(begun)
        await self._lane.close()
        await self._slow_lane.close()

    async def schema_problems(self, schema: dict[str, Any]) -> list[Problem]:
        """Compile the rules of a schema. Raises LimitError and BusyError."""
        answer = await self._ask(CheckSchema(schema))
        return msgspec.msgpack.decode(answer, type=list[Problem])

    async def violations(
        self, key: str, schema: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None
    ) -> list[Violation]:
        """Evaluate the rules of a schema, which `key` names, for an object.

        Raises LimitError and BusyError.
        """
        for _ in range(_ATTEMPTS):
            answer = await self._ask(CheckObject(key, new, old), key=key)
            violations = msgspec.msgpack.decode(answer, type=list[Violation] | None)
            if violations is not None:
                return violations
            answer = await self._ask(KeepSchema(key, schema), key=key)
            if problem := msgspec.msgpack.decode(answer, type=str):
                return [Violation("", f"rule compile error: {problem}", value="object")]
        # Each time another worker was asked: workers are lost, or rules have become slow.
        raise BusyError("the CEL rules were not evaluated, please try again later")

    async def policy_problems(self, policy: dict[str, Any]) -> list[Problem]:
        """Compile the expressions of a policy. Raises LimitError and BusyError."""
        return msgspec.msgpack.decode(await self._ask(CheckPolicy(policy)), type=list[Problem])

    async def type_problems(
        self, policy: dict[str, Any], kind: dict[str, Any], params: dict[str, Any] | None
    ) -> list[Problem]:
        """Compile a policy's validations for the objects of one kind.

        `kind` and `params` are schemas without references. Raises LimitError and BusyError.
        """
        answer = await self._ask(CheckTypes(policy, kind, params))
        return msgspec.msgpack.decode(answer, type=list[Problem])

    async def policy_results(
        self,
        key: str,
        policy: dict[str, Any],
        given: PolicyInput,
        params: list[Any],
        authorize: Authorize = deny,
    ) -> list[PolicyResult]:
        """Evaluate a policy, which `key` names, with each object of parameters.

        Raises LimitError and BusyError.
        """
        for sent in (None, policy):
            request = EvaluatePolicy(key, sent, given, params)
            answer = await self._ask(request, authorize, key=key)
            results = msgspec.msgpack.decode(answer, type=list[PolicyResult] | None)
            if results is not None:
                return results
        raise AssertionError("the worker was sent the policy")

    async def mutation(
        self,
        key: str,
        policy: dict[str, Any],
        given: PolicyInput,
        params: Any,
        index: int,
        authorize: Authorize = deny,
    ) -> Mutation:
        """Evaluate the mutation at an index of a policy, which `key` names.

        Raises LimitError and BusyError.
        """
        for sent in (None, policy):
            request = EvaluateMutation(key, sent, given, params, index)
            mutation = msgspec.msgpack.decode(
                await self._ask(request, authorize, key=key), type=Mutation | None
            )
            if mutation is not None:
                return mutation
        raise AssertionError("the worker was sent the policy")

    async def _ask(self, request: Request, authorize: Authorize = deny, *, key: str = "") -> bytes:
        """Return the answer to a request. `key` names its rules.

        A request that is cancelled leaves the worker to finish: else a client could have it killed
        by going away, again and again.
        """
        is_begun = asyncio.Event()
        task = asyncio.create_task(self._ask_in_turn(request, authorize, key, is_begun))
        self._begun.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not is_begun.is_set():
                task.cancel()
            raise

    def _done(self, task: asyncio.Task[bytes]) -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()  # Seen, also where the request is gone.

    async def _ask_in_turn(
        self, request: Request, authorize: Authorize, key: str, is_begun: asyncio.Event
    ) -> bytes:
        """Ask in the lane of a key, which may be another when its turn has come."""
        if not self._is_slow(key):
            with self._lane.place():
                async with self._lane.turn:
                    if not self._is_slow(key):
                        is_begun.set()
                        return await self._ask_timed(self._lane, request, authorize, key)
        with self._slow_lane.place():
            async with self._slow_lane.turn:
                is_begun.set()
                return await self._ask_timed(self._slow_lane, request, authorize, key)

    async def _ask_timed(
        self, lane: _Lane, request: Request, authorize: Authorize, key: str
    ) -> bytes:
        cpu_s = DEADLINE_S
        try:
            answer = await lane.ask(request, authorize)
            cpu_s = answer.cpu_s
            return bytes(answer.body)
        finally:
            if key and cpu_s > _LONG_S and not isinstance(request, _COMPILATIONS):
                self._slow[key] = asyncio.get_running_loop().time() + _SLOW_S
                self._slow.move_to_end(key)
                if len(self._slow) > _MOST_SLOW:
                    self._slow.popitem(last=False)

    def _is_slow(self, key: str) -> bool:
        until = self._slow.get(key)
        if until is None:
            return False
        if asyncio.get_running_loop().time() < until:
            return True
        del self._slow[key]
        return False
