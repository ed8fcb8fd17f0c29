"""What Tandem learns from PyTorch programs."""

import importlib.util

import pytest

from tandem import _marks
from tandem.torch import attach


class Handle:
    def __init__(self, hooks, hook):
        self._hooks, self._hook = hooks, hook

    def remove(self):
        self._hooks.remove(self._hook)


class StandIn:
    """Has the step hooks of torch.optim.Optimizer."""

    def __init__(self):
        self.hooks = []

    def register_step_post_hook(self, hook):
        self.hooks.append(hook)
        return Handle(self.hooks, hook)

    def step(self):
        for hook in self.hooks:
            hook(self, (), {})


def real_optimizer():
    import torch

    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


@pytest.fixture
def marks(monkeypatch):
    seen = []

    class Shim:
        def tandem_mark_v1(self, kind, id_, value):
            seen.append(kind)

    monkeypatch.setattr(_marks, "_shim", Shim)
    return seen


@pytest.mark.parametrize(
    "make",
    [
        StandIn,
        pytest.param(
            real_optimizer,
            marks=pytest.mark.skipif(
                importlib.util.find_spec("torch") is None, reason="torch is not installed"
            ),
        ),
    ],
)
def test_every_step_of_the_optimizer_ends_an_iteration_until_it_is_detached(marks, make):
    optimizer = make()
    handle = attach(optimizer)

    optimizer.step()
    optimizer.step()
    handle.remove()
    optimizer.step()

    assert marks == [_marks.STEP, _marks.STEP]


def test_what_is_no_optimizer_is_refused_with_what_to_do():
    with pytest.raises(TypeError, match=r"list has no register_step_post_hook; .* tandem\.step"):
        attach([])
