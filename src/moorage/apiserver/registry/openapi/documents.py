"""OpenAPI documents, read from the package on demand."""

from __future__ import annotations

import gzip
import json
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

INDEX = "index.json"
SWAGGER = "swagger"
SWAGGER_PROTOBUF = "swagger-protobuf"


def file_name(path: str) -> str:
    """Return the file name of a document, by its path below `/openapi/v3/`."""
    return path.replace("/", "__") + ".gz"


class Document(msgspec.Struct, frozen=True):
    """A document's hash (SHA-512, upper-case hex) and the path of its compressed text."""

    hash: str
    place: Traversable

    def compressed(self) -> bytes:
        return self.place.read_bytes()

    def text(self) -> bytes:
        return gzip.decompress(self.compressed())


class Documents:
    """All documents: `v3` by path (`apis/node.k8s.io/v1`), v2 as JSON and as protobuf."""

    def __init__(self) -> None:
        directory = resources.files("moorage.apiserver.registry.openapi").joinpath("generated")
        index: dict[str, str] = json.loads(directory.joinpath(INDEX).read_text())
        documents = {
            path: Document(digest, directory.joinpath(file_name(path)))
            for path, digest in index.items()
        }
        self.swagger = documents.pop(SWAGGER)
        self.swagger_protobuf = documents.pop(SWAGGER_PROTOBUF)
        self.v3 = documents
