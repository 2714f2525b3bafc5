"""Runtime handlers of a host: discovery, availability and features."""

from moorage.handlers.availability import Verdict
from moorage.handlers.catalogue import Catalogue, Diagnostic, OfferedHandler, changed_names
from moorage.handlers.defects import gvisor_defect
from moorage.handlers.definition import (
    AdapterKind,
    CgroupDriver,
    DefinitionError,
    HandlerDefinition,
    OciOptions,
    RunscOptions,
    ShimOptions,
    parse_definition,
)
from moorage.handlers.discovery import Handler, discover
from moorage.handlers.features import HandlerFeatures
from moorage.handlers.machine import Machine, this_machine
from moorage.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.handlers.search_path import search_path
from moorage.handlers.watching import HandlerDirectory

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
