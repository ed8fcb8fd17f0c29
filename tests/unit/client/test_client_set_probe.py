"""The probe of sets of SMs: what it accepts as proof, and how it ends."""

import json
import os
import random
import select
import subprocess
import sys
import time

import pytest

from tandem import _set_probe, softgpu

PATIENCE_S = 30
SILENT = "import time; time.sleep(3600)"
STUCK = "print('half a', end='', flush=True); " + SILENT
DEAF = "print('{}', flush=True); " + SILENT


def two(program, *words):
    """Starts two processes of a program, each with the number of its half as last argument."""
    return [
        subprocess.Popen(
            [sys.executable, "-c", program, *words, str(half)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for half in (0, 1)
    ]


@pytest.mark.parametrize("program", [SILENT, STUCK, DEAF])
def test_processes_that_do_not_answer_are_ended(program):
    clients = two(program)

    found = _set_probe._judge(clients, time.monotonic() + 0.1)

    assert found.problem == _set_probe.SILENCE
    assert all(client.returncode for client in clients)


def test_what_one_says_that_has_ended_is_heard():
    said = {"problem": "the driver has none", "is_answer": True}
    program = f"import os; os.close(0); print({json.dumps(json.dumps(said))})"
    clients = two(program)

    found = _set_probe._judge(clients, time.monotonic() + PATIENCE_S)

    assert found == _set_probe.Found(problem="the driver has none")


def test_one_that_ends_when_it_is_let_go_is_no_error():
    program = 'import os; os.close(0); print(\'{"groups": 2, "group_sms": 1}\', flush=True)'
    clients = two(program)

    found = _set_probe._judge(clients, time.monotonic() + PATIENCE_S)

    assert (found.is_answer, "did not answer" in found.problem) == (False, True)


@pytest.mark.parametrize("pipes", [{}, {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}])
def test_under_mps_nothing_is_written(monkeypatch, pipes):
    def refuse(**_):
        raise FileNotFoundError("no usable temporary directory")

    found = _set_probe.Found(groups=16, group_sms=8)
    monkeypatch.setattr(_set_probe.tempfile, "TemporaryDirectory", refuse)
    monkeypatch.setattr(_set_probe, "_probe_in", lambda own: found)

    told = _set_probe.probe(pipes)

    problem = "cannot create a directory for another software gpu: no usable temporary directory"
    assert told == (found if pipes else _set_probe.Found(problem=problem, is_answer=False))


GROUPS, GROUP_SMS, PER_SM = 6, 2, 3
USUAL = [{2 * group, 2 * group + 1} for group in range(GROUPS)]  # the SMs of each group
SPLIT = {"groups": GROUPS, "group_sms": GROUP_SMS}


class ModelGpu:
    """SMs with room for some blocks each, which stay; more blocks wait for the first to leave.

    Blocks avoid SMs that another process may use, so that sharing shows as late as it can.
    """

    def __init__(self, sms, lag_ns=0, tenant=0):
        self.sms = sms  # of each group, as the driver assigns them to each process
        self.lag_ns = lag_ns  # how far the second process lags behind the first
        self.tenant = tenant  # blocks of another process on each SM, while both halves run
        self.taken = [(), ()]
        self.tries = 0

    def take(self, who, groups):
        self.taken[who] = [set().union(*(self.sms[who][group] for group in groups)), len(groups)]
        return PER_SM * GROUP_SMS * len(groups)

    def stay(self, extra, stay_ns):
        """Return what each process reports that was to run `extra` more blocks than fit."""
        self.tries += 1
        taken = self.tenant if len(extra) == 2 else 0
        free = dict.fromkeys(range(100), PER_SM - taken)
        said = {}
        for who in sorted(extra):
            sms, groups = self.taken[who]
            begin_ns = 1_000 + (who * self.lag_ns if len(extra) == 2 else 0)
            blocks = PER_SM * GROUP_SMS * groups + extra[who]
            if begin_ns >= 1_000 + stay_ns:  # the other one has left
                free = dict.fromkeys(free, PER_SM)
            begins, others = [], self.taken[1 - who][0]
            for sm in sorted(sms, key=lambda sm: sm in others):
                here = min(free[sm], blocks - len(begins))
                free[sm] -= here
                begins += [begin_ns] * here
            late = max(begin_ns, 1_000 + stay_ns) + 1
            begins += [late] * (blocks - len(begins))
            fit = blocks - extra[who]
            said[who] = {
                "began": begins[fit - 1],
                "left": begins[0] + stay_ns,
                "extra": begins[fit] if extra[who] else 2**64 - 1,
            }
        return said


PIDS = 7, 8


class ModelControl:
    """The control of an MPS with one server, whose client list changes with every question."""

    def __init__(self, *clients):
        self.coming = list(clients)

    def servers(self):
        return ["the server"] if self.coming else None

    def clients(self, server):
        return self.coming.pop(0)


class ModelHolder:
    """Speaks the protocol of `tandem._set_holder`."""

    def __init__(self, gpu, who, waiting):
        self.gpu, self.who, self.waiting = gpu, who, waiting
        self.pid = PIDS[who]
        self.lines = [SPLIT]
        self.order = None

    def tell(self, line):
        word, *numbers = line.split() or [""]
        if word == "take":
            self.lines.append({"room": self.gpu.take(self.who, list(map(int, numbers)))})
        elif word == "stay":
            self.order = list(map(int, numbers))
            self.lines.append({})
        else:
            self.waiting[self.who] = self.order[0]

    def hear(self):
        if not self.lines:  # all processes were let go
            for who, said in self.gpu.stay(dict(self.waiting), self.order[1]).items():
                self.gpu.holders[who].lines.append(said)
            self.waiting.clear()
        return self.lines.pop(0)


def found_on(gpu, control=None):
    """Return what the probe finds on a model GPU."""
    waiting = {}
    gpu.holders = [ModelHolder(gpu, who, waiting) for who in (0, 1)]

    def prove():
        return _set_probe._prove(gpu.holders, control)

    try:
        return prove()
    except _set_probe._NotProvedError as error:
        return _set_probe.Found(problem=str(error), is_answer=error.is_answer)


def with_group(number, sms):
    return [sms if group == number else usual for group, usual in enumerate(USUAL)]


@pytest.mark.parametrize(
    ("first", "second", "problem", "is_answer"),
    [
        (USUAL, USUAL, "", True),
        (USUAL, USUAL[::-1], _set_probe.SHARED, True),
        # Within one half, where comparing only the halves would not show it.
        (USUAL, [USUAL[1], USUAL[0], *USUAL[2:]], _set_probe.SHARED, True),
        (USUAL, with_group(0, {0, 3}), _set_probe.SHARED, True),
        (with_group(4, {8, 9, 0}), USUAL, _set_probe.TOO_MANY, True),
        (USUAL, [set(range(12))] * GROUPS, _set_probe.TOO_MANY, True),
        (USUAL, with_group(5, {10}), _set_probe.TOO_FEW, False),
    ],
)
def test_a_proof_takes_sets_of_the_same_sms_in_both(first, second, problem, is_answer):
    found = found_on(ModelGpu([first, second]))

    assert (found.problem, found.is_answer) == (problem, is_answer)
    assert problem or (found.groups, found.group_sms) == (GROUPS, GROUP_SMS)


@pytest.mark.parametrize("seed", range(25))
def test_nothing_but_the_same_groups_in_both_is_proved(seed):
    chance = random.Random(seed)
    second = [set(sms) for sms in USUAL]
    for _ in range(chance.randrange(3)):  # swaps of single SMs, which may undo each other
        one, other = chance.sample(range(GROUPS), 2)
        a, b = chance.choice(sorted(second[one])), chance.choice(sorted(second[other]))
        second[one] ^= {a, b}
        second[other] ^= {a, b}

    found = found_on(ModelGpu([USUAL, second]))

    assert found.problem == ("" if second == USUAL else _set_probe.SHARED)


def test_whoever_begins_late_is_waited_for():
    soon, late = ModelGpu([USUAL, USUAL]), ModelGpu([USUAL, USUAL], lag_ns=20_000_000)

    assert [found_on(gpu).problem for gpu in (soon, late)] == ["", ""]
    assert late.tries == 4 * soon.tries  # 4, 8, 16, 32 ms


@pytest.mark.parametrize(
    ("clients", "problem", "is_answer"),
    [
        ([PIDS, PIDS], _set_probe.SHARED, True),
        ([(*PIDS, 9), PIDS], _set_probe.CROWDED, False),
        ([PIDS, (9, *PIDS)], _set_probe.CROWDED, False),
        ([PIDS], "mps ended meanwhile, or does not answer", False),
        (
            [PIDS[:1]],
            "the processes were not clients of mps, which started or ended meanwhile",
            False,
        ),
        ([()], "the processes were not clients of mps, which started or ended meanwhile", False),
    ],
)
@pytest.mark.parametrize(
    "gpu", [ModelGpu([USUAL, USUAL], tenant=1), ModelGpu([USUAL, USUAL[::-1]])]
)
def test_that_sets_share_sms_is_no_answer_while_others_are_there(gpu, clients, problem, is_answer):
    found = found_on(gpu, ModelControl(*clients))

    assert (found.problem, found.is_answer) == (problem, is_answer)


def test_others_that_leave_room_are_no_hindrance():
    found = found_on(ModelGpu([USUAL, USUAL]), ModelControl((*PIDS, 9)))

    assert (found.problem, found.groups) == ("", GROUPS)


def test_every_two_groups_are_apart_either_way_round():
    for count in (2, 3, 16, 17):
        apart = {
            (a, b) for first, second in _set_probe._divisions(count) for a in first for b in second
        }
        assert apart == {(a, b) for a in range(count) for b in range(count) if a != b}


def test_both_are_let_go_before_either_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "meeting")
    # Opening a pipe waits for the other end, so neither half goes on without the other.
    program = """
import json, sys
def say(**what):
    print(json.dumps(what), flush=True)
say(groups=2, group_sms=1)
half = int(sys.argv[2])
for line in sys.stdin:
    word, *numbers = line.split()
    if word == "take":
        say(room=8)
        continue
    say()
    sys.stdin.readline()
    if numbers[0] == "0":
        open(sys.argv[1], "rw"[half]).close()
    say(began=1, left=2, extra=3)
"""
    clients = two(program, str(tmp_path / "meeting"))

    found = _set_probe._judge(clients, time.monotonic() + PATIENCE_S)

    assert found == _set_probe.Found(groups=2, group_sms=1)


def test_blocks_fill_a_set_exactly_and_stay(tmp_path):
    stay_ns = 3_000_000
    holder = subprocess.Popen(
        [sys.executable, "-m", _set_probe.HOLDER, "0", str(os.getpid())],
        env=softgpu.environment(folder=tmp_path, profile="h200"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    said, _ = holder.communicate(
        f"take 0 1 2\nstay 0 {stay_ns}\n\nstay 1 {stay_ns}\n\n", timeout=PATIENCE_S
    )

    split, taken, _, full, _, beyond = map(json.loads, said.splitlines())
    assert split == {"groups": 16, "group_sms": 8}
    assert taken == {"room": 3 * 8 * 2048 // 256}
    for seen in (full, beyond):
        assert 0 < seen["left"] - seen["began"] < 1.1 * stay_ns
    assert full["extra"] == 2**64 - 1
    assert beyond["extra"] >= beyond["left"]


def test_its_processes_end_with_it(tmp_path):
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys; "
            "words = [sys.executable, '-m', 'tandem._set_holder', '0', str(os.getpid())]; "
            "subprocess.run(words)",
        ],
        env=softgpu.environment(folder=tmp_path),
        stdin=subprocess.PIPE,  # one half waits on it
        stdout=subprocess.PIPE,
    )
    assert b"groups" in parent.stdout.readline()

    parent.kill()
    ended, _, _ = select.select([parent.stdout], [], [], PATIENCE_S)

    assert ended
    assert os.read(parent.stdout.fileno(), 1) == b""
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
