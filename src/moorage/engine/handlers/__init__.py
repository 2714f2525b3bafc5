"""Runtime handlers of a host: discovery, availability and features."""

from moorage.engine.handlers.availability import Verdict
from moorage.engine.handlers.defects import gvisor_defect
from moorage.engine.handlers.definition import (
    AdapterKind,
    CgroupDriver,
    DefinitionError,
    HandlerDefinition,
    OciOptions,
    RunscOptions,
    ShimOptions,
    parse_definition,
)
from moorage.engine.handlers.discovery import Handler, discover
from moorage.engine.handlers.features import HandlerFeatures, Machine, this_machine
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.engine.handlers.search_path import search_path
from moorage.engine.handlers.templates import Catalogue, Diagnostic, OfferedHandler, changed_names
from moorage.engine.handlers.watching import HandlerDirectory

__all__ = [
    "KNOWN_RUNTIMES",
    "AdapterKind",
    "Catalogue",
    "CgroupDriver",
    "DefinitionError",
    "Diagnostic",
    "Handler",
    "HandlerDefinition",
    "HandlerDirectory",
    "HandlerFeatures",
    "Machine",
    "OciOptions",
    "OfferedHandler",
    "RunscOptions",
    "Runtime",
    "ShimOptions",
    "Verdict",
    "changed_names",
    "discover",
    "gvisor_defect",
    "parse_definition",
    "search_path",
    "this_machine",
]
