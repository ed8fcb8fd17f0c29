"""A device plugin: the kubelet of Kubernetes counts slices of GPUs, and pods share GPUs by them.

Importing this loads gRPC, so only `tandem kubernetes` does.

    slices      what the kubelet counts, and which slices belong together
    inventory   which slices exist, which can be allocated, and who is told of changes
    readiness   whether the daemon is healthy
    container   what a container with slices is started with
    service     answers the kubelet's calls
    kubelet     registers the plugin, again after a restart of the kubelet
    sockets     opens channels to both
    plugin      all of it, from start to end
"""
