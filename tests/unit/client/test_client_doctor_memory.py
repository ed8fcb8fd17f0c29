"""What `tandem doctor` says about the memory that jobs' memory is moved to."""

import re

import pytest

from tandem._doctor import OK, check_host_memory, pages_of_host


@pytest.mark.parametrize(
    ("free", "shmem", "nodes", "told"),
    [
        (
            "0\n",
            "always advise [never] deny",
            1,
            "ordinary pages: .* is off; on the only NUMA",
        ),
        ("0\n", "always [advise] never", 1, "transparent huge pages .shmem_enabled is advise"),
        ("8\n", "always [advise] never", 2, "up to 16 MiB of the huge .*; on the NUMA node of its"),
        (None, None, 0, "ordinary pages"),
    ],
)
def test_the_pages_that_the_kernel_has_for_it_are_told(tmp_path, free, shmem, nodes, told):
    files = {
        "kernel/mm/hugepages/hugepages-2048kB/free_hugepages": free,
        "kernel/mm/transparent_hugepage/shmem_enabled": shmem,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (tmp_path / name).write_text(text)
    for node in range(nodes):
        (tmp_path / f"devices/system/node/node{node}").mkdir(parents=True)

    said = pages_of_host(tmp_path)

    assert re.search(told, said), said


def test_it_is_one_of_the_checks():
    (finding,) = check_host_memory(None)

    assert (finding.level, finding.check) == (OK, "host memory")
