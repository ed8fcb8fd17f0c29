"""Training and inference with the memory they use, and the phases of their launches.

Beyond the operations of parts.py: ("alloc", name, bytes), ("free", name), and ("phase", name), a
label of the launches that follow. Memory is what reaches the driver: nothing, once an allocator
keeps what it has.
"""

from collections.abc import Iterator

from iterations.parts import Operation, Program

MIB = 1 << 20
FORWARD = "norm.f gemm rope.f flash.f gemm add norm.f gemm gelu.f gemm add"
BACKWARD = "add norm.b gemm gemm gelu.b gemm gemm add norm.b gemm gemm flash.b rope.b gemm gemm"
ADAM = "mul lerp addcmul sqrt div addcdiv"


def kernels(names: str) -> Program:
    for name in names.split():
        yield "launch", name


def _with_workspaces(operations: Program, megabytes: int) -> Program:
    """Every product of matrices gets memory of its own for as long as it takes."""
    for operation in operations:
        if operation != ("launch", "gemm"):
            yield operation
            continue
        yield "alloc", "workspace", str(megabytes * MIB)
        yield operation
        yield "free", "workspace"


def _pass(layers: int, *, activations: int, gradients: int) -> Program:
    """Forward and backward; sizes in MiB a layer, 0 = the allocator has them already."""
    yield "phase", "forward"
    yield from kernels("embed.f")
    for layer in range(layers):
        if activations:
            yield "alloc", f"input{layer}", str(activations * MIB // 2)
            yield "alloc", f"inner{layer}", str(activations * MIB // 2)
        yield from kernels(FORWARD)
    yield from kernels("head softmax.f loss.f")
    yield "phase", "backward"
    yield from kernels("loss.b softmax.b gemm gemm")
    for layer in reversed(range(layers)):
        if gradients:
            yield "alloc", f"gradient{layer}", str(gradients * MIB)
        yield from kernels(BACKWARD)
        if activations:
            yield "free", f"inner{layer}"
            yield "free", f"input{layer}"
    yield from kernels("embed.b")


def _free_gradients(layers: int) -> Program:
    for layer in range(layers):
        yield "free", f"gradient{layer}"


def _update(names: str, times: int) -> Program:
    yield "phase", "update"
    for _ in range(times):
        yield from kernels(names)


def _train(iteration: Iterator[Operation]) -> Program:
    yield ("to_device",)
    yield from iteration
    yield ("to_host",)
    yield ("step",)


def train_without_cache(iterations: int = 8, layers: int = 12) -> Program:
    """Activations are allocated and freed by the driver; gradients stay."""
    for _ in range(iterations):
        yield from _train((*_pass(layers, activations=64, gradients=0), *_update(ADAM, 4 * layers)))


def drop_gradients(iterations: int = 8, layers: int = 12) -> Program:
    """Gradients, larger than the activations, are freed behind the update; so are workspaces."""
    for _ in range(iterations):
        once = (
            *_pass(layers, activations=16, gradients=96),
            *_update(ADAM, 4 * layers),
            *_free_gradients(layers),
        )
        yield from _train(_with_workspaces(iter(once), 32))


def update_at_once(iterations: int = 8, layers: int = 16) -> Program:
    """The update is two launches: only memory tells."""
    for _ in range(iterations):
        yield from _train((*_pass(layers, activations=64, gradients=0), *_update("norms adam", 1)))


def recompute_layers(iterations: int = 8, layers: int = 12) -> Program:
    """Gradient checkpointing: only the inputs of layers live long."""
    for _ in range(iterations):
        yield ("to_device",)
        yield "phase", "forward"
        for layer in range(layers):
            yield "alloc", f"input{layer}", str(8 * MIB)
            yield from kernels(FORWARD)
        yield from kernels("head softmax.f loss.f")
        yield "phase", "backward"
        yield from kernels("loss.b softmax.b gemm gemm")
        for layer in reversed(range(layers)):
            yield "alloc", "inner", str(64 * MIB)
            yield from kernels(FORWARD)
            yield from kernels(BACKWARD)
            yield "free", "inner"
            yield "free", f"input{layer}"
        yield from _update("adam", 12)
        yield ("to_host",)
        yield ("step",)


def recompute_from_cache(iterations: int = 8, layers: int = 12) -> Program:
    """The same, with an allocator that keeps its memory."""
    for operation in recompute_layers(iterations, layers):
        if operation[0] not in ("alloc", "free"):
            yield operation


def accumulate_passes(iterations: int = 8, layers: int = 6) -> Program:
    """Four passes before an update."""
    for _ in range(iterations):
        passes = [o for _ in range(4) for o in _pass(layers, activations=64, gradients=0)]
        yield from _train((*passes, *_update("adam", 24)))


def train_from_cache(iterations: int = 8, layers: int = 12) -> Program:
    """An allocator that keeps its memory; parameters are updated one after the other."""
    for _ in range(iterations):
        yield from _train((*_pass(layers, activations=0, gradients=0), *_update(ADAM, 4 * layers)))


def update_many_at_a_time(iterations: int = 8, layers: int = 12) -> Program:
    """The same, but each operation of the update is launched for many parameters at a time."""
    for _ in range(iterations):
        names = " ".join(f"multi.{name}" for name in ADAM.split() for _ in range(3))
        yield from _train((*_pass(layers, activations=0, gradients=0), *_update(names, 1)))


def scale_losses(iterations: int = 8, layers: int = 12) -> Program:
    """The host looks for overflow before the update."""
    for _ in range(iterations):
        yield from _train(
            (
                *_pass(layers, activations=0, gradients=0),
                ("phase", "update"),
                *kernels("unscale unscale"),
                ("to_host",),
                *_update("multi.adam", 8),
            )
        )


def accumulate_from_cache(iterations: int = 8, layers: int = 6) -> Program:
    """Four passes before an update, with an allocator that keeps its memory."""
    for _ in range(iterations):
        passes = [o for _ in range(4) for o in _pass(layers, activations=0, gradients=0)]
        yield from _train((*passes, *_update("multi.adam", 8)))


def convolve(iterations: int = 8, stages: int = 5) -> Program:
    """A network of convolutions: kernels differ from stage to stage."""
    for _ in range(iterations):
        once: list[Operation] = [("phase", "forward")]
        for stage in range(stages):
            once += kernels(f"conv{stage} bn.f relu.f conv{stage} bn.f add relu.f " * 4)
        once += [
            *kernels("pool.f gemm loss.f"),
            ("phase", "backward"),
            *kernels("loss.b gemm gemm"),
        ]
        for stage in reversed(range(stages)):
            names = f"relu.b bn.b dgrad{stage} wgrad{stage} relu.b bn.b dgrad{stage} wgrad{stage} "
            once += kernels(names * 4)
        yield from _train((*once, *_update("multi.sgd", 10)))


def infer_without_cache(requests: int = 8, layers: int = 12) -> Program:
    """Each layer's output lives until the next one has used it."""
    for _ in range(requests):
        yield ("to_device",)
        for layer in range(layers):
            yield "alloc", f"output{layer}", str(64 * MIB)
            yield from kernels(FORWARD)
            if layer:
                yield "free", f"output{layer - 1}"
        yield "free", f"output{layers - 1}"
        yield ("to_host",)
        yield ("step",)


def draw(pictures: int = 8, depth: int = 12) -> Program:
    """A network whose way up uses what the way down kept, in the opposite order."""
    block = "norm.f conv silu norm.f conv add "
    for _ in range(pictures):
        yield ("to_device",)
        for level in range(depth):
            yield "alloc", f"skip{level}", str(32 * MIB)
            yield from kernels(block * 2)
        for level in reversed(range(depth)):
            yield from kernels("cat " + block * 2)
            yield "free", f"skip{level}"
        yield from kernels("scale add " * 4)
        yield ("to_host",)
        yield ("step",)


def prefill_and_write(requests: int = 8, layers: int = 12, tokens: int = 8) -> Program:
    """A prompt, then tokens that the host does not wait for; the cache is freed behind them."""
    for _ in range(requests):
        yield ("to_device",)
        for layer in range(layers):
            yield "alloc", f"cache{layer}", str(32 * MIB)
            yield from kernels(FORWARD)
        for _ in range(tokens):
            for _ in range(layers):
                yield from kernels("norm.f gemv rope.f paged gemv add norm.f gemv silu gemv add")
            yield from kernels("head argmax")
        for layer in range(layers):
            yield "free", f"cache{layer}"
        yield ("to_host",)
        yield ("step",)


def write_from_cache(requests: int = 8, layers: int = 12, tokens: int = 8) -> Program:
    """The same, from an allocator that keeps its memory."""
    for operation in prefill_and_write(requests, layers, tokens):
        if operation[0] not in ("alloc", "free"):
            yield operation


def listen(requests: int = 8, layers: int = 8) -> Program:
    """An encoder, a decoder of other kernels, and a search at the end."""
    for _ in range(requests):
        yield ("to_device",)
        yield from kernels("conv gelu conv gelu")
        for _ in range(layers):
            yield from kernels(FORWARD)
        for _ in range(layers):
            yield from kernels("norm.d gemv cross.d gemv flash.d gemv add.d norm.d gemv silu.d")
        yield from kernels("head softmax.d topk gather gather")
        yield ("to_host",)
        yield ("step",)


def see_and_read(requests: int = 8, layers: int = 12) -> Program:
    """A picture's encoder, a text's, and the copies of what they leave in the cache."""
    for _ in range(requests):
        yield ("to_device",)
        for _ in range(layers):
            yield from kernels("norm.v gemm flash.v gemm add.v norm.v gemm gelu.v gemm")
        for _ in range(layers + layers // 2):
            yield from kernels(FORWARD)
        yield from kernels("copy " * 32)
        yield ("to_host",)
        yield ("step",)


def embed_only(requests: int = 8, layers: int = 24) -> Program:
    """One pass, and the mean of its output."""
    for _ in range(requests):
        yield ("to_device",)
        yield from kernels("embed.f")
        for _ in range(layers):
            yield from kernels(FORWARD)
        yield from kernels("mean normalize")
        yield ("to_host",)
        yield ("step",)


TRAINING = {
    program.__name__: program
    for program in (
        train_without_cache,
        drop_gradients,
        update_at_once,
        recompute_layers,
        recompute_from_cache,
        accumulate_passes,
        train_from_cache,
        update_many_at_a_time,
        scale_losses,
        accumulate_from_cache,
        convolve,
    )
}
INFERENCE = {
    program.__name__: program
    for program in (
        infer_without_cache,
        draw,
        prefill_and_write,
        write_from_cache,
        listen,
        see_and_read,
        embed_only,
    )
}
