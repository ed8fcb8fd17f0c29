import pytest
from fake_gpu import FakeGpu

from tandem.demo.words import Input, Total, Words

BLOCKS = 3


@pytest.fixture
def gpu():
    return FakeGpu()


def checksum(gpu, words):
    total = Total(gpu, words.blocks)
    total.start(words, None)
    return total.value()


def filled(gpu, number=7):
    source, words = Input(gpu), Words(gpu, BLOCKS)
    source.upload(number, None)
    words.spread(source, None)
    return words


def test_the_closed_form_is_what_the_kernels_compute(gpu):
    first, second = filled(gpu, 3), filled(gpu, 9)

    first.affine(5, 11, None)
    second.affine(7, 13, None)
    first.mix(second, 3, None)
    first.affine(9, 0xFFFFFFF0, None)

    assert checksum(gpu, first) == first.expected
    assert checksum(gpu, second) == second.expected


def test_another_request_has_another_result(gpu):
    assert filled(gpu, 1).expected != filled(gpu, 2).expected


@pytest.mark.parametrize("fault", ["lost", "doubled"])
def test_a_lost_or_doubled_launch_shows(gpu, fault):
    words = filled(gpu)
    words.affine(5, 11, None)
    correct = words.expected

    if fault == "doubled":
        words.affine(5, 11, None)
    else:
        words = filled(gpu)

    assert checksum(gpu, words) != correct


def test_launches_in_the_wrong_order_show(gpu):
    right, wrong = filled(gpu), filled(gpu)

    right.affine(5, 11, None)
    right.affine(7, 1, None)
    wrong.affine(7, 1, None)
    wrong.affine(5, 11, None)

    assert checksum(gpu, wrong) != right.expected


def test_a_wrong_word_anywhere_shows(gpu):
    words = filled(gpu)

    gpu.memory[words.address][-1] ^= 0x100

    assert checksum(gpu, words) != words.expected


def test_the_sum_of_many_blocks_takes_several_levels(gpu):
    source, words = Input(gpu), Words(gpu, 40)
    source.upload(1, None)
    words.spread(source, None)

    assert checksum(gpu, words) == words.expected
    assert gpu.launched.count("fold") == 2
