// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/block_passes.h"

#include "sim/lower/fold_run.h"

namespace tidemark {

void BlockPasses::Forward(const Microbatch& microbatch, const RunRange& runs, BlockWriter::Forwards kind) {
  for (std::size_t run = runs.begin; run < runs.end; ++run) {
    FoldRun(role_, data_parallel_, blocks_, {role_.stage.first[run], role_.stage.runs[run].count, 1},
            [&](std::int64_t position) {
              data_parallel_.BeforeForward(microbatch, position);
              blocks_.Forward(microbatch, position, kind);
              data_parallel_.AfterForward(microbatch, position);
            });
  }
}

void BlockPasses::Backward(const Microbatch& microbatch, const RunRange& runs, BlockWriter::Backwards kind) {
  // Hooks surround the pass that completes gradients.
  const bool completes = kind != BlockWriter::Backwards::of_inputs;
  for (std::size_t run = runs.end; run-- > runs.begin;) {
    const std::int64_t count = role_.stage.runs[run].count;
    FoldRun(role_, data_parallel_, blocks_, {role_.stage.first[run] + count - 1, count, -1},
            [&](std::int64_t position) {
              if (completes) {
                data_parallel_.BeforeBackward(microbatch, position);
              }
              blocks_.Backward(microbatch, position, kind);
              if (completes) {
                data_parallel_.AfterBackward(microbatch, position);
              }
            });
  }
}

}  // namespace tidemark
