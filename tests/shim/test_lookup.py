"""Every intercepted symbol, by every way a program can find it, leads into the shim and on."""

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
#define CALL(symbol, klass, handler, reason) #symbol,
#include "calls.def"
};
static int (*count_of)(const char*);
// Prints: symbol, library of the function found, how often calling it reached the driver.
static void check(const char* symbol, void* found) {
  Dl_info info = {};
  if (!found || !dladdr(found, &info)) { printf("%s none 0\n", symbol); return; }
  const char* slash = strrchr(info.dli_fname, '/');
  const int before = count_of(symbol);
  ((Any)found)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  printf("%s %s %d\n", symbol, slash ? slash + 1 : info.dli_fname, count_of(symbol) - before);
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
      auto look = (int (*)(const char*, void**, int, unsigned long long))dlsym(d, "cuGetProcAddress");
      for (auto s : kIntercepted) {
        const Row* row = row_of(s); void* found = nullptr;
        look(row->base, &found, row->since, row->per_thread ? 2 : 0); check(s, found);
      }""",
    "proc_address_v2": """
      void* d = open_driver();
      auto look = (int (*)(const char*, void**, int, unsigned long long, void*))dlsym(d, "cuGetProcAddress_v2");
      for (auto s : kIntercepted) {
        const Row* row = row_of(s); void* found = nullptr;
        look(row->base, &found, row->since, row->per_thread ? 2 : 0, nullptr); check(s, found);
      }""",
}

FRAMES = {
    "in_main": "int main() { body(); }",
    "in_a_constructor": "__attribute__((constructor)) static void early() { body(); } int main() {}",
    "after_fork": """int main() {
        if (fork() == 0) { body(); fflush(stdout); _exit(0); }
        int status = 1; wait(&status); return status; }""",
}


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

    done = subprocess.run(
        [path], env=preload.environment(), capture_output=True, text=True, check=True
    )

    seen = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert seen == {symbol: ["libtandem.so", "1"] for symbol in symbols}
    assert done.stderr == ""


def test_the_table_is_sorted_as_the_look_up_needs_it(signatures: dict[str, list[str]]) -> None:
    names = list(signatures)
    versions = [
        line.split("(")[1].split(",")[0]
        for line in (GENERATED / "cu_versions.inc").read_text().splitlines()
        if line.startswith("CU_VERSION(")
    ]

    assert names == sorted(names)
    assert versions == sorted(versions)


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
    mock = program('extern "C" int cuInit() { return 77; }', "-shared", "-fPIC", name="libmock.so")
    path = program(ABSENT)

    done = subprocess.run(
        [path],
        env=preload.environment(),
        cwd=mock.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["(nil)", "error", "77"]


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


@pytest.mark.parametrize(
    "flags",
    [
        ("-O0",),
        ("-O2",),
        ("-O1", "-g", "-fno-omit-frame-pointer"),
        ("-O1", "-fstack-protector-all"),
    ],
    ids="_".join,
)
def test_a_third_librarys_rtld_next_is_answered_for_itself(
    flags: tuple[str, ...], preload: Preload, program: Callable[..., Path]
) -> None:
    library = program(NEXT_LIBRARY, "-shared", "-fPIC", *flags, name="libnext.so")
    path = program(NEXT_MAIN, str(library))

    done = subprocess.run(
        [path], env=preload.environment(), capture_output=True, text=True, check=True
    )

    assert int(done.stdout) % 4096 == 1


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

    done = subprocess.run(
        [path], env=preload.environment(), capture_output=True, text=True, check=True
    )

    assert done.stdout == "libtandem.so\n"
