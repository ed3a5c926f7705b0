// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// With `buffers.fused_accumulation`, the parameters whose gradient's GEMM adds to Megatron's gradient buffer itself:
/// those of linear layers, and an embedding that a head on the same stage shares, unless its loss is in chunks, which
/// makes the gradient otherwise. What autograd gets for them is a dummy: one tensor per distinct shape and process,
/// made at its first use and kept (get_dummy_wgrad of Transformer Engine), so that the chunks of a rank share theirs.
class FusedGradients {
 public:
  explicit FusedGradients(Role& role);

  bool Contains(const ParameterAt& at) const { return fused_[role_.stage.RunOf(at.position)].contains(at.parameter); }
  /// Whether a head's GEMM adds to this gradient too.
  bool IsTiedHere(const ParameterAt& at) const { return tied_here_ && at == kEmbedding; }
  /// Makes the dummy if there is none yet.
  BufferRef Dummy(const ParameterAt& at);
  std::int64_t DummiesMade() const;

 private:
  /// Where a tied head on the same stage finds its weight.
  static constexpr ParameterAt kEmbedding{0, 0};

  void DeclareDummies();

  Role& role_;
  bool tied_here_ = false;
  std::vector<std::set<std::uint32_t>> fused_;  ///< by run
};

}  // namespace tidemark
