// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/lower/data_parallel.h"
#include "sim/lower/role.h"

namespace tidemark {

/// When a tensor of a block's table is born and dies, as indices into forward followed by backward actions.
struct Lifetime {
  static constexpr std::size_t kNever = SIZE_MAX;
  std::size_t birth = kNever, death = kNever;
};

/// Lifetimes of all tensors of `block`: born at the first action that writes, dead after the last that touches.
std::vector<Lifetime> LifetimesOf(const Block& block);

/// Bytes per microbatch that live from the block's forward into its backward: what is "saved". The block's input
/// counts, its output does not (it is the next block's input).
Bytes SavedBytes(const Block& block);

/// Writes the actions of blocks: allocations, kernels, tensor-parallel collectives, frees. Calls the data-parallel
/// hooks for weights and gradients.
class BlockWriter {
 public:
  BlockWriter(Role& role, DataParallel& data_parallel);

  /// Copies ids and labels to the device.
  void Load(const Microbatch& microbatch);
  void Forward(const Microbatch& microbatch, std::int64_t position);
  void Backward(const Microbatch& microbatch, std::int64_t position);

  /// The residual stream between position - 1 and `position`, and its gradient; at either end of the stage it comes
  /// from or goes to a neighbour.
  BufferRef Boundary(const Microbatch& microbatch, std::int64_t position) const;
  BufferRef BoundaryGradient(const Microbatch& microbatch, std::int64_t position) const;

  std::int64_t Key() const { return pool_exists_ ? 1 : 0; }

 private:
  struct BoundaryRun {
    std::int64_t base = 0, end = 0;  ///< positions [base, end)
    BufferId value, gradient;
  };
  /// What surrounds one action, the same for every block of a run: worked out once.
  struct ActionPlan {
    std::vector<TensorId> births, deaths;  ///< allocated before it, freed after it, by this block
    bool uses_pool = false;
    NameId name;
  };
  struct RunTables {
    std::vector<BufferId> tensors;  ///< invalid for boundaries
    std::vector<ActionPlan> plans;  ///< of forward, then backward actions
    bool reads_output_gradient = false;
  };

  void DeclareTensors(const BlockRun& run);
  std::vector<ActionPlan> PlanActions(const Block& block, bool first_of_network);
  void DeclareBoundaries();
  BufferId Pool(const Tensor& tensor);
  const BoundaryRun& BoundaryRunOf(std::int64_t position) const;
  Index MicrobatchIndex(const Microbatch& microbatch) const;

  BufferRef Ref(const Microbatch& microbatch, std::int64_t position, TensorId tensor) const;
  std::vector<BufferRef> Refs(const Microbatch& microbatch, std::int64_t position,
                              const std::vector<TensorId>& tensors) const;
  /// False for what a neighbour allocates or frees.
  bool BornHere(const Block& block, TensorId tensor) const;
  bool DiesHere(const Block& block, bool first_of_network, TensorId tensor) const;

  void Act(const Microbatch& microbatch, std::int64_t position, std::size_t action);
  void Act(const Microbatch& microbatch, std::int64_t position, NameId name, const Calculate& action);
  void Act(const Microbatch& microbatch, std::int64_t position, NameId name, const Communicate& action);
  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at);
  void EndGradient(const Microbatch& microbatch, const ParameterAt& at);

  Role& role_;
  DataParallel& data_parallel_;
  StreamId tp_, copy_;
  GroupId tp_group_;
  std::vector<RunTables> runs_;
  std::vector<BoundaryRun> boundaries_;
  BufferId pool_;
  bool pool_exists_ = false;
  Rational loss_scale_{1};                  ///< of the next kernel
  bool tied_ = false;                       ///< the head of this stage reads the embedding of this stage
  BufferId tied_contribution_;              ///< the embedding's own gradient, before it is added to the head's
  std::optional<BufferRef> tied_gradient_;  ///< the sum, while the backward pass is between head and embedding
};

}  // namespace tidemark
