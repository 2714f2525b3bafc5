"""Parts of a cluster, one process each: `python -m moorage.cluster.parts NAME DATA_DIR`.

    apiserver     the API and its store
    controllers   controllers and scheduler, or one of them
    dns           the cluster DNS, where Services are routed
    engine        the container engine, unless an external one is used
    node          the node agent

Each imports only its own code, which is most of an idle process's memory.
"""
