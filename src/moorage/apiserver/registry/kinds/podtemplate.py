"""PodTemplates. Source: core validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.columns.cells import NONE, label_text
from moorage.apiserver.registry.declare.columns import NAME, column, containers_of, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import update, validator
from moorage.apiserver.registry.defaults.pod_template import default_pod_template
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.warnings import spec_warnings

validate_pod_template = validator(("template", template_errors))


def warn_about_pod_template(pod_template: Obj, old: Obj | None) -> list[str]:
    """Return the warnings of a template that is new or changed."""
    template = pod_template["template"]
    if old is not None and old.get("template") == template:
        return []
    return spec_warnings(template.get("spec", {}), "template.spec")


def get_template(pod_template: Obj) -> object:
    """Return the template, which the generation of a PodTemplate counts."""
    return pod_template.get("template")


POD_TEMPLATE = Kind(
    name="PodTemplate",
    plural="podtemplates",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.PodTemplate"),),
    strategy=Strategy(
        default=defaults(("template", default_pod_template)),
        validate=validate_pod_template,
        validate_update=update(validate_pod_template),
        warn=warn_about_pod_template,
        spec_of=get_template,
        returns_deleted=True,
    ),
    printer=printer(
        NAME,
        *containers_of("template", priority=0),
        column(
            "Pod Labels",
            "template.metadata.labels",
            absent=NONE,
            show=label_text,
            description="The labels for the pod template.",
        ),
    ),
)
