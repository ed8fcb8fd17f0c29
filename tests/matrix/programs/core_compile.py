"""cuda.core: what NVRTC and the linkers produce, without loading it."""

from cuda.core import Device, Linker, ObjectCode, Program, ProgramOptions

SOURCE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'

device = Device()
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
program = Program(SOURCE, code_type="c++", options=options)
ptx = program.compile("ptx")
assert b".entry twice" in bytes(ptx.code)
cubin = Program(SOURCE, code_type="c++", options=options).compile("cubin")
assert bytes(cubin.code)[:4] == b"\x7fELF"

refused = None
try:
    Program("__global__ void broken(", code_type="c++", options=options).compile("ptx")
except Exception as error:
    refused = error
assert "error" in str(refused)

again = ObjectCode.from_ptx(bytes(ptx.code))
assert again.code_type == "ptx"
assert Linker.which_backend() in ("nvJitLink", "driver")
