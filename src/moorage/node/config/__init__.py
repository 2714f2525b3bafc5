"""CRI configurations from a pod's spec: pure except where a file is needed."""
