"""PodTemplates. Source: core validation and strategy of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NAME, container_cells, label_text, name_of
from moorage.apiserver.registry.defaults.pod_template import default_pod_template
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.warnings import spec_warnings

_TYPES = "io.k8s.api.core.v1"


def default_template(pod_template: Obj) -> None:
    """Set the API defaults of a PodTemplate."""
    default_pod_template(pod_template.setdefault("template", {}))


def validate_pod_template(pod_template: Obj) -> list[FieldError]:
    """Return the errors of a PodTemplate."""
    return template_errors(pod_template["template"], "template")


def validate_pod_template_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update, which are those of the new PodTemplate."""
    del old
    return validate_pod_template(new)


def warn_about_pod_template(pod_template: Obj, old: Obj | None) -> list[str]:
    """Return the warnings of a template that is new or changed."""
    template = pod_template["template"]
    if old is not None and old.get("template") == template:
        return []
    return spec_warnings(template.get("spec", {}), "template.spec")


def get_template(pod_template: Obj) -> object:
    """Return the template, which the generation of a PodTemplate counts."""
    return pod_template.get("template")


def _pod_template_cells(pod_template: Obj, now: float) -> list[Any]:
    del now
    template = pod_template.get("template", {})
    return [
        name_of(pod_template),
        *container_cells(template),
        label_text(template.get("metadata", {}).get("labels")),
    ]


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Containers", description="Names of each container in the template."),
        Column("Images", description="Images referenced by each container in the template."),
        Column("Pod Labels", description="The labels for the pod template."),
    ),
    cells=_pod_template_cells,
)

POD_TEMPLATE = Kind(
    name="PodTemplate",
    plural="podtemplates",
    served=(Served(group="", version="v1", type=f"{_TYPES}.PodTemplate"),),
    strategy=Strategy(
        default=default_template,
        validate=validate_pod_template,
        validate_update=validate_pod_template_update,
        warn=warn_about_pod_template,
        spec_of=get_template,
        returns_deleted=True,
    ),
    printer=_PRINTER,
)
