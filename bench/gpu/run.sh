#!/usr/bin/env bash
# Runs everything that needs a GPU, from a bare checkout and without a network.
#
#   PYTHON   the machine's own Python with torch           (default python3)
#   PART     parts to run, comma separated, in that order  (default all, see `usual` below); `a+b`
#            runs two at once: for parts that do not measure speed
#   DRY      1: on the software GPU, with stand-ins for torch; cpu: torch on the CPU, small.
#            Both only test the plumbing; their figures mean nothing
#   OUT      folder for the file <date>-<gpu>.json         (default bench/results, dry build/gpu)
#   LIMIT    seconds that a part may take                  (default 480)
#   TOTAL    seconds for everything, the build included: a part starts only if two thirds of its
#            usual time are left, and is ended when TOTAL is over, or 30 s after twice its usual
#            time (default: no limit)
#   PACK     1: put the files that accompany the results into one archive, <date>-<gpu>.tar.gz
#   BUILT    1: the checkout contains the native parts, built for this Python: build nothing
#   MADE     folder for what parts compile, if some of it is already there (default: a new one)
#   COMMIT   the commit to name in the results, if there is no git
#
# A part that fails or exceeds its time does not stop the others. Exit code: how many failed.
set -uo pipefail
cd "$(dirname "$0")/../.."

# The most valuable parts come first. `usual`: seconds that a part usually takes on an H100 or H200,
# with 16 cores.
parts="swap programs workloads sm_sets markers colocation vmm windows lifecycle frameworks mps conformance proof same_results throttle tests traces demo calls"
declare -A usual=([workloads]=340 [programs]=80 [markers]=50 [windows]=120 [vmm]=120 [sm_sets]=60 [frameworks]=190
  [conformance]=140 [colocation]=275 [lifecycle]=110 [swap]=75 [mps]=60 [proof]=75 [traces]=120
  [same_results]=90 [throttle]=125 [demo]=60 [tests]=150 [calls]=60)
PYTHON="${PYTHON:-python3}"
PART="${PART:-}"; PART="${PART//,/ }"
case "${DRY:-}" in
  "") where=gpu; OUT="${OUT:-bench/results}" ;;
  cpu) where=cpu; OUT="${OUT:-build/gpu}" ;;
  *) where=software; OUT="${OUT:-build/gpu}" ;;
esac

scratch="$(mktemp -d)"
open="" torch=""
trap 'kill $open $torch 2>/dev/null; rm -rf "$scratch"' EXIT
mkdir -p "$OUT" "$scratch/parts"
export PYTHONPATH="$PWD:$PWD/client:$PWD/daemon:$PWD/csrc:$scratch/site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1

if [ "$where" = software ] && [ -x .venv/bin/python ]; then
  PYTHON="$PWD/.venv/bin/python"
