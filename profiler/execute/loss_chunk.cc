// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/loss_chunk.h"

#include <algorithm>

#include "base/check.h"
#include "sim/program/layers.h"

namespace tidemark {
namespace {

const ChunkStretch* StretchOf(const OperationContext& context) {
  for (const std::span<const Operand> operands : {context.reads, context.writes}) {
    for (const Operand& operand : operands) {
      if (const ChunkStretch* stretch = context.model.StretchOf(operand.buffer->name)) {
        return stretch;
      }
    }
  }
  return nullptr;
}

}  // namespace

bool KnowsChunk(const OperationContext& context) {
  const ChunkStretch* stretch = StretchOf(context);
  return stretch == nullptr || stretch->turns == 1 || context.turn;
}

LossChunk ChunkOf(const OperationContext& context) {
  if (const ChunkStretch* stretch = StretchOf(context)) {
    TIDEMARK_CHECK(KnowsChunk(context));
    const std::int64_t turn = stretch->turns > 1 ? *context.turn : 0;
    return {stretch->begin + turn * stretch->tokens, stretch->tokens, stretch->suffix};
  }
  return {0, context.job.micro_batch_size * context.job.TokensOnRank(), ""};
}

std::optional<std::int64_t> TurnOf(const Program& program, std::span<const std::int64_t> loops) {
  const auto loop = std::find(program.loops.begin(), program.loops.end(), kPartLoop);
  if (loop == program.loops.end()) {
    return std::nullopt;
  }
  return loops[static_cast<std::size_t>(loop - program.loops.begin())];
}

}  // namespace tidemark
