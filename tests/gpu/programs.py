"""Torch programs that print what they computed, to be run with and without Tandem.

    python programs.py NAME cuda|cpu

What they print is the same in every run; where they ran goes to stderr.
"""

import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # repeatable; read by the import

import torch
from torch import nn
from torch.multiprocessing import get_context
from torch.utils.data import DataLoader, Dataset

import tandem


def model_on(device):
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)]
    return nn.Sequential(*layers).to(device)


def train(model, batches):
    """Losses of one pass, and a sum over the parameters after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for x in batches:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.9e}")
    print(f"parameters {sum(p.double().sum().item() for p in model.parameters()):.12e}")


class Numbers(Dataset):
    """Items that tell in which process they were made, if they are not made in this one."""

    def __init__(self):
        self.parent = os.getpid()

    def __len__(self):
        return 96

    def __getitem__(self, index):
        assert os.getpid() != self.parent
        return torch.sin(torch.arange(64) + float(index))


def eager_small_kernels(device):
    x = torch.arange(4096, device=device, dtype=torch.int64)
    for number in range(3000):
        x = (x * 3 + number) % 1_000_003
    print(x.sum().item(), x[:4].tolist())
    train(model_on(device), [torch.randn(32, 64, device=device) for _ in range(20)])


def streams_and_events(device):
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    pinned = torch.arange(1 << 20, dtype=torch.int64).pin_memory()
    x = torch.zeros(1 << 20, dtype=torch.int64, device=device)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    for number in range(50):
        with torch.cuda.stream(first):
            x += pinned.to(device, non_blocking=True) * number
            done.record()
        second.wait_event(done)
        with torch.cuda.stream(second):
            x = (x * 2 + 1) % 1_000_003
        first.wait_stream(second)
    torch.cuda.synchronize()
    print(x.sum().item(), x[-3:].tolist())


def cuda_graph(device):
    model, x = model_on(device), torch.randn(32, 64, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def iterate():
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            iterate()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = iterate()
    for _ in range(20):
        graph.replay()
        print(f"loss {loss.item():.9e}")
    beside = sum(range(100)) + torch.arange(100, device=device).sum().item()
    print(beside, "beside the graph")


def allocator(device):
    """Every block size, freed in another order, an allocation too large, and going on after it."""
    blocks = [torch.full((1 << size,), size, device=device) for size in range(4, 26)]
    print(sum(int(block[-1]) for block in blocks))
    del blocks[::2]
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.empty(total * 2, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:
        print("out of memory, as it should be")
    blocks += [torch.full((1 << size,), size, device=device) for size in range(4, 26)]
    print(sum(int(block[-1]) for block in blocks), torch.cuda.memory_allocated())


def loader(device, start):
    pin = device == "cuda"
    batches = DataLoader(
        Numbers(), batch_size=16, num_workers=2, multiprocessing_context=start, pin_memory=pin
    )
    model = model_on(device)  # so that the workers of fork begin with a CUDA context in the parent
    train(model, (x.to(device, non_blocking=pin) for x in batches))


def loader_by_fork(device):
    loader(device, "fork")


def loader_by_spawn(device):
    loader(device, "spawn")


def double_what_comes(inbox, outbox):
    tensor = inbox.get()
    tensor *= 2  # in the sender's memory
    if tensor.is_cuda:
        torch.cuda.synchronize()
    outbox.put("done")
    inbox.get()


def tensors_between_processes(device):
    context = get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=double_what_comes, args=(inbox, outbox))
    child.start()
    tensor = torch.arange(1000, device=device)
    inbox.put(tensor)
    print(outbox.get(timeout=100), tensor.sum().item())
    inbox.put("end")
    child.join(timeout=100)
    print(child.exitcode)


def main():
    name, device = sys.argv[1:]
    torch.manual_seed(20)
    torch.use_deterministic_algorithms(mode=True)
    if device == "cpu":
        torch.set_num_threads(1)
    globals()[name](device)
    print(f"managed: {tandem.is_managed()}", file=sys.stderr)


if __name__ == "__main__":
    main()
