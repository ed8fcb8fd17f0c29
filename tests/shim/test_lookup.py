"""Every intercepted symbol leads through the shim, by every way a program can find it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from shim_support import GENERATED, Preload

PRELUDE = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
typedef int (*Any)(long, long, long, long, long, long, long, long, long, long, long, long);
struct Row { const char* base; const char* symbol; int since; int per_thread; };
static const Row kRows[] = {
#define CU_VERSION(base, symbol, since, per_thread) {#base, #symbol, since, per_thread},
#include "cu_versions.inc"
};
static const char* const kIntercepted[] = {
#define CALL(symbol) #symbol,
#include "shim_calls.inc"
};
static int (*count_of)(const char*);
// Prints: symbol, library of the function found, how often calling it reached the driver.
static void check(const char* symbol, void* found) {
  Dl_info info = {};
  if (!found || !dladdr(found, &info)) { printf("%s none 0\n", symbol); return; }
  const char* slash = strrchr(info.dli_fname, '/');
  const int before = count_of(symbol);
  printf("%s ", symbol);
  fflush(stdout);  // who ends the program leaves its name
  ((Any)found)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  printf("%s %d\n", slash ? slash + 1 : info.dli_fname, count_of(symbol) - before);
}
static void* open_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  count_of = (int (*)(const char*))dlsym(driver, "fake_count");
  return driver;
}
static const Row* row_of(const char* symbol) {
  for (const Row& row : kRows) if (strcmp(row.symbol, symbol) == 0) return &row;
  return nullptr;
}
"""

WAYS = {
    "linked": "__LINKED__",
    "dlsym_default": "open_driver(); for (auto s : kIntercepted) check(s, dlsym(RTLD_DEFAULT, s));",
    "dlsym_handle": "void* d = open_driver(); for (auto s : kIntercepted) check(s, dlsym(d, s));",
    "proc_address_v1": """
      void* d = open_driver();
      using Look = int (*)(const char*, void**, int, unsigned long long);
      auto look = (Look)dlsym(d, "cuGetProcAddress");
      for (auto s : kIntercepted) {
        const Row* row = row_of(s); void* found = nullptr;
        look(row->base, &found, row->since, row->per_thread ? 2 : 0); check(s, found);
      }""",
    "proc_address_v2": """
      void* d = open_driver();
      using Look = int (*)(const char*, void**, int, unsigned long long, void*);
      auto look = (Look)dlsym(d, "cuGetProcAddress_v2");
      for (auto s : kIntercepted) {
        const Row* row = row_of(s); void* found = nullptr;
        look(row->base, &found, row->since, row->per_thread ? 2 : 0, nullptr); check(s, found);
      }""",
}

FRAMES = {
    "in_main": "int main() { body(); }",
    "in_a_constructor": """
        __attribute__((constructor)) static void early() { body(); }
        int main() {}""",
    "after_fork": """int main() {
        if (fork() == 0) { body(); fflush(stdout); _exit(0); }
        int status = 1; wait(&status); return status; }""",
}


