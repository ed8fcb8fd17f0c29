"""The files that tell dcgm-exporter which jobs are on each GPU."""

import os
import threading

import pytest
from structlog.testing import capture_logs

from tandemd.edges.job_files import JobFiles


@pytest.fixture
def jobs():
    return {"0": [], "1:2": []}


@pytest.fixture
def files(tmp_path, jobs):
    return JobFiles(tmp_path / "jobs", jobs_on=lambda: jobs)


def texts(tmp_path):
    return {file.name: file.read_text() for file in (tmp_path / "jobs").iterdir()}


def test_there_is_a_file_for_each_gpu_with_a_job_a_line(files, jobs, tmp_path):
    assert texts(tmp_path) == {"0": "", "1.2": ""}

    jobs["0"], jobs["1:2"] = ["j-1", "j-2"], ["j-2"]
    files.look()

    assert texts(tmp_path) == {"0": "j-1\nj-2\n", "1.2": "j-2\n"}
    assert (tmp_path / "jobs/0").stat().st_mode & 0o777 == 0o644


def test_what_has_not_changed_is_not_written(files, jobs, tmp_path):
    jobs["0"] = ["j-1"]
    files.look()
    before = [(tmp_path / "jobs" / name).stat().st_ino for name in ("0", "1.2")]

    jobs["0"] = ["j-2"]
    files.look()

    after = [(tmp_path / "jobs" / name).stat().st_ino for name in ("0", "1.2")]
    assert (before[0] != after[0], before[1] == after[1]) == (True, True)


def test_an_instance_that_is_gone_has_nobody(files, jobs, tmp_path):
    jobs["1:2"] = ["j-2"]
    files.look()
    del jobs["1:2"]
    files.look()

    assert texts(tmp_path) == {"0": "", "1.2": ""}


def test_a_link_in_the_directory_is_not_written_through(files, jobs, tmp_path):
    other = tmp_path / "other"
    other.write_text("kept")
    for name in (f".0.{os.getpid()}", "0"):
        (tmp_path / "jobs" / name).unlink(missing_ok=True)
        (tmp_path / "jobs" / name).symlink_to(other)
    jobs["0"] = ["j-1"]
    files.look()

    assert other.read_text() == "kept"
    assert texts(tmp_path)["0"] == "j-1\n"


@pytest.mark.parametrize("umask", [0, 0o077])
@pytest.mark.parametrize("left_with", [None, 0o700])
def test_others_can_read_what_is_there_whatever_the_umask(umask, left_with, jobs, tmp_path):
    if left_with is not None:  # left by a version that did not handle this
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs").chmod(left_with)
    before = os.umask(umask)
    try:
        JobFiles(tmp_path / "jobs", jobs_on=lambda: jobs)
    finally:
        os.umask(before)

    assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "jobs" / "0").stat().st_mode & 0o777 == 0o644


def test_a_directory_to_which_others_may_write_is_not_taken(jobs, tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs").chmod(0o775)

    with pytest.raises(PermissionError, match="others may write to it"):
        JobFiles(tmp_path / "jobs", jobs_on=lambda: jobs)


def test_a_private_directory_of_other_things_is_not_opened(jobs, tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / ".bashrc").touch()

    with pytest.raises(PermissionError, match=r"others may not read it, .* such files: .bashrc"):
        JobFiles(tmp_path / "home", jobs_on=lambda: jobs)

    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert [each.name for each in (tmp_path / "home").iterdir()] == [".bashrc"]


def test_a_core_that_is_busy_at_the_start_is_asked_again(jobs, tmp_path):
    answers = iter([TimeoutError(), jobs])

    def jobs_on():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    files = JobFiles(tmp_path / "jobs", jobs_on=jobs_on)
    files.look()

    assert texts(tmp_path) == {"0": "", "1.2": ""}


def test_what_an_earlier_daemon_left_is_not_believed(files, jobs, tmp_path):
    jobs["0"] = ["j-1"]
    files.look()

    JobFiles(tmp_path / "jobs", jobs_on=lambda: jobs)

    assert texts(tmp_path)["0"] == ""


def test_of_what_was_left_only_files_of_gpus_are_touched(jobs, tmp_path):
    (tmp_path / "jobs").mkdir()
    for name in ("7", "3.1", "7.old", "README"):
        (tmp_path / "jobs" / name).write_text("j-1\n")

    JobFiles(tmp_path / "jobs", jobs_on=lambda: jobs)

    others = {"7.old": "j-1\n", "README": "j-1\n"}
    assert texts(tmp_path) == {"0": "", "1.2": "", "3.1": "", "7": "", **others}


def test_at_its_end_nobody_is_on_any_gpu(files, jobs, tmp_path):
    jobs["0"] = ["j-1"]
    files.look()
    thread = threading.Thread(target=files.run)
    thread.start()
    files.stop()
    thread.join()

    assert texts(tmp_path) == {"0": "", "1.2": ""}


def test_a_directory_that_is_lost_is_told_of_once_and_written_to_again(files, jobs, tmp_path):
    (tmp_path / "jobs").rename(tmp_path / "away")
    with capture_logs() as logs:
        for number in range(3):
            jobs["0"] = [f"j-{number}"]
            files.look()
    (tmp_path / "away").rename(tmp_path / "jobs")
    files.look()

    assert [line["event"] for line in logs] == ["metrics.hpc_job_mapping_dir cannot be written"]
    assert texts(tmp_path)["0"] == "j-2\n"


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        JobFiles(tmp_path / "none/jobs", jobs_on=dict)
