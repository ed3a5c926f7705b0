#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs what needs a GPU on a machine that has one, out of a bundle (./dev gpu-bundle), in the order of its worth, each
# part in a time box of its own. Results are written as they come: whatever ends the run, what was measured stays.
#
#   run [RESULTS]     RESULTS: a folder for what comes out (results/ beside this script)
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:-$here/results}
python=${TIDEMARK_TORCH_PYTHON:-python3}

mkdir -p "$results" || exit 3
if ! "$here/tidemark" doctor --require cuda | tee "$results/doctor.txt"; then
  printf 'error: no GPU can be used here, so there is nothing to run\n' >&2
  printf 'hint: the lines above say what is missing; %s\n' \
    'an NVIDIA driver for CUDA 13 and a GPU are all that a machine needs' >&2
  exit 3
fi

failed=0

# part NAME SECONDS COMMAND...: its output goes to RESULTS/NAME.txt as well. A missing requirement (exit code 3) is no
# failure, and neither is a part that ran out of time: both are told.
part() {
  local name=$1 seconds=$2 code
  shift 2
  printf '\n== %s, at most %s s\n' "$name" "$seconds"
  timeout --kill-after=10 "$seconds" "$@" 2>&1 | tee "$results/$name.txt"
  code=${PIPESTATUS[0]}
  case $code in
    0) printf '== %s: done\n' "$name" ;;
    3) printf '== %s: left out, something is missing\n' "$name" ;;
    124 | 137) printf '== %s: out of time, what it has written stays\n' "$name" ;;
    *)
      printf '== %s: failed with exit code %s\n' "$name" "$code"
      failed=1
      ;;
  esac
}

part device-tests 120 "$here/gpu_test" --gtest_filter=-AWatchedGpu.*
# Recording begins before a context is made: a process each.
for test in ClosesItsBudget ClosesTheBudgetOfAPool FindsWhatIsHiddenBehindTheAllocator TimesOperationsOnTheProgramsStreams; do
  part "watched-$test" 60 "$here/gpu_test" --gtest_filter="AWatchedGpu.$test"
done
# As torchrun would start them; several on one GPU where NCCL (2.30 and later) takes that.
# shellcheck disable=SC2317  # a bash of its own calls it, under timeout
ranks() {
  local rank code=0 pids=()
  for ((rank = 0; rank < $1; ++rank)); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 NCCL_MULTI_RANK_GPU_ENABLE=1 \
      "$here/gpu_ranks" & pids+=($!)
  done
  for rank in "${pids[@]}"; do
    wait "$rank" || code=$?
  done
  return "$code"
}
export -f ranks && export here
for count in 1 2; do
  part "ranks-$count" 150 bash -c "ranks $count"
done
for recorded in none records sources; do
  part "memory-$recorded" 60 "$here/memory_experiment" "$recorded"
done
# Our own step on the GPU: do predicted and measured memory agree, and are its gradients those of one big batch? Of six
# steps three are steady ones that nothing is checked in.
small=("$here/jobs/demo-small.yaml" --set layout.tp=1 --set layout.sp=false)
for strategy in ddp-last fsdp2-scatter-each megatron deepspeed-zero2; do
  part "step-$strategy" 60 "$here/tidemark" compare "${small[@]}" --set "strategy=$strategy" --device cuda --steps 6 \
    --format json
  part "numbers-$strategy" 60 "$here/tidemark" run "${small[@]}" --set "strategy=$strategy" --device cuda --verify \
    --format json
done
part step-gpt2 120 "$here/tidemark" compare "$here/jobs/gpt2-ddp.yaml" --set layout.dp=1 --device cuda --steps 6 \
  --format json
# And predicted times, with the rates of this very GPU? The machine file stays beside what was compared.
part calibrate 240 "$here/tidemark" calibrate --device cuda -o "$results/machine.yaml"
if [[ -s $results/machine.yaml ]]; then
  mine=(--set "machine=$results/machine.yaml" --device cuda --steps 6 --format json)
  for strategy in ddp-last fsdp2-scatter-each megatron deepspeed-zero2; do
    part "calibrated-$strategy" 60 "$here/tidemark" compare "${small[@]}" --set "strategy=$strategy" "${mine[@]}"
  done
  part calibrated-gpt2 120 "$here/tidemark" compare "$here/jobs/gpt2-ddp.yaml" --set layout.dp=1 "${mine[@]}"
fi
part pytorch-judge 420 "$python" "$here/experiments/pytorch_judge.py" --tidemark "$here/tidemark" --out "$results" \
  --time-box 400
exit "$failed"
