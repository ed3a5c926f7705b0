// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/tensor.h"
#include "profiler/execute/operation.h"

namespace tidemark {

/// The tokens of a microbatch that an operation of the head's loss is for: all of them, or a chunk.
struct LossChunk {
  std::int64_t first = 0, tokens = 0;
  std::string_view suffix;  ///< of the names of its tensors and of no others; empty: all tokens

  bool Has(const Operand& operand) const { return operand.buffer->name.ends_with(suffix); }
  /// Its rows of `tensor`, which has rows of `width` for all tokens.
  template <class Tensor>
  Tensor RowsOf(const Tensor& tensor, std::int64_t width = 1) const {
    return kernels::Slice(tensor, first * width, tokens * width);
  }
};

/// Whether the context tells which chunk an operation is of: not where several chunks have the same names and their
/// loop was unrolled.
bool KnowsChunk(const OperationContext& context);

/// By the names of what it reads and writes, and OperationContext::turn. Needs KnowsChunk.
LossChunk ChunkOf(const OperationContext& context);

/// In which turn of its loop over parts of a block's pass (kPartLoop) a program stands; nothing: it has none, as when
/// it was unrolled.
std::optional<std::int64_t> TurnOf(const Program& program, std::span<const std::int64_t> loops);

}  // namespace tidemark
