"""Random programs: turns a list of (operation, bytes that decide its details) into a Program."""

from __future__ import annotations

import random
from collections.abc import Sequence

import proof_arrays as arrays
import proof_batches as batches
import proof_data as data
import proof_devices as devices
import proof_graphs as graphs
import proof_memory as memory
import proof_phases as phases
import proof_sharing as sharing
import proof_things as things
import proof_wrong as wrong
from hypothesis import strategies as st
from proof_model import Choices, Model
from proof_program import Program

# Simplest first; the number is the operation's relative frequency.
OPERATIONS = {
    data.launch: 6,
    data.copy_in: 4,
    data.copy_out: 4,
    data.copy_within: 3,
    data.memset: 4,
    data.host_function: 2,
    data.write_value: 2,
    data.wait_for_value_of_another_stream: 2,
    batches.copy_batch: 2,
    batches.copy_boxes: 1,
    batches.prefetch: 2,
    arrays.create_array: 1,
    arrays.copy_array: 3,
    arrays.destroy_array: 1,
    memory.allocate: 4,
    memory.free: 2,
    things.create_stream: 2,
    things.use_default_stream: 4,
    things.destroy_stream: 1,
    things.record_event: 2,
    things.use_event: 3,
    things.hand_over: 2,
    things.create_context: 1,
    things.destroy_context: 1,
    devices.use_second_device: 1,
    devices.copy_between: 2,
    things.push_pop: 1,
    memory.create_pool: 1,
    graphs.begin_capture: 2,
    graphs.fork_capture: 2,
    graphs.work_in_capture: 4,
    graphs.end_capture: 4,
    graphs.build_graph: 2,
    graphs.launch_graph: 4,
    graphs.update_graph: 2,
    graphs.end_graph: 1,
    phases.side_by_side: 3,
    sharing.share_memory: 1,
    things.wait: 3,
    things.ask: 1,
    things.leave: 1,
    things.hold: 6,
    things.tally: 2,
    wrong.be_wrong: 4,
    wrong.copy_wrongly: 2,
    wrong.crash: 1,
}
NAMES = {operation.__name__: operation for operation in OPERATIONS}
DRAWN = [operation.__name__ for operation, weight in OPERATIONS.items() for _ in range(weight)]
LONGEST, DETAILS = 40, 10
Code = tuple[str, bytes]


# Here NVIDIA's driver may crash, or answer in different ways.
WILD = (
    "be_wrong",
    "copy_wrongly",
    "crash",
    "wait_for_value_of_another_stream",
    "use_second_device",
)


def build(codes: Sequence[Code], *, tidily: bool = True, tame: bool = False) -> Program:
    """Build the program of these operations; a tame one uses no invalid handle."""
    model = Model()
    model.is_tame = tame
    things.begin(model)
    for name, details in codes:
        if tame and name in WILD:
            continue
        model.choices = Choices(details)
        NAMES[name](model)
    model.choices = Choices(b"")
    things.finish(model, tidily=tidily)
    return model.finished()


CODES = st.lists(
    st.tuples(st.sampled_from(DRAWN), st.binary(min_size=DETAILS, max_size=DETAILS)),
    min_size=5,
    max_size=LONGEST,
)


def random_codes(draw: random.Random) -> tuple[list[Code], bool]:
    """Draw operations, and whether the program ends tidily, faster than hypothesis would."""
    count = draw.randint(5, LONGEST)
    codes = [(draw.choice(DRAWN), draw.randbytes(DETAILS)) for _ in range(count)]
    return codes, draw.random() < 0.7
