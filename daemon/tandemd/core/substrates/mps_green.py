"""Clients of MPS on disjoint sets of SMs: green contexts in each client, over one split.

All clients start with every SM, and are told while they run which groups of the split are theirs
(set_places.py). See "Green Contexts" in the CUDA driver API; "Multi-Process Service", 4.
"""

from __future__ import annotations

from tandemd.core.model import JobSpec
from tandemd.core.substrates.mps import Mps


class MpsGreen:
    """MPS divides nothing; the green contexts do."""

    description = "mode mps+green: kernels of several processes run side by side, on sets of SMs"
    warning = Mps.warning
    divides_space = True
    is_live = True

    def variables(self, spec: JobSpec, sm_count: int) -> dict[str, str]:
        """Return the variables as under MPS, but without the part of the SMs."""
        said = Mps().variables(spec, sm_count)
        return {name: value for name, value in said.items() if not name.endswith("PERCENTAGE")}
