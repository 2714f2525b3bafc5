"""Pod sandboxes: namespaces, a network and files that the containers of a pod share."""
