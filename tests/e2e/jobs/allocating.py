"""Takes memory through every allocator there is: the job in the tests of waiting for memory."""

from cuda.bindings import driver as cu
from gpu import ok

GLOBAL = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
PINNED = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
DEVICE = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
held = []  # (how to free it, what was allocated) for each allocation


def pool():
    props = cu.CUmemPoolProps()
    props.allocType, props.location.type = PINNED, DEVICE
    return ok(cu.cuMemPoolCreate(props))


def physical(size):
    prop = cu.CUmemAllocationProp()
    prop.type, prop.location.type = PINNED, DEVICE
    return cu.cuMemCreate(size, prop, 0)


def shape(kind, size, depth=0):
    found = kind()
    found.Width, found.Height = 1 << 14, size // (1 << 14) // 4 // (depth or 1)
    if depth:
        found.Depth = depth
    found.Format, found.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    return found


def launch(size):
    """Launch a graph with one memory node, which keeps what it allocated until it is trimmed."""
    graph = ok(cu.cuGraphCreate(0))
    params = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType, params.poolProps.location.type = PINNED, DEVICE
    params.bytesize = size
    node = ok(cu.cuGraphAddMemAllocNode(graph, [], 0, params))
    ok(cu.cuGraphAddMemFreeNode(graph, [node], 1, params.dptr))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    return (*cu.cuGraphLaunch(executable, 0), executable)


def end_graph(executable):
    ok(cu.cuGraphExecDestroy(executable))
    return cu.cuDeviceGraphMemTrim(0)


def free_async(address):
    ok(cu.cuMemFreeAsync(address, 0))
    return cu.cuCtxSynchronize()


ALLOCATORS = {
    "pitch": (lambda size: cu.cuMemAllocPitch(1 << 20, size >> 20, 4), cu.cuMemFree),
    "managed": (lambda size: cu.cuMemAllocManaged(size, GLOBAL), cu.cuMemFree),
    "async": (lambda size: cu.cuMemAllocAsync(size, 0), free_async),
    "from_pool": (lambda size: cu.cuMemAllocFromPoolAsync(size, POOL, 0), free_async),
    "physical": (physical, cu.cuMemRelease),
    "array": (
        lambda size: cu.cuArrayCreate(shape(cu.CUDA_ARRAY_DESCRIPTOR, size)),
        cu.cuArrayDestroy,
    ),
    "mipmapped": (
        lambda size: cu.cuMipmappedArrayCreate(shape(cu.CUDA_ARRAY3D_DESCRIPTOR, size, 2), 1),
        cu.cuMipmappedArrayDestroy,
    ),
    "graph": (launch, end_graph),
}
POOL = pool()


def take(name, size):
    """Allocate `size` bytes and return the name of the allocator's answer."""
    allocate, free = ALLOCATORS[name]
    status, *made = allocate(size)
    if status == cu.CUresult.CUDA_SUCCESS:
        held.append((free, made[0]))
    return status.name


def give_back():
    """Free all of it; return the name of the last answer."""
    while held:
        free, made = held.pop()
        (status,) = free(made)
    ok(cu.cuMemGetInfo())  # asks the device, which first takes back what was released before
    return status.name
