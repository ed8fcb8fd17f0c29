"""Models with random weights: ResNet-like and transformer trainers, and an inference server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

Step = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The models' device, and their sizes on it."""

    device: str
    vision_widths: tuple[int, ...]
    vision_batch: int
    image: int
    width: int
    layers: int
    language_batch: int
    sequence: int
    vocabulary: int
    server_layers: int
    server_batch: int
    server_inputs: int = 4


SCALES = {
    "cuda": Scale(
        device="cuda",
        vision_widths=(64, 128, 256, 512),
        vision_batch=128,
        image=64,
        width=512,
        layers=8,
        language_batch=16,
        sequence=256,
        vocabulary=8192,
        server_layers=12,
        server_batch=8,
    ),
    # For trying the programs where there is no GPU.
    "cpu": Scale(
        device="cpu",
        vision_widths=(8, 16),
        vision_batch=4,
        image=16,
        width=32,
        layers=2,
        language_batch=2,
        sequence=16,
        vocabulary=128,
        server_layers=2,
        server_batch=2,
    ),
}
# An iteration takes an H200 a few milliseconds.
QUICK = replace(SCALES["cuda"], vision_batch=32, language_batch=4)


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        return torch.relu(self.body(x) + self.shortcut(x))


class Resnet(nn.Module):
    """Two blocks in each width."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        width = widths[0]
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False)]
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        for outputs in widths:
            stride = 1 if outputs == width else 2
            layers += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
            width = outputs
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Logits for every image."""
        # A mean: the backward pass of adaptive pooling is not repeatable on a GPU.
        logits: Tensor = self.head(self.layers(images).mean((2, 3)))
        return logits


class Transformer(nn.Module):
    """A decoder-sized stack of encoder layers with embeddings and a head."""

    def __init__(self, scale: Scale, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(scale.vocabulary, scale.width)
        layer = nn.TransformerEncoderLayer(
            scale.width, nhead=8, dim_feedforward=4 * scale.width, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(scale.width, scale.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits for every position."""
        logits: Tensor = self.head(self.layers(self.embed(tokens)))
        return logits


def make_server_model(scale: Scale) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """A function that answers one request on the host, and the requests there are."""
    model = Transformer(scale, scale.server_layers).to(scale.device).eval()
    shape = (scale.server_batch, scale.sequence)
    inputs = [torch.randint(scale.vocabulary, shape) for _ in range(scale.server_inputs)]

    def infer(tokens: Tensor) -> Tensor:
        with torch.inference_mode():
            return model(tokens.to(scale.device))[:, -1].argmax(-1).cpu()

    return infer, inputs


def make_trainer_step(role: str, scale: Scale) -> tuple[Step, Callable[[], list[Tensor]]]:
    """Return a function for one iteration, which returns the loss, and one for the parameters.

    In the role `vision-graph`, iterations replay a CUDA graph.
    """
    model, x, y = _task(role, scale)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def iterate() -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    run = _captured(iterate) if role.endswith("-graph") else iterate
    return (lambda: float(run())), (lambda: list(model.parameters()))


def _task(role: str, scale: Scale) -> tuple[nn.Module, Tensor, Tensor]:
    """A model, its input and the targets."""
    if role == "language":
        batch, words = scale.language_batch, scale.vocabulary
        model: nn.Module = Transformer(scale, scale.layers)
        x = torch.randint(words, (batch, scale.sequence))
        y = torch.randint(words, (batch * scale.sequence,))
    else:
        model = Resnet(scale.vision_widths)
        x = torch.randn(scale.vision_batch, 3, scale.image, scale.image)
        y = torch.randint(1000, (scale.vision_batch,))
    return model.to(scale.device), x.to(scale.device), y.to(scale.device)


def _captured(iterate: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Capture the iteration as a CUDA graph, after the warm-up that capturing requires."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            iterate()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = iterate()

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay
