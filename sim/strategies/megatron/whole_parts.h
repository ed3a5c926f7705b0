// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategies/optimizer.h"

namespace tidemark {

/// Masters and moments of a rank that updates all it has (core/optimizer/optimizer.py,
/// Float16OptimizerWithFloat16Params and FP32Optimizer): one update for each block.
class WholeParts {
 public:
  explicit WholeParts(Role& role);

  /// Of a block with these gradients and weights; none where it trains nothing.
  std::vector<TensorUpdate> UpdatesOf(std::int64_t position, std::vector<BufferRef> gradients,
                                      std::vector<BufferRef> weights) const;
  void MeasureNorm(const Updates& updates) { optimizer_.MeasureNorm(role_, updates); }
  void Step(const Updates& updates) { optimizer_.Step(role_, updates); }
  /// Nothing without masters.
  void CopyToWeights(std::int64_t position, std::vector<BufferRef> weights);

 private:
  std::int64_t ElementsOf(std::int64_t position) const { return TrainableElements(role_.stage.BlockAt(position)); }

  Role& role_;
  const Precision& precision_;
  RunBuffers masters_;
  OptimizerState optimizer_;
};

}  // namespace tidemark
