"""Opaque types: values that only the functions of a library can make and use.

The CEL library has no opaque types of a caller's own. A message of one field takes their place: the
type checker knows it by name, and two are equal when their texts are.
"""

from __future__ import annotations

from typing import Any

from cel_expr_python import cel
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

_PACKAGE = "kubernetes"
_NAMES = (
    "CIDR", "IP", "NamedFormat", "Quantity", "URL", "authorization.Authorizer",
    "authorization.Decision", "authorization.GroupCheck",     "authorization.ResourceCheck",
)  # fmt: skip
_WELL_KNOWN = (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


def make_pool(
    *others: descriptor_pb2.FileDescriptorProto,
) -> descriptor_pool.DescriptorPool:
    """Return the message types that expressions know, and those of other files."""
    pool = descriptor_pool.DescriptorPool()
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for name in _NAMES:
        package, _, own = f"{_PACKAGE}.{name}".rpartition(".")
        if package not in files:
            files[package] = descriptor_pb2.FileDescriptorProto(
                name=f"{package}.proto", package=package, syntax="proto3"
            )
        files[package].message_type.add(name=own).field.add(
            name="text",
            number=1,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        )
    for file in (*files.values(), *others):
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = make_pool()
"""The message types that expressions know."""


class OpaqueType:
    """One opaque type: `cel` is the checker's type, a call makes a value of a canonical text."""

    def __init__(self, name: str) -> None:
        descriptor = POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        self._message = message_factory.GetMessageClass(descriptor)
        self.cel = cel.Type(f"{_PACKAGE}.{name}")

    def __call__(self, text: str) -> Any:
        return self._message(text=text)


(
    CIDR, IP, NAMED_FORMAT, QUANTITY, URL, AUTHORIZER, DECISION, GROUP_CHECK,
    RESOURCE_CHECK,
) = (OpaqueType(name) for name in _NAMES)  # fmt: skip
