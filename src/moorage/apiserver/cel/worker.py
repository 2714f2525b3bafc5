"""The process that evaluates expressions: `python -m moorage.apiserver.cel.worker DESCRIPTOR`.

Answers requests on a socket, one after the other, until it is closed. A request that needs more
memory than the limit, or that never ends, costs this process alone: the evaluator starts another.
"""

from __future__ import annotations

import resource
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.library.authorization import asking
from moorage.apiserver.cel.messages import (
    Answer,
    Check,
    CheckObject,
    CheckPolicy,
    CheckSchema,
    CheckTypes,
    Decision,
    EvaluateMutation,
    EvaluatePolicy,
    KeepSchema,
    Mutation,
    PolicyResult,
    Question,
    Request,
    Verdict,
)
from moorage.apiserver.cel.mutations import CompiledMutations
from moorage.apiserver.cel.policies import CompiledPolicy, policy_problems
from moorage.apiserver.cel.policy_scope import type_problems
from moorage.apiserver.cel.program import CompileError
from moorage.apiserver.cel.schema_checks import schema_problems
from moorage.apiserver.cel.schema_rules import compile_schema, violations_of
from moorage.linux.parent_death import die_with_parent

MEMORY_BYTES = 512 << 20
"""The most address space of the process; at rest it has about 40 MiB."""

HEADER_BYTES = 4
_KEPT = 256

_decoder = msgspec.msgpack.Decoder(Request)
_encoder = msgspec.msgpack.Encoder()

T = TypeVar("T")


class Compiled(Generic[T]):
    """What was compiled and used last, by the keys that the evaluator gave."""

    def __init__(self, make: Callable[[dict[str, Any]], T]) -> None:
        self._make = make
        self._made: OrderedDict[str, T] = OrderedDict()

    def has(self, key: str) -> bool:
        return key in self._made

    def get(self, key: str, source: dict[str, Any] | None) -> T:
        """Return the value of a key, compiled from its source if need be. Raises CompileError."""
        if key not in self._made:
            assert source is not None, "the evaluator sends the source when it is asked for it"
            self._made[key] = self._make(source)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return self._made[key]


class Service:
    """Answers the requests of one evaluator."""

    def __init__(self) -> None:
        self._schemas = Compiled(compile_schema)
        self._policies = Compiled(CompiledPolicy)
        self._mutations = Compiled(CompiledMutations)

    def answer(self, request: Request) -> Any:
        """Return the answer to a request, None where its source has to be sent too."""
        match request:
            case CheckSchema():
                return schema_problems(request.schema)
            case CheckPolicy():
                return policy_problems(request.policy)
            case CheckTypes():
                return type_problems(request.policy, request.kind, request.params)
            case KeepSchema():
                return self._keep(request)
            case CheckObject():
                if not self._schemas.has(request.key):
                    return None
                node = self._schemas.get(request.key, None)
                return [] if node is None else violations_of(node, request.new, request.old)
            case EvaluatePolicy():
                if request.policy is None and not self._policies.has(request.key):
                    return None
                return self._results(request)
            case EvaluateMutation():
                if request.policy is None and not self._mutations.has(request.key):
                    return None
                return self._mutation(request)

    def _keep(self, request: KeepSchema) -> str:
        try:
            self._schemas.get(request.key, request.schema)
        except CompileError as error:
            # Stored by another version, which had a function more.
            return str(error)
        return ""

    def _results(self, request: EvaluatePolicy) -> list[PolicyResult]:
        try:
            policy = self._policies.get(request.key, request.policy)
        except CompileError as error:
            failure = Decision(f"compilation error: {error}", is_error=True)
            return [PolicyResult([failure]) for _ in request.params]
        return [policy.evaluate(request.given, params) for params in request.params]

    def _mutation(self, request: EvaluateMutation) -> Mutation:
        try:
            policy = self._mutations.get(request.key, request.policy)
        except CompileError as error:
            return Mutation(error=f"compilation error: {error}")
        return policy.evaluate(request.given, request.params, request.index)


class Connection:
    """Messages on a socket, each with its length before it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._incoming: BinaryIO = connection.makefile("rb")

    def read(self) -> bytes | None:
        """Return the next message, None when the other side closed the connection."""
        header = self._incoming.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return None
        return self._incoming.read(int.from_bytes(header))

    def send(self, message: Any) -> None:
        body = _encoder.encode(message)
        self._socket.sendall(len(body).to_bytes(HEADER_BYTES) + body)

    def ask(self, check: Check) -> Verdict:
        """Return the answer to a question. Raises EOFError when the evaluator is gone."""
        self.send(Question(check))
        body = self.read()
        if body is None:
            raise EOFError
        return msgspec.msgpack.decode(body, type=Verdict)


def serve(connection: socket.socket) -> None:
    """Say that this process is ready, and answer requests until the connection is closed."""
    service = Service()
    with connection:
        messages = Connection(connection)
        make_environment({})
        messages.send(Answer(msgspec.Raw(_encoder.encode(None))))
        with asking(messages.ask):
            while (body := messages.read()) is not None:
                began_s = time.process_time()
                answer = _encoder.encode(service.answer(_decoder.decode(body)))
                messages.send(Answer(msgspec.Raw(answer), time.process_time() - began_s))


def main(argv: list[str]) -> Any:
    """Serve the connection whose descriptor is the argument."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(socket.socket(fileno=int(argv[1])))


if __name__ == "__main__":
    main(sys.argv)
