#!/usr/bin/env bash
# Everything that needs a GPU, from a bare checkout and without a network.
#
#   PYTHON   the machine's own Python with torch           (default python3)
#   PART     parts to run, comma separated                 (default all, see `parts` below)
#   DRY      1: on the software GPU, with stand-ins for torch: tries the plumbing
#   OUT      folder for the file <date>-<gpu>.json         (default bench/results)
#
# A part that fails or runs over its time does not stop the others. Exit code: how many failed.
set -uo pipefail
cd "$(dirname "$0")/../.."

parts="tests demo overhead same_results colocation"
PYTHON="${PYTHON:-python3}"
DRY="${DRY:-}"
PART="${PART:-}"; PART="${PART//,/ }"
part_seconds=480

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
if [ -n "$DRY" ] && [ -x .venv/bin/python ]; then PYTHON="$PWD/.venv/bin/python"; fi

# Packages that the machine lacks travel as wheels; see wheels.py.
if [ -z "$DRY" ] && compgen -G '.whl/*.whl' >/dev/null; then
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
    --target "$scratch/site" .whl/*.whl || exit 1
fi
export PYTHONPATH="$PWD:$PWD/client:$PWD/daemon:$PWD/csrc:$scratch/site"
export PYTHONUNBUFFERED=1
if [ -z "$DRY" ] && [ -d /usr/local/cuda ]; then export PATH="/usr/local/cuda/bin:$PATH"; fi

echo "== build"
"$PYTHON" setup.py -q build_ext --inplace || { echo "build failed"; exit 1; }

label="$("$PYTHON" -m bench.gpu.results label ${DRY:+--dry})" || exit 1
OUT="${OUT:-bench/results}"
mkdir -p "$OUT" "$scratch/parts"
failed=0
for part in ${PART:-$parts}; do
  part="${part//-/_}"
  case " $parts " in
    *" $part "*) ;;
    *) echo "unknown part '$part'; there are: $parts" >&2; failed=$((failed + 1)); continue ;;
  esac
  echo "== $part"
  timeout --signal=INT --kill-after=20 "$part_seconds" \
    "$PYTHON" -m "bench.gpu.$part" ${DRY:+--dry} --out "$scratch/parts/$part.json"
  code=$?
  if [ "$code" -ne 0 ]; then
    failed=$((failed + 1))
    echo "part $part failed with code $code"
    echo "{\"failed\": $code}" >"$scratch/parts/$part.failed"
  fi
done
"$PYTHON" -m bench.gpu.results merge "$scratch/parts" "$OUT/$label.json"
exit "$failed"
