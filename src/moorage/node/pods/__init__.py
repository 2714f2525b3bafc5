"""The life of a pod on this node: from the object that names the node to nothing left of it."""
