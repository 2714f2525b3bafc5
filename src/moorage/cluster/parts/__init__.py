"""The processes of a cluster: `python -m moorage.cluster.parts NAME DATA_DIR` is one of them.

    apiserver     the API and its store
    controllers   controllers and scheduler
    engine        the container engine, unless another's is used
    node          the node agent

Each imports only its own code, which is most of an idle process's memory.
"""
