"""Models with random weights: a ResNet-like and a transformer trainer, and an inference server."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

DEVICE = "cuda"
VISION_BATCH, IMAGE = 128, 64
LANGUAGE_BATCH, SEQUENCE, VOCABULARY, WIDTH, LAYERS = 16, 256, 8192, 512, 8
SERVER_BATCH, SERVER_INPUTS, SERVER_LAYERS = 8, 4, 12

Step = Callable[[], float]


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


def resnet() -> nn.Module:
    """Eight blocks in four widths."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for outputs in (64, 128, 256, 512):
        layers += [Block(width, outputs, 1 if outputs == width else 2), Block(outputs, outputs, 1)]
        width = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]
    return nn.Sequential(*layers)


class Transformer(nn.Module):
    """A decoder-sized stack of encoder layers with embeddings and a head."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, nhead=8, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits for every position."""
        logits: Tensor = self.head(self.layers(self.embed(tokens)))
        return logits


def make_server_model() -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """A function that answers one request on the host, and the requests there are."""
    model = Transformer(SERVER_LAYERS).to(DEVICE).eval()
    inputs = [torch.randint(VOCABULARY, (SERVER_BATCH, SEQUENCE)) for _ in range(SERVER_INPUTS)]

    def infer(tokens: Tensor) -> Tensor:
        with torch.inference_mode():
            return model(tokens.to(DEVICE))[:, -1].argmax(-1).cpu()

    return infer, inputs


def make_trainer_step(role: str) -> tuple[Step, Callable[[], list[Tensor]]]:
    """One iteration that returns the loss, and the parameters. `vision-graph`: in a CUDA graph."""
    if role == "language":
        model: nn.Module = Transformer(LAYERS).to(DEVICE)
        x = torch.randint(VOCABULARY, (LANGUAGE_BATCH, SEQUENCE), device=DEVICE)
        y = torch.randint(VOCABULARY, (LANGUAGE_BATCH * SEQUENCE,), device=DEVICE)
    else:
        model = resnet().to(DEVICE)
        x = torch.randn(VISION_BATCH, 3, IMAGE, IMAGE, device=DEVICE)
        y = torch.randint(1000, (VISION_BATCH,), device=DEVICE)
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


def _captured(iterate: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The iteration as a CUDA graph, after the warm-up that capturing asks for."""
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
