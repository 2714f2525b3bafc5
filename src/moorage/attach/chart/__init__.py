"""Helm chart of an attachment, made of the same objects as `moor attach` installs.

stand_ins.py ──▶ manifests ──▶ templates.py      one template an object
values.py                                        values.yaml and its schema
texts.py                                         Chart.yaml, NOTES, the pod of `helm test`
"""

from __future__ import annotations

from pathlib import Path

from moorage.attach.chart.templates import Key, templates
from moorage.attach.chart.values import CHART, NOTES, schema_text, test_objects, values_text
from moorage.attach.manifests import DEFINITION, objects

__all__ = ["chart_files", "write_chart"]

_KEEP = "  annotations:\n    helm.sh/resource-policy: keep\n"
_METADATA = "metadata:\n"


def chart_files() -> dict[str, str]:
    """Return the chart's files by path. Raises TemplateError."""
    files = {
        "Chart.yaml": CHART,
        "values.yaml": values_text(),
        "values.schema.json": schema_text(),
        "templates/NOTES.txt": NOTES,
    }
    for key, text in templates(objects).items():
        files[_path(key)] = _kept(text) if key[0] == DEFINITION else text
    for key, text in templates(test_objects).items():
        files[f"templates/tests/{key[2]}.yaml"] = text
    return dict(sorted(files.items()))


def write_chart(directory: Path) -> list[Path]:
    """Write the chart into a directory, which is made. Returns the paths. Raises OSError."""
    written = []
    for name, text in chart_files().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        written.append(path)
    return written


def _path(key: Key) -> str:
    kind, namespace, name = key
    # An object of a namespace that is not the parts' own has it in its name.
    place = f"{namespace}-" if namespace not in ("", "namespace") else ""
    return f"templates/{kind.lower()}-{place}{name}.yaml"


def _kept(definition: str) -> str:
    """Have Helm keep a definition when it uninstalls: objects of its kind would go with it."""
    return definition.replace(_METADATA, _METADATA + _KEEP, 1)
