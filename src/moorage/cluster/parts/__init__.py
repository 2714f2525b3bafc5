"""The processes of a cluster: `python -m moorage.cluster.parts NAME DATA_DIR` is one of them.

    apiserver     the API and its store
    controllers   controllers and scheduler
    node          the node agent and, unless another is given, the container engine it drives

Each imports only its own code, which is most of what an idle process weighs.
"""
