"""Access to a cluster: its certificate authority, certificates of parts, kubeconfig files."""