def run_program(path: Path, preload: Preload, **extra: str) -> str:
    environment = preload.environment(**extra)
    done = subprocess.run(
        [path], env=environment, capture_output=True, text=True, check=False, cwd=path.parent
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout.splitlines()[-1:]
    return done.stdout


def text_of(way: str, frame: str, symbols: list[str]) -> str:
    body = WAYS[way]
    declared = ""
    if way == "linked":
        declared = 'extern "C" {\n' + "".join(f"int {s}();\n" for s in symbols) + "}\n"
        body = "open_driver();" + "".join(f'check("{s}", (void*)&{s});' for s in symbols)
    return f"{PRELUDE}{declared}static void body() {{ {body} }}\n{FRAMES[frame]}\n"


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("way", WAYS)
def test_every_call_is_intercepted_and_forwarded(
    way: str,
    frame: str,
    preload: Preload,
    program: Callable[..., Path],
    signatures: dict[str, list[str]],
) -> None:
    symbols = sorted(signatures)
    flags = [f"-I{GENERATED}", f"-I{GENERATED.parents[1] / 'shim'}"]
    if way == "linked":
        flags += [str(preload.driver), "-fPIE"]
    path = program(text_of(way, frame, symbols), *flags)

    output = run_program(path, preload)

    seen = {line.split()[0]: line.split()[1:] for line in output.splitlines()}
    assert seen == {symbol: ["libtandem.so", "1"] for symbol in symbols}


LATER = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <initializer_list>
using First = int (*)(const char*, void**, int, unsigned long long);
using Second = int (*)(const char*, void**, int, unsigned long long, int*);
int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto v1 = (First)dlsym(driver, "cuGetProcAddress");
  auto v2 = (Second)dlsym(driver, "cuGetProcAddress_v2");
  for (const char* name : {"cuStreamQuery", "cuStreamSynchronize"}) {
    for (int version : {12040, 99000}) {
      void *a = nullptr, *b = nullptr;
      int status = -1;
      v1(name, &a, version, 0);
      v2(name, &b, version, 0, &status);
      for (void* found : {a, b}) {
        Dl_info info = {};
        dladdr(found, &info);
        printf("%s ", strrchr(info.dli_fname, '/') + 1);
      }
      printf("%d\n", status);
    }
  }
}
"""


def test_a_revision_newer_than_the_table_is_the_drivers_own(
    preload: Preload, program: Callable[..., Path]
) -> None:
    """The new revision's arguments are unknown: an older revision's wrapper would misread them."""
    output = run_program(program(LATER), preload, FAKE_NEW_REVISION="cuStreamQuery")

    ours, theirs = "libtandem.so libtandem.so 0", "libcuda.so.1 libcuda.so.1 0"
    assert output.splitlines() == [ours, theirs, ours, ours]


LOOKING_UP = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
using Look = int (*)(const char*, void**, int, unsigned long long, int*);
int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto count = (int (*)(const char*))dlsym(driver, "fake_count");
  auto look = (Look)dlsym(driver, "cuGetProcAddress_v2");
  void* found = nullptr;
"""
OLDER = r"""
  look("cuStreamBeginCapture", &found, 13000, 0, nullptr);
  Dl_info info = {};
  dladdr(found, &info);
  printf("%s ", strrchr(info.dli_fname, '/') + 1);
  ((int (*)(long, long))found)(0, 0);
  printf("%d %d\n", count("cuStreamBeginCapture"), count("cuStreamBeginCapture_v2"));
}
"""


@pytest.mark.parametrize(("version", "counts"), [("10000", "1 0"), ("10010", "0 1")])
def test_an_old_driver_gets_the_wrapper_of_the_revision_that_it_has(
    version: str, counts: str, preload: Preload, program: Callable[..., Path]
) -> None:
    output = run_program(program(LOOKING_UP + OLDER), preload, FAKE_VERSION=version)

    assert output.strip() == f"libtandem.so {counts}"


SUFFIXED = r"""
  if (look("cuGraphInstantiateWithParams_ptsz", &found, 12000, 2, nullptr)) return puts("none"), 0;
  Dl_info info = {};
  dladdr(found, &info);
  ((int (*)(long, long, long))found)(0, 0, 0);
  printf("%s %d\n", strrchr(info.dli_fname, '/') + 1, count("cuGraphInstantiateWithParams_ptsz"));
}
"""


@pytest.mark.parametrize(("answered", "found"), [("0", "none"), ("1", "libtandem.so 1")])
def test_an_exported_name_where_a_base_name_belongs_leads_into_the_shim_if_the_driver_takes_it(
    answered: str, found: str, preload: Preload, program: Callable[..., Path]
) -> None:
    """The CUDA runtime 12.1 asks like that; whether a driver answers is up to the driver."""
    output = run_program(program(LOOKING_UP + SUFFIXED), preload, FAKE_SUFFIXES=answered)

    assert output.strip() == found


