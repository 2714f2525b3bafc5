"""Pod cgroups: the QoS tree and its values, on cgroup v1, v2 and hybrid layouts."""
