"""A device plugin: the kubelet of Kubernetes counts slices of GPUs, and pods share by them.

Importing this loads gRPC, so nothing but `tandem kubernetes` does.

    slices      what the kubelet counts, and which of them belong together
    inventory   which there are, which of them can be given out, and who is told
    readiness   whether the daemon is well
    container   what a container is started with that got some
    service     the calls of the kubelet, answered
    kubelet     how it comes to know of us, also after it has started anew
    sockets     how both are called
    plugin      all of it, until it is to end
"""
