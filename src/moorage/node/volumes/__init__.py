"""Pod volumes: mounted before a pod's containers start, refreshed, and removed."""
