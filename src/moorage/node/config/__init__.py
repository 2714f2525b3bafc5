"""From a pod's specification to the CRI's configurations: pure wherever no file is needed."""
