"""Ours beside unmodified programs of Kubernetes, as docs/how-to/parts-of-kubernetes.md says.

Only with MOORAGE_KUBERNETES_BIN, a directory with kube-scheduler, kube-controller-manager, kubelet,
kube-apiserver and etcd of one's own making.
"""
