"""Class of a measurement: the one whose scheduling rules and declared overhead count."""

from __future__ import annotations

from moorage.api.runtime_classes import RuntimeClass
from moorage.runtimeclass.class_versions import newest_version, origin_of
from moorage.runtimeclass.temporary_classes import is_temporary
from moorage.runtimes.overhead.errors import MeasurementError
from moorage.runtimes.overhead.options import MeasureOptions
from moorage.wire.client.resources import NODES, RUNTIME_CLASSES
from moorage.wire.client.rest import Client


async def check_handler(client: Client, options: MeasureOptions) -> None:
    """Check that a node has the handler, before pods wait for one.

    Nodes that report no handlers at all, as kubelets of old engines, may have it. Raises
    MeasurementError, StatusError, UnreachableError.
    """
    nodes = [
        node
        for node in (await client.list(NODES)).items
        if options.node in ("", node.metadata.name)
    ]
    reported = [{one.name for one in node.status.runtime_handlers} for node in nodes]
    if any(not names or options.handler in names for names in reported):
        return
    where = f"node {options.node}" if options.node else "any node"
    names = sorted(filter(None, set().union(*reported)))
    raise MeasurementError(
        f"there is no handler {options.handler} on {where}; handlers that nodes report: "
        f"{', '.join(names) or 'none'}"
    )


async def find_class(client: Client, options: MeasureOptions) -> RuntimeClass | None:
    """Return the class that the options name, or the only one of the handler; None without one.

    Of several versions of one class the newest counts. Raises MeasurementError when the class has
    another handler, or several classes have the handler; StatusError, UnreachableError.
    """
    if options.runtime_class:
        runtime_class = await client.get(RUNTIME_CLASSES, options.runtime_class)
        if runtime_class.handler != options.handler:
            raise MeasurementError(
                f"class {options.runtime_class} has the handler {runtime_class.handler}, not "
                f"{options.handler}"
            )
        return runtime_class
    classes = [
        one
        for one in (await client.list(RUNTIME_CLASSES)).items
        if one.handler == options.handler
        and not is_temporary(one.metadata.name, one.metadata.labels)
    ]
    origins = sorted({origin_of(one.metadata) for one in classes})
    if len(origins) > 1 and options.handler in origins:
        # The class that has the handler's name is the one that discovery creates.
        origins = [options.handler]
    if len(origins) > 1:
        raise MeasurementError(
            f"several classes have the handler {options.handler}: {', '.join(origins)}; choose one "
            "with --class"
        )
    if not origins:
        return None
    newest = newest_version(origins[0], [one.metadata for one in classes])
    return next(one for one in classes if one.metadata.name == newest)
