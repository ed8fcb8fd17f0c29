"""Marks iterations of a PyTorch program without a change to its loop. Does not import torch.

import tandem.torch
tandem.torch.attach(optimizer)
"""

from typing import Protocol

from tandem._marks import step


class Removable(Protocol):
    """The handle that removes a hook; torch's RemovableHandle."""

    def remove(self) -> None:
        """Remove the hook."""


class Hook(Protocol):
    """A function that an optimizer calls after each step."""

    def __call__(self, optimizer: object, args: object, kwargs: object, /) -> None:
        """Its result is ignored."""


class Optimizer(Protocol):
    """The one method of torch.optim.Optimizer that is needed here."""

    def register_step_post_hook(self, hook: Hook, /) -> Removable:
        """Call `hook` after every step."""


def attach(optimizer: Optimizer) -> Removable:
    """Mark the end of an iteration after every step of the optimizer.

    With several optimizers, attach only the one that steps last, and that steps once in each
    iteration. A skipped step, as by a gradient scaler when gradients overflow, ends no iteration.

    Returns:
        A handle; its `remove()` detaches from the optimizer.

    Raises:
        TypeError: `optimizer` has no step hooks (torch before 2.0, or not an optimizer).
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
