"""Defects of runtime handlers that probes have found on this machine.

They take the place of what is known by version: the same program may behave otherwise on another
kernel or platform.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from moorage.cluster.layout import PROBE_RESULTS
from moorage.engine.handlers import Handler, HandlerDefinition, search_path
from moorage.engine.handlers.defects import GVISOR_REMEDY, Defect
from moorage.runtimeclass.features import lacks
from moorage.runtimes.probing.cache import ProbeCache, ProbedHandler

_REMEDY = "use another runtime, or another version of this one, and another class until then"
_GVISOR = "runsc"


def probed_defect(program: str) -> Defect | None:
    """Return the defect that probes found of a program; None where it was not probed as it is.

    Blocks for some file reads.
    """
    cache = ProbeCache(PROBE_RESULTS)
    digest = f"sha256:{cache.load_digests().of(Path(program))}"
    for probed in cache.all():
        if (probed.program, probed.digest) == (program, digest) and probed.features:
            return defect_of(probed)
    return None


def defect_of(probed: ProbedHandler) -> Defect:
    """Return the effect of a handler's findings on ordinary programs; empty without a defect."""
    lacking = lacks(probed.features)
    if not lacking:
        return Defect()
    remedy = GVISOR_REMEDY if Path(probed.program).name == _GVISOR else _REMEDY
    return Defect(f"probes found: {'; '.join(lacking)}", remedy)


def defect_warnings(
    handlers: Iterable[Handler], definitions: Mapping[str, HandlerDefinition] | None = None
) -> tuple[str, ...]:
    """Return a sentence, with the remedy, for each program of available handlers with a defect.

    What probes found of a program takes the place of the defect of its version. A handler whose
    definition names another program is left out. Blocks for some file reads.
    """
    names: dict[str, list[str]] = {}
    by_program: dict[str, Handler] = {}
    for handler in handlers:
        definition = (definitions or {}).get(handler.handler)
        if handler.available and (definition is None or _runs(definition, handler.path)):
            program = handler.path or handler.handler
            names.setdefault(program, []).append(handler.handler)
            by_program[program] = handler
    warnings = []
    for program, handler in by_program.items():
        probed = probed_defect(handler.path) if handler.path else None
        defect = Defect(handler.defect, handler.defect_remedy) if probed is None else probed
        if defect.meaning:
            version = f"{handler.path} {handler.version}".strip()
            warnings.append(
                f"classes of handler {', '.join(names[program])} ({version}): "
                f"{defect.meaning}; {defect.remedy}"
            )
    return tuple(warnings)


def _runs(definition: HandlerDefinition, path: str) -> bool:
    program = shutil.which(definition.binary, path=search_path())
    return program is not None and Path(program) == Path(path)
