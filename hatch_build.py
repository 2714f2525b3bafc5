"""What is generated when Moorage is built: the API's types, the stubs of the CRI and of shims.

All come from sources in this repository and from pinned build dependencies; the results lie in
`generated/` directories that are packaged but not committed.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path(__file__).parent / "src"
EXAMPLES = Path(__file__).parent / "examples"
PROTOS = (
    ("moorage/wire/cri", "runtime.proto", True),
    ("moorage/wire/cri", "engine.proto", True),
    # Shims speak ttrpc, for which there are no stubs to make: messages only.
    ("moorage/engine/handlers/adapters", "shim.proto", False),
)


class GenerateHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel or an editable install is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and version != "editable":
            # `moor demo` shows them wherever the wheel is installed.
            build_data["force_include"][str(EXAMPLES)] = "moorage/examples"
        sys.path.insert(0, str(SOURCE))
        try:
            from moorage.apiserver.registry.columns.build import generate_descriptions
            from moorage.apiserver.registry.kinds import ALL_KINDS
            from moorage.apiserver.registry.openapi.build import generate_openapi
            from moorage.apiserver.registry.schema.build import generate_schema

            generate_schema(ALL_KINDS, SOURCE / "moorage/apiserver/registry/schema/generated")
            generate_descriptions(ALL_KINDS, SOURCE / "moorage/apiserver/registry/columns")
            generate_openapi(SOURCE / "moorage/apiserver/registry/openapi/generated")
            # By path: importing the package `moorage.wire.cri` needs what is being generated here.
            stubs = runpy.run_path(str(SOURCE / "moorage/wire/cri/build.py"))
            for package, name, has_services in PROTOS:
                stubs["generate_stubs"](
                    SOURCE / package / "proto" / name,
                    SOURCE / package / "generated",
                    SOURCE,
                    has_services=has_services,
                )
        finally:
            sys.path.remove(str(SOURCE))
