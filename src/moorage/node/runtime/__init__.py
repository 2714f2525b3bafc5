"""Engine access of the node agent: CRI calls, observed state, labels."""
