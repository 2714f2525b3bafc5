"""The process that evaluates expressions: `python -m moorage.cel.worker DESCRIPTOR`.

Answers requests on a socket, one after the other, until it is closed. A request that needs more
memory than the limit, or that never ends, costs this process alone: the evaluator starts another.
"""

from __future__ import annotations

import resource
import socket
import sys
from collections import OrderedDict
from typing import Any, BinaryIO

import msgspec

from moorage.cel.messages import CheckObject, CheckSchema, Problem, Request, Violation
from moorage.cel.program import CompileError
from moorage.cel.schema_rules import Node, compile_schema, schema_problems, violations_of
from moorage.linux.parent_death import die_with_parent

MEMORY_BYTES = 512 << 20
"""The most address space of the process; at rest it has about 40 MiB."""

HEADER_BYTES = 4
_SCHEMAS = 256

_decoder = msgspec.msgpack.Decoder(Request)
_encoder = msgspec.msgpack.Encoder()


class Schemas:
    """The compiled rules of the schemas that were used last."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[str, Node | None] = OrderedDict()

    def check(self, request: CheckObject) -> list[Violation] | None:
        """Return the violations of an object, None where the schema has to be sent too."""
        if request.key not in self._nodes:
            if request.schema is None:
                return None
            try:
                self._nodes[request.key] = compile_schema(request.schema)
            except CompileError as error:
                # Stored by another version, which had a function more.
                return [Violation("", f"rule compile error: {error}", value="object")]
            if len(self._nodes) > _SCHEMAS:
                self._nodes.popitem(last=False)
        self._nodes.move_to_end(request.key)
        node = self._nodes[request.key]
        return [] if node is None else violations_of(node, request.new, request.old)


def serve(connection: socket.socket) -> None:
    """Answer requests until the other side closes the connection."""
    schemas = Schemas()
    with connection, connection.makefile("rb") as requests:
        while (body := _read(requests)) is not None:
            answer = _encoder.encode(_answer(schemas, _decoder.decode(body)))
            connection.sendall(len(answer).to_bytes(HEADER_BYTES) + answer)


def _read(requests: BinaryIO) -> bytes | None:
    header = requests.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    return requests.read(int.from_bytes(header))


def _answer(
    schemas: Schemas, request: CheckSchema | CheckObject
) -> list[Problem] | list[Violation] | None:
    if isinstance(request, CheckSchema):
        return schema_problems(request.schema)
    return schemas.check(request)


def main(argv: list[str]) -> Any:
    """Serve the connection whose descriptor is the argument."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(socket.socket(fileno=int(argv[1])))


if __name__ == "__main__":
    main(sys.argv)
