// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// What PyTorch DDP's reducer and the parameters' `.grad` remember from one microbatch to the next.
///
/// Buckets: the first backward pass that synchronises uses one bucket of everything, because nobody knows yet in which
/// order gradients arrive; the next forward pass rebuilds the buckets. With a static graph the first such pass only
/// counts parameters, the second one learns the order, and the forward before the third rebuilds. With
/// find_unused_parameters the buckets made at construction stay. Steps are alike from the third one on: where its
/// first forward pass would rebuild, the second step does so behind its update; where nothing is updated behind the
/// pass that they wait for (a loop that is declared wrong), buckets stay as they are.
///
/// Gradients: absent until a backward pass makes them; then tensors of their own; with bucket views, part of the bucket
/// once they were synchronised. zero_grad makes them absent, or leaves them where they are.
class ReducerState {
 public:
  enum class Gradients : std::uint8_t { absent, own, in_bucket };
  struct Rules {
    bool views = false;         ///< gradient_as_bucket_view
    bool stay = false;          ///< zeroed in place
    bool static_graph = false;  ///< wins over find_unused_parameters, as it does there
    bool find_unused = false;

    /// Synchronised backward passes before the buckets are rebuilt; 0: they never are.
    std::int64_t UntilRebuilt() const { return static_graph ? 2 : find_unused ? 0 : 1; }
  };

  /// As a step of the role's kind begins: the steps before were ordinary ones of the same job.
  ReducerState(const Role& role, const Rules& rules);

  /// A forward pass begins. True if it rebuilds the buckets.
  bool BeginForward();
  void EndBackward(bool synchronised);
  void ZeroGradients() { gradients_ = rules_.stay ? gradients_ : Gradients::absent; }

  Gradients gradients() const { return gradients_; }
  /// Where gradients are when the role's program has come to its end.
  Gradients GradientsAtEnd(const Role& role) const;
  bool rebuilt() const { return rebuilt_; }
  /// Whether buckets are rebuilt when the role's program has come to its end.
  bool IsRebuiltAtEnd(const Role& role) const;
  /// The optimizer has stepped and gradients are zeroed. True if that rebuilds the buckets.
  bool EndUpdate(const Role& role);
  /// With a static graph the first pass that synchronises does so after its last gradient only.
  bool Delays() const { return rules_.static_graph && synchronised_ == 0; }
  std::vector<std::int64_t> Key() const {
    return {static_cast<std::int64_t>(gradients_), synchronised_, rebuilt_ ? 1 : 0};
  }

 private:
  Rules rules_;
  Gradients gradients_ = Gradients::absent;
  std::int64_t synchronised_ = 0;  ///< backward passes so far, up to UntilRebuilt()
  bool rebuilt_ = false;           ///< or nothing to rebuild
  bool never_ = false;             ///< nor will be
};

}  // namespace tidemark
