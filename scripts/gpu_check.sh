#!/usr/bin/env bash
# What only a CUDA device can show, in under ten minutes and without a network.
set -uo pipefail

usage="Usage: scripts/gpu_check.sh [FOLDER] [--compiled]

Runs on a machine with an NVIDIA GPU:
  - the tests of attention, of its kernels and of sentences laid end to end, on CUDA,
  - FlexAttention's kernel in bf16, beside the formula,
  - the contract of every model, on CUDA,
  - every search of every kind of model, beside the CPU, and that no token is waited for,
  - scripts/bench_attention.py, in which the flash kernel is asserted, and scripts/bench_loss.py,
  - scripts/bench_train.py: the base Transformer of Vaswani et al. 2017 in bf16, sentences padded and
    laid end to end, with tokens a second, the share of what the GPU multiplies, memory,
  - with --compiled the same by torch.compile, which takes some minutes more.

Writes gpu.md, cost.png and the logs to FOLDER, default \$OUT. Parts whose packages are missing are
skipped, and the report says so. PYTHON=… names an interpreter with torch 2.10 or newer; default
.venv/bin/python, else python3. Status: 0 all that ran passed, 1 something failed, 2 no CUDA here."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  echo "$usage"
  exit 0
fi

refuse() {
  echo "gpu_check: error: $1" >&2
  exit 2
}

compiled= folder=${OUT:-}
for argument; do
  case $argument in
    --compiled) compiled=1 ;;
    -*) refuse "no option $argument: scripts/gpu_check.sh --help" ;;
    *) folder=$argument ;;
  esac
done
[[ -n $folder ]] || refuse "no folder for the report: scripts/gpu_check.sh FOLDER"
mkdir -p "$folder" || refuse "$folder cannot be made"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.." || exit
python=${PYTHON:-.venv/bin/python}
[[ -n ${PYTHON:-} || -x $python ]] || python=python3
"$python" -c "import torch" 2> /dev/null || refuse "$python has no torch: name another with PYTHON="
"$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())" ||
  refuse "PyTorch finds no CUDA device here: run this on a machine with an NVIDIA GPU"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} TEST_DEVICE=cuda

report=$folder/gpu.md
failed=0

has() { # MODULE… : whether all can be imported
  "$python" -c "import importlib, sys; [importlib.import_module(m) for m in sys.argv[1:]]" "$@" \
    2> /dev/null
}

log_of() { # TITLE : where what a part wrote to standard output goes
  local name=${1,,}
  echo "$folder/${name//[^a-z0-9]/_}.log"
}

part() { # TITLE, SECONDS, "MODULES", COMMAND… : one section of the report
  local title=$1 seconds=$2 modules=$3 log status began=$SECONDS
  shift 3
  log=$(log_of "$title")
  printf '\n## %s\n\n' "$title" >> "$report"
  # shellcheck disable=SC2086  # a list of modules
  if ! has $modules; then
    echo "skipped: $title, which needs $modules" | tee -a "$report"
    return
  fi
  echo "$title …"
  timeout "$seconds" "$@" > "$log" 2> "$log.err"
  status=$?
  if ((status == 0)); then
    printf 'passed in %d s\n\n' $((SECONDS - began)) | tee -a "$report"
  else
    failed=1
    printf 'FAILED with status %d after %d s (124: out of time)\n\n' \
      "$status" $((SECONDS - began)) | tee -a "$report"
    tail -n 15 "$log.err" | sed 's/^/    /' >> "$report"
  fi
  printf '    %s\n\n' "${*/#$python/python}" >> "$report"
}

tests() { # TITLE, SECONDS, WHAT pytest RUNS… : tests, whose last lines go into the report
  local title=$1 seconds=$2
  shift 2
  part "$title" "$seconds" "pytest pytest_timeout hypothesis jaxtyping pydantic beartype" \
    "$python" -m pytest -q -p no:cacheprovider -p no:benchmark -rfs "${processes[@]}" "$@"
  tail -n 8 "$(log_of "$title")" 2> /dev/null | sed 's/^/    /' >> "$report"
}

{
  echo "# On a CUDA device"
  echo
  "$python" -c "
import platform, torch
print(torch.cuda.get_device_name(), 'capability %d.%d,' % torch.cuda.get_device_capability(),
      'torch', torch.__version__ + ', CUDA', str(torch.version.cuda) + ', Python',
      platform.python_version())"
} > "$report"

processes=()
has xdist && processes=(-n 6 --dist worksteal)  # pytest-benchmark, if installed, forbids it
tests "Attention and its kernels" 60 \
  tests/attention/test_{packed,dot_product,multi_head}.py tests/extras/test_{kernels,patterns,linear}.py
tests "FlexAttention's kernel" 130 -k "on_cuda and bfloat16" tests/extras/test_flex.py
tests "Contract of every model" 90 tests/models/test_contract.py
tests "Searches" 60 tests/search/test_on_cuda.py

part "Cost of attention" 60 "numpy jaxtyping pydantic matplotlib" \
  "$python" scripts/bench_attention.py --device cuda --plot "$folder/cost.png"
cat "$(log_of "Cost of attention")" >> "$report" 2> /dev/null

part "Cost of the loss" 20 "numpy jaxtyping pydantic" \
  "$python" scripts/bench_loss.py --device cuda --rows 25000
cat "$(log_of "Cost of the loss")" >> "$report" 2> /dev/null

training() { # TITLE, SECONDS, WHAT bench_train.py IS TOLD… : the table goes into the report
  local title=$1 seconds=$2
  shift 2
  part "$title" "$seconds" "lightning hydra sentencepiece datasets sacrebleu" \
    "$python" scripts/bench_train.py \
    data=toy tokenizer=word schedule=linear model.d_model=512 model.d_ff=2048 model.num_heads=8 \
    model.encoder_layers=6 model.decoder_layers=6 trainer.accelerator=gpu "cache=$cache" \
    "$@" --models transformer --precisions bf16-mixed --tokens 25000  # takes all that follows
  cat "$(log_of "$title")" >> "$report" 2> /dev/null
}

cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
training "Training the base Transformer" 120 --variant "packed=trainer.packing=on"
[[ -z $compiled ]] || training "The same, compiled" 400 trainer.packing=off trainer.compile=true

echo "written: $report"
exit "$failed"
