"""Images in every kind of wrapping, and broken ones, through the load calls."""

PROGRAM = """
import struct
gpu = Gpu()
from pathlib import Path
library = Path(os.environ["TEST_IMAGE"]).read_bytes()
PTX = b".version 8.0\\n.target sm_%d\\n.entry affine(.param .u64 x) { ret; }\\n\\0"

def entry(kind, arch, payload, flags=0x11, plain=0):
    padded = payload + bytes(-len(payload) % 8)
    size = len(payload) if plain else 0
    head = (kind, 0x101, 64, len(padded), size, 0, 0, arch, 0, flags, 0, plain)
    return struct.pack("<HHIQIIIIQQQQ", *head) + padded

def fatbin(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body

def stored(data):  # an LZ4 block of literals only
    extra = len(data) - 15
    return bytes([0xF0, *[255] * (extra // 255), extra % 255]) + data

def load(image):
    return cu.cuModuleLoadData(image)

def works(module):
    word = gpu.word(3)
    f = ok(cu.cuModuleGetFunction(module, b"affine"))
    types = (None, ctypes.c_uint, ctypes.c_uint)
    ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, ((word, 2, 1), types), 0))
    return gpu.read(word) == [7]
"""


def test_a_fat_binary_is_chosen_from_by_architecture(gpu):
    gpu.run(
        PROGRAM
        + """
assert works(ok(load(fatbin(entry(2, 100, b"not for us"), entry(2, 90, library)))))
assert works(ok(load(fatbin(entry(2, 90, stored(library), 0x2011, len(library))))))
assert refused(load(fatbin(entry(2, 100, library)))) == "NO_BINARY_FOR_GPU"
assert refused(load(fatbin(entry(2, 80, library)))) == "NO_BINARY_FOR_GPU"  # another major
assert refused(load(fatbin())) == "NO_BINARY_FOR_GPU"
container = ctypes.create_string_buffer(fatbin(entry(2, 90, library)))
wrapper = struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(container), 0)
assert works(ok(load(wrapper)))
"""
    )


def test_bodies_from_elsewhere_serve_foreign_images(gpu):
    gpu.run(
        PROGRAM
        + """
assert works(ok(load(PTX % 80)))
assert works(ok(load(fatbin(entry(1, 90, PTX % 90)))))
assert refused(load(PTX % 120)) == "INVALID_PTX"
""",
        TANDEM_SOFTGPU_KERNELS=str(gpu.image),
    )


def test_broken_images_have_the_documented_errors(gpu):
    gpu.run(
        PROGRAM
        + """
path = os.environ["TEST_CUT"]
for length in (0, 3, 63, 64, 1000, len(library) // 2, len(library) - 1):
    Path(path).write_bytes(library[:length])
    assert refused(cu.cuModuleLoad(path.encode())) in ("INVALID_IMAGE", "INVALID_PTX"), length
assert refused(cu.cuModuleLoad(b"/")) == "FILE_NOT_FOUND"
whole = fatbin(entry(2, 90, library))
for length in (16, 40, 80, len(whole) - 8):
    Path(path).write_bytes(whole[:length])
    assert refused(cu.cuModuleLoad(path.encode())) == "INVALID_IMAGE", length
assert refused(load(fatbin(entry(2, 90, b"\\xff" * 64, 0x2011, 1 << 40)))) == "INVALID_IMAGE"
host = Path("/proc/self/exe").read_bytes()
assert refused(load(host)) == "NO_BINARY_FOR_GPU"
""",
        TEST_CUT=str(gpu.folder / "cut"),
    )


def test_logs_and_their_sizes_go_back_to_the_program(gpu):
    gpu.run(
        PROGRAM
        + """
log = ctypes.create_string_buffer(b"x" * 256, 256)
options = (ctypes.c_int * 3)(5, 6, 2)  # error log, its size, wall time
values = (ctypes.c_void_p * 3)(ctypes.addressof(log), 40, 7)
module = ctypes.c_void_p()
load_ex = libcuda.cuModuleLoadDataEx
assert load_ex(ctypes.byref(module), b"no PTX at all", 3, options, values) == 218
assert values[1] == 39 == len(log.value) and log.raw[40:] == b"x" * 216
assert ctypes.c_float.from_buffer(values, 16).value >= 0
assert load_ex(ctypes.byref(module), library, 3, options, values) == 0
assert not values[1] and log.value == b""
options[0] = 99
assert load_ex(ctypes.byref(module), library, 3, options, values) == 1
assert load_ex(ctypes.byref(module), library, 3, None, values) == 1
"""
    )
