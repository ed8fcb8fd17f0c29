#!/usr/bin/env bash
# Everything that needs a GPU, from a bare checkout and without a network.
#
#   PYTHON   the machine's own Python with torch           (default python3)
#   PART     parts to run, comma separated                 (default all, see `parts` below)
#   DRY      1: on the software GPU, with stand-ins for torch; cpu: torch on the CPU, small.
#            Both try the plumbing; their figures mean nothing
#   OUT      folder for the file <date>-<gpu>.json         (default bench/results, dry build/gpu)
#   LIMIT    seconds that a part may take                  (default 480)
#
# A part that fails or runs over its time does not stop the others. Exit code: how many failed.
set -uo pipefail
cd "$(dirname "$0")/../.."

parts="tests conformance proof demo calls swap same_results colocation markers windows vmm sm_sets lifecycle workloads traces frameworks"
PYTHON="${PYTHON:-python3}"
PART="${PART:-}"; PART="${PART//,/ }"
case "${DRY:-}" in
  "") where=gpu; OUT="${OUT:-bench/results}" ;;
  cpu) where=cpu; OUT="${OUT:-build/gpu}" ;;
  *) where=software; OUT="${OUT:-build/gpu}" ;;
esac

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$OUT" "$scratch/parts"
export PYTHONPATH="$PWD:$PWD/client:$PWD/daemon:$PWD/csrc:$scratch/site"
export PYTHONUNBUFFERED=1

if [ "$where" = software ] && [ -x .venv/bin/python ]; then
  PYTHON="$PWD/.venv/bin/python"
fi
needs="grpc_health, hypothesis, msgspec, prometheus_client, pydantic, pytest_timeout, setuptools, structlog"
if ! "$PYTHON" -c "import $needs" 2>/dev/null && compgen -G '.whl/*.whl' >/dev/null; then
  # Packages that the machine lacks travel as wheels; see wheels.py.
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
    --target "$scratch/site" .whl/*.whl || exit 1
fi
if [ "$where" = gpu ] && [ -d /usr/local/cuda ]; then export PATH="/usr/local/cuda/bin:$PATH"; fi

echo "== build"
# A compiler we have not met may warn of something new: worth fixing, not worth losing the run.
if ! "$PYTHON" setup.py -q build_ext --inplace; then
  echo "once more, with warnings that are no errors"
  printf '#!/bin/sh\nexec %s "$@" -Wno-error\n' "${CXX:-g++}" >"$scratch/cxx"
  chmod +x "$scratch/cxx"
  CXX="$scratch/cxx" "$PYTHON" setup.py -q build_ext --inplace || { echo "build failed"; exit 1; }
fi

label="$("$PYTHON" -m bench.gpu.results label "$where")" || exit 1
"$PYTHON" -m bench.gpu.results machine "$scratch/parts/machine.json"
if [ "$where" = gpu ]; then
  # The first import reads gigabytes from a cold disk, which the parts' deadlines do not foresee.
  "$PYTHON" -c "import torch; print('torch', torch.__version__, torch.ones(1, device='cuda'))"
fi
failed=0
for part in ${PART:-$parts}; do
  part="${part//-/_}"
  case " $parts " in
    *" $part "*) ;;
    *) echo "unknown part '$part'; there are: $parts" >&2; failed=$((failed + 1)); continue ;;
  esac
  echo "== $part"
  begin=$SECONDS
  "$PYTHON" -m bench.gpu.limit "${LIMIT:-480}" \
    "$PYTHON" -m "bench.gpu.$part" --where "$where" --out "$scratch/parts/$part.json" --keep "$OUT/$label"
  code=$?
  echo "-- $part: code $code after $((SECONDS - begin)) s"
  if [ "$code" -ne 0 ]; then
    failed=$((failed + 1))
    echo "{\"failed\": $code}" >"$scratch/parts/$part.failed"
  fi
  # After each part, so that a run which is cut off has shown what it found.
  "$PYTHON" -m bench.gpu.results merge "$scratch/parts" "$OUT/$label.json" >"$scratch/table"
done
[ -f "$scratch/table" ] && cat "$scratch/table"
exit "$failed"
