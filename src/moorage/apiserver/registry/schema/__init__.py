"""API schema: the types of the API's objects, and the codecs derived from them.

The types come from a published package of Kubernetes' definitions, joined with the table of
protobuf field numbers under `wire/`; both are compiled to one file at build time.

    bytes ──decode──▶ dict ──normalize──▶ canonical dict
"""

from moorage.apiserver.registry.schema.types import Field, Schema, Type, load_schema

__all__ = ["Field", "Schema", "Type", "load_schema"]
