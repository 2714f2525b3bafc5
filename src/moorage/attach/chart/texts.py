"""Texts of the chart that are no template of an object: Chart.yaml, NOTES, the test."""

from __future__ import annotations

from moorage import __version__
from moorage.attach.manifests.identity import TEST_POD, Obj, labels, metadata, part_name
from moorage.attach.manifests.webhook import SECRET
from moorage.attach.survey import LEAST_MINOR
from moorage.attach.values import Values

CHART = f"""\
apiVersion: v2
name: moorage
description: Runtime handlers discovered, probed and used well, on any Kubernetes
type: application
version: {__version__}
appVersion: "{__version__}"
kubeVersion: ">=1.{LEAST_MINOR}.0-0"
"""

NOTES = """\
Moorage {{ $.Chart.AppVersion }} is being installed in namespace \
{{ default $.Release.Namespace $.Values.namespace }}.

{{- if not $.Values.createNamespace }}

Where the cluster enforces pod security, the namespace needs the level that the runtime agents have:

  kubectl label --overwrite namespace {{ default $.Release.Namespace $.Values.namespace }} \
pod-security.kubernetes.io/enforce=privileged
{{- end }}

See whether it answers, which handlers work where, and their classes:

  helm test {{ $.Release.Name }} -n {{ $.Release.Namespace }}
  kubectl get runtimeprofiles
  kubectl get runtimeclasses

To remove it, first run

  moor detach

while the parts still run, and then

  helm uninstall {{ $.Release.Name }} -n {{ $.Release.Namespace }}

The latter alone keeps the definitions of runtime.moorage.dev with your policies, the \
RuntimeClasses that were made, labels of nodes, annotations, conditions and scheduling gates of \
pods, the Secret moorage-webhook-tls, the Lease moorage-controllers, the ConfigMap \
kube-system/moorage-runtime-classes, and what is installed on nodes. `moor detach` afterwards \
removes all but the last.
"""

_TEST = "answers"
_WEBHOOK = part_name("webhook")
_WAIT_SECONDS = 120
_PROGRAM = """\
import ssl, sys, time, urllib.request
trusted = ssl.create_default_context(cafile="/certificates/ca.crt")
url, end = "https://{host}/readyz", time.monotonic() + {seconds}
while True:
    try:
        with urllib.request.urlopen(url, context=trusted, timeout=10) as answer:
            print("the webhook answers:", answer.status)
        break
    except OSError as error:
        if time.monotonic() > end:
            sys.exit(f"the webhook does not answer at {{url}}: {{error}}")
    time.sleep(1)
"""


def test_objects(values: Values) -> list[Obj]:
    """Return the pod of `helm test`, which asks the webhook by its service whether it is ready."""
    made = metadata(TEST_POD, namespace=values.namespace)
    made["annotations"] = {
        "helm.sh/hook": "test",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }
    made["labels"] = labels("test")
    program = _PROGRAM.format(host=f"{_WEBHOOK}.{values.namespace}.svc", seconds=_WAIT_SECONDS)
    container = {
        "name": _TEST,
        "image": values.image,
        "imagePullPolicy": values.image_pull_policy,
        "command": ["python3", "-c", program],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "authority", "mountPath": "/certificates", "readOnly": True},
        ],
    }
    authority = {
        "name": "authority",
        "secret": {
            "secretName": SECRET,
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
        },
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": made,
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "containers": [container],
                "volumes": [authority],
            },
        }
    ]
