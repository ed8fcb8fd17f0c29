#!/bin/sh
# Reports a missing prerequisite in one clear line, before anything is downloaded. $1: the Python to
# use.
python="$1"
fail() { echo "error: $1" >&2; exit 1; }
command -v "$python" >/dev/null 2>&1 || fail "$python not found; apt install python3 python3-venv python3-dev"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$python is $("$python" -V 2>&1), need 3.11 or newer; set PYTHON=python3.11"
"$python" -c 'import ensurepip' 2>/dev/null || fail "$python has no venv; apt install python3-venv"
header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")')
[ -f "$header" ] || fail "$header not found; apt install python3-dev"
command -v "${CXX:-g++}" >/dev/null 2>&1 || fail "${CXX:-g++} not found; apt install g++"
