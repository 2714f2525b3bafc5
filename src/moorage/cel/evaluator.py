"""Evaluator: asks the worker process, with a deadline, and replaces it when it is lost.

The worker is started with the first expression: a server without rules never has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from moorage.cel.messages import (
    Answer,
    Check,
    CheckObject,
    CheckPolicy,
    CheckSchema,
    CheckTypes,
    EvaluateMutation,
    EvaluatePolicy,
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

_START_S = 30.0
_WAITING = 256
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

    def __init__(self) -> None:
        own, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = Child(
                    [sys.executable, "-m", "moorage.cel.worker", str(theirs.fileno())],
                    stderr=subprocess.DEVNULL,
                    passing=[theirs.fileno()],
                )
            except OSError:
                own.close()
                raise
        self._socket = own
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: Request, authorize: Authorize) -> bytes:
        """Send a request, answer the worker's questions and return its answer.

        Raises EOFError and OSError when it is lost.
        """
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        await self._send(self._writer, request)
        while True:
            header = await self._reader.readexactly(_HEADER_BYTES)
            body = await self._reader.readexactly(int.from_bytes(header))
            reply = _decoder.decode(body)
            if isinstance(reply, Answer):
                return bytes(reply.body)
            await self._send(self._writer, authorize(reply.check))

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


class Evaluator:
    """Compiles and evaluates expressions in another process. `async with` ends that."""

    def __init__(self, *, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._worker: _Worker | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

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
        """End the worker; a later request starts another."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.end()

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
        for sent in (None, schema):
            answer = await self._ask(CheckObject(key, sent, new, old))
            violations = msgspec.msgpack.decode(answer, type=list[Violation] | None)
            if violations is not None:
                return violations
        raise AssertionError("the worker was sent the schema")

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
            answer = await self._ask(EvaluatePolicy(key, sent, given, params), authorize)
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
                await self._ask(request, authorize), type=Mutation | None
            )
            if mutation is not None:
                return mutation
        raise AssertionError("the worker was sent the policy")

    async def _ask(self, request: Request, authorize: Authorize = deny) -> bytes:
        if self._waiting >= _WAITING:
            raise BusyError("too many requests wait for CEL rules already, please try again later")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._ask_worker(request, authorize)
        finally:
            self._waiting -= 1

    async def _ask_worker(self, request: Request, authorize: Authorize) -> bytes:
        """Ask the worker; one that does not answer is killed, so that the next one can."""
        is_answered = False
        is_first = self._worker is None
        try:
            if self._worker is None:
                self._worker = _Worker()
            # The first request waits for the start, whose imports are not the request's fault.
            deadline_s = _START_S if is_first else self._deadline_s
            async with asyncio.timeout(deadline_s):
                answer = await self._worker.ask(request, authorize)
            is_answered = True
            return answer
        except TimeoutError as error:
            raise LimitError(f"the rules took longer than {self._deadline_s:g} s") from error
        except (OSError, EOFError) as error:
            raise LimitError("the rules needed more memory than they may") from error
        finally:
            if not is_answered:
                _log.warning("the CEL worker is replaced: it did not answer")
                await self.close()
