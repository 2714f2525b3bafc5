"""Parts that run alone, as clients of any Kubernetes API server that a kubeconfig names.

Each is what `moor up` runs too, without a data directory of a cluster, supervisor or certificates
of ours. They hold no lease of a leader: one of each runs for a cluster, in the place of upstream's.
"""
