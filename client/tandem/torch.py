"""What a PyTorch program can let Tandem know, without changing its loop. Imports no torch.

import tandem.torch
tandem.torch.attach(optimizer)
"""

from typing import Protocol

from tandem._marks import step


class Removable(Protocol):
    """What a hook is taken away by; torch's RemovableHandle."""

    def remove(self) -> None:
        """Call the hook no more."""


class Hook(Protocol):
    """What an optimizer calls after each step."""

    def __call__(self, optimizer: object, args: object, kwargs: object, /) -> None:
        """Its result is not looked at."""


class Optimizer(Protocol):
    """The one method of torch.optim.Optimizer that is needed."""

    def register_step_post_hook(self, hook: Hook, /) -> Removable:
        """Call `hook` after every step."""


def attach(optimizer: Optimizer) -> Removable:
    """Say that an iteration ended after every step of the optimizer.

    With several optimizers attach the one that steps last, and once in each iteration. A step that
    is left out, as a gradient scaler does when gradients overflow, ends no iteration.

    Returns:
        A handle; its `remove()` ends that.

    Raises:
        TypeError: `optimizer` has no step hooks (torch before 2.0, or no optimizer at all).
    """
    register = getattr(optimizer, "register_step_post_hook", None)
    if register is None:
        kind = type(optimizer).__name__
        raise TypeError(
            f"{kind} has no register_step_post_hook; give a torch optimizer (torch 2.0 or later), "
            "or call tandem.step() after each iteration"
        )
    return optimizer.register_step_post_hook(_mark)


def _mark(_optimizer: object, _args: object, _kwargs: object) -> None:
    step()
