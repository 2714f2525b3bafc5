"""Facts of a pod that every floor of the node agent reads: containers, QoS, labels, events."""
