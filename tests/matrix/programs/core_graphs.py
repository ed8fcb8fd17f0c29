"""cuda.core: graphs by capture and by hand, with branches, copies and callbacks."""

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions
from cuda.core import launch as launch_kernel
from cuda.core.graph import GraphDefinition

SOURCE = """
extern "C" __global__ void affine(unsigned* x, unsigned a, unsigned b) { *x = *x * a + b; }
"""

device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(arch=f"sm_{device.arch}")
affine = Program(SOURCE, code_type="c++", options=options).compile("ptx").get_kernel("affine")
once = LaunchConfig(grid=1, block=1)
pinned = LegacyPinnedMemoryResource()
words = pinned.allocate(16)
word = np.from_dlpack(words).view(np.uint32)
word[:] = 0

# By capture: two branches that join again.
builder = device.create_graph_builder().begin_building()
launch_kernel(builder, once, affine, words, np.uint32(1), np.uint32(1))
left, right = builder.split(2)
second = words.from_handle(int(words.handle) + 4, 4)
launch_kernel(left, once, affine, words, np.uint32(10), np.uint32(2))
launch_kernel(right, once, affine, second, np.uint32(1), np.uint32(5))
builder = left.join(left, right)
called = []
builder.callback(lambda: called.append(list(word[:2])))
graph = builder.end_building().complete()
assert list(word[:2]) == [0, 0]  # captured, but not run
graph.upload(stream)
graph.launch(stream)
graph.launch(stream)
stream.sync()
assert called == [[12, 5], [132, 10]]
assert list(word[:2]) == [132, 10]

# By hand: nodes that depend on each other and nodes that do not.
definition = GraphDefinition()
first = definition.memset(words, 0, 4)
then = first.launch(once, affine, words, np.uint32(3), np.uint32(7))
last = then.memcpy(int(words.handle) + 8, words, 4)
assert definition.nodes() == {first, then, last}
assert definition.edges() == {(first, then), (then, last)}
graph = definition.instantiate()
graph.launch(stream)
stream.sync()
assert word[2] == 7