fi
needs="grpc_health, hypothesis, msgspec, prometheus_client, pydantic, pytest_timeout, setuptools, structlog"
if ! "$PYTHON" -c "import $needs" 2>/dev/null; then
  # Packages that the machine lacks come along as wheels; see wheels.py.
  if compgen -G '.whl/*.whl' >/dev/null; then
    "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
      --target "$scratch/site" .whl/*.whl || exit 1
  elif [ "$where" = gpu ]; then
    echo "error: $PYTHON lacks one of $needs, and there is no .whl/: 'make wheels-gpu' makes it, on a machine with a network" >&2
    exit 1
  fi
fi
if [ "$where" = gpu ]; then
  # Compilers, and the driver's own programs, which some containers have here.
  for folder in /usr/local/cuda/bin /usr/local/nvidia/bin; do
    if [ -d "$folder" ]; then export PATH="$folder:$PATH"; fi
  done
  # Keep the GPU open: otherwise it is initialised again for each process, which takes seconds.
  "$PYTHON" -c 'import pynvml, time; pynvml.nvmlInit(); pynvml.nvmlDeviceGetHandleByIndex(0)
time.sleep(7200)' >/dev/null 2>&1 </dev/null &
  open=$!
  # The first import reads gigabytes from a cold disk, which the parts' deadlines do not allow for.
  timeout 150 "$PYTHON" -c \
    'import torch; print("torch", torch.__version__, torch.ones(1, device="cuda"))' &
  torch=$!
fi

echo "== build"
if [ "$where" = gpu ]; then
  # An unknown compiler may have new warnings: worth fixing, but not worth losing the run.
  mkdir -p build
  printf '#!/bin/sh\nexec %s "$@" -Wno-error\n' "${CXX:-g++}" >build/cxx
  chmod +x build/cxx
  export CXX="$PWD/build/cxx"
fi
if [ -z "${BUILT:-}" ]; then
  "$PYTHON" setup.py -q build_ext --inplace || { echo "build failed"; exit 1; }
fi
echo "-- built after $SECONDS s"

label="$("$PYTHON" -m bench.gpu.harness.results label "$where")" || exit 1
"$PYTHON" -m bench.gpu.harness.results machine "$scratch/parts/machine.json"
if [ -n "$torch" ] && ! wait "$torch"; then
  echo "-- torch does not compute on the GPU, or not within 150 s: what needs it will say so" >&2
fi
echo "-- ready after $SECONDS s"
keep="$OUT/$label"
if [ -n "${PACK:-}" ]; then keep="$scratch/keep/$label"; fi
made="${MADE:-$scratch/made}"
unknown=0

# Called after each part, so that a run that is cut off has saved its results so far.
keep_results() {
  "$PYTHON" -m bench.gpu.harness.results merge "$scratch/parts" "$OUT/$label.json" >"$scratch/table"
  if [ -d "$scratch/keep" ]; then tar -czf "$OUT/$label.tar.gz" -C "$scratch/keep" "$label"; fi
}

# Runs one part for at most `limit` seconds; what it reports goes into the results.
run_part() {
  local part="$1" limit="$2" begin=$SECONDS code
  echo "== $part"
  "$PYTHON" -m bench.gpu.harness.limit "$limit" \
    "$PYTHON" -m "bench.gpu.parts.$part" --where "$where" --seconds "$limit" \
    --out "$scratch/parts/$part.json" --keep "$keep" --made "$made"
  code=$?
  echo "-- $part: code $code after $((SECONDS - begin)) s"
  if [ "$code" -ne 0 ]; then echo "{\"failed\": $code}" >"$scratch/parts/$part.failed"; fi
}

for group in ${PART:-$parts}; do
  running=()
  for part in ${group//+/ }; do
    part="${part//-/_}"
    if [ -z "${usual[$part]:-}" ]; then
      echo "unknown part '$part'; there are: $(echo $parts)" >&2; unknown=$((unknown + 1)); continue
    fi
    limit="${LIMIT:-480}"
    if [ -n "${TOTAL:-}" ]; then
      left=$((TOTAL - SECONDS))
      # A part that is ended early keeps its results so far, so starting late is still worthwhile.
      if [ $((${usual[$part]} * 2 / 3)) -gt "$left" ]; then
        why="it usually takes ${usual[$part]} s and $left s are left"
        echo "-- $part: not begun, $why"
        echo "$why" >"$scratch/parts/$part.not_begun"
        continue
      fi
      # A part that hangs must not use up the others' time.
      most=$((${usual[$part]} * 2 + 30))
      if [ "$most" -lt "$limit" ]; then limit="$most"; fi
      if [ "$left" -lt "$limit" ]; then limit="$left"; fi
    fi
    run_part "$part" "$limit" &
    running+=($!)
  done
  if [ "${#running[@]}" -gt 0 ]; then wait "${running[@]}"; fi
  keep_results
done
[ -f "$scratch/table" ] && cat "$scratch/table"
exit $((unknown + $(find "$scratch/parts" -name '*.failed' | wc -l)))
