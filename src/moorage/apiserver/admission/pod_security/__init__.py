"""Pod Security Standards: what pods may ask for in a namespace.

    plugin.py ──▶ policy.py         the levels that a namespace's labels set
              ├─▶ standards.py      which checks a level has in a version
              ├─▶ checks.py         the checks
              └─▶ configuration.py  the levels without labels, and exemptions, of a file

Source: KEP-2579, API docs "Pod Security Standards".
"""

from moorage.apiserver.admission.pod_security.plugin import PodSecurity
from moorage.apiserver.admission.pod_security.policy import Configuration

__all__ = ["Configuration", "PodSecurity"]
