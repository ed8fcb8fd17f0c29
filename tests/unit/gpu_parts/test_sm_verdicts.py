"""How the part `sm_sets` judges lists of SMs and times."""

from bench.gpu.figures.sm_verdicts import curves, judge_groups, judge_overlap, spans_of, with_curves

HALVES = {"0": [0, 1], "1": [3, 2]}
MS = 1_000_000  # in ns


def test_two_processes_that_split_alike():
    found = judge_groups(HALVES, {"0": [1, 0], "1": [2, 3]})

    assert found["same_index_same_sms"]
    assert found["disjoint_in_a_process"]
    assert found["disjoint_across"]
    assert (found["groups"], found["sms_per_group"], found["sms_in_groups"]) == (2, [2], 4)
    assert found["ids"] == [[0, 1], [2, 3]]


def test_groups_that_lie_elsewhere_in_the_other_process():
    found = judge_groups(HALVES, {"0": [2, 3], "1": [0, 1]})

    assert not found["same_index_same_sms"]
    assert found["disjoint_in_a_process"]
    assert not found["disjoint_across"]


def test_groups_that_share_an_sm_in_one_process():
    found = judge_groups({"0": [0, 1], "1": [1, 2]}, HALVES)

    assert not found["disjoint_in_a_process"]
    assert found["sms_in_groups"] == 3


def test_one_that_found_fewer_groups_is_not_the_same():
    assert not judge_groups(HALVES, {"0": [0, 1]})["same_index_same_sms"]
    assert not judge_groups({"0": [0, 1]}, HALVES)["same_index_same_sms"]


def test_processes_that_take_turns_never_run_together():
    first, second = (
        spans_of([0, 10 * MS, 20 * MS, 30 * MS]),
        spans_of([10 * MS, 20 * MS, 30 * MS, 40 * MS]),
    )

    found = judge_overlap(first, second)

    assert found["window_ms"] == 20.0  # from 10 to 30 ms
    assert (found["first"], found["second"], found["both"]) == (0.5, 0.5, 0.0)


def test_processes_that_run_together_all_the_time():
    found = judge_overlap([(0, 50 * MS), (50 * MS, 100 * MS)], [(0, 100 * MS)])

    assert (found["first"], found["second"], found["both"]) == (1.0, 1.0, 1.0)
    assert found["longest_turn_ms"] == 50.0


def test_half_of_the_time_together():
    assert judge_overlap([(0, 100)], [(0, 25), (75, 100)])["both"] == 0.5


def test_processes_that_were_never_there_together():
    found = judge_overlap([(0, 10)], [(20, 30)])

    assert (found["window_ms"], found["both"]) == (0.0, 0.0)
    assert judge_overlap([], [(0, 10)]) == dict.fromkeys(judge_overlap([(0, 1)], [(0, 1)]), 0.0)


def test_a_curve_is_over_the_time_on_all_sms():
    times = {
        "sms_8": {"compute": 80.0, "copy": 30.0},
        "sms_32": {"error": "green context: CUDA_ERROR_OUT_OF_MEMORY"},
        "sms_64": "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
        "all": {"compute": 10.0, "copy": 20.0},
    }

    assert curves(times) == {
        "compute": {"sms_8": 8.0, "all": 1.0},
        "copy": {"sms_8": 1.5, "all": 1.0},
    }


def test_curves_stand_beside_what_was_measured():
    said = {"times_us": {"sms_8": {"compute": 80.0}, "all": {"compute": 40.0}}, "sms": 132}

    assert with_curves(said) == {**said, "compute": {"sms_8": 2.0, "all": 1.0}}


def test_there_is_no_curve_without_a_time_on_all_sms():
    assert curves({"sms_8": {"compute": 80.0}, "all": {"error": "refused"}}) == {}