def test_the_versions_are_those_of_the_headers_of_the_build(
    signatures: dict[str, list[str]],
) -> None:
    def rows(name: str) -> set[str]:
        return {r for r in (GENERATED / name).read_text().splitlines() if "Profiler" not in r}

    assert rows("cu_versions.inc") <= rows("shim_versions.inc")


def test_the_table_is_sorted_as_the_look_up_needs_it(signatures: dict[str, list[str]]) -> None:
    names = list(signatures)
    versions = [
        line.split("(")[1].split(",")[0]
        for line in (GENERATED / "shim_versions.inc").read_text().splitlines()
        if line.startswith("CU_VERSION(")
    ]

    assert names == sorted(names)
    assert versions == sorted(versions)


MOCK = 'extern "C" int cuInit() { return 77; }'
ABSENT = r"""
#include <dlfcn.h>
#include <stdio.h>
int main() {
  void* mock = dlopen("./libmock.so", RTLD_NOW);
  void* found = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
  const char* error = dlerror();
  auto mocked = (int (*)())dlsym(mock, "cuInit");
  printf("%p %s %d\n", found, error ? "error" : "silent", mocked());
}
"""


def test_without_a_driver_nothing_is_handed_out_and_foreign_functions_stay(
    preload: Preload, program: Callable[..., Path]
) -> None:
    path = program(ABSENT)

    program(MOCK, "-shared", "-fPIC", name="libmock.so")

    assert run_program(path, preload).split() == ["(nil)", "error", "77"]


NEXT_LIBRARY = r"""
#include <dlfcn.h>
// getpagesize of the library after this one, found relative to the caller.
extern "C" int getpagesize() {
  auto next = (int (*)())dlsym(RTLD_NEXT, "getpagesize");
  return next == &getpagesize ? 3 : next() + 1;
}
"""
NEXT_MAIN = r"""
#include <stdio.h>
extern "C" int getpagesize();
int main() { printf("%d\n", getpagesize()); }
"""


JUMP_ALONE = """
#include "dlsym.cpp"
#include "old_glibc.cpp"
// Stands for lookup.cpp, which this test does not need.
void* tandem_substitute(void* handle, const char* name) {
  return tandem::shim::real_dlsym(handle, name);
}
"""
FLAGS = {
    "release": ("-O2", "-fno-stack-protector", "-fomit-frame-pointer"),
    "plain": ("-O0",),
    "protected": ("-O1", "-fstack-protector-all", "-fno-omit-frame-pointer"),
    "covered": ("-O0", "--coverage"),
    "undefined": ("-O1", "-fsanitize=undefined", "-static-libubsan"),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_third_librarys_rtld_next_is_answered_for_itself(
    name: str, preload: Preload, program: Callable[..., Path]
) -> None:
    shim_folder = f"-I{GENERATED.parents[1] / 'shim'}"
    jump = program(JUMP_ALONE, "-shared", "-fPIC", shim_folder, *FLAGS[name], name="libjump.so")
    library = program(NEXT_LIBRARY, "-shared", "-fPIC", name="libnext.so")
    path = program(NEXT_MAIN, str(library))

    for loaded in (preload.shim, jump):
        pages = run_program(path, preload, LD_PRELOAD=str(loaded))
        assert int(pages) % 4096 == 1


VERSIONED = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
extern "C" void* old_dlsym(void*, const char*);
asm(".symver old_dlsym, dlsym@NODE");
int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  Dl_info info = {};
  dladdr(old_dlsym(driver, "cuInit"), &info);
  printf("%s\n", strrchr(info.dli_fname, '/') + 1);
}
"""


@pytest.mark.parametrize("node", ["GLIBC_2.2.5", "GLIBC_2.34"])
def test_both_versions_of_dlsym_are_ours(
    node: str, preload: Preload, program: Callable[..., Path]
) -> None:
    path = program(VERSIONED.replace("NODE", node))

    assert run_program(path, preload) == "libtandem.so\n"
