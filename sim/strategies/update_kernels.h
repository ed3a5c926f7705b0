// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// Numbers that an optimizer keeps per element.
std::int64_t MomentsOf(OptimizerKind kind);
/// Multiply-adds of one element: AdamW's two moments, bias corrections, root and quotient; SGD's one or two.
std::int64_t UpdateFlopsPerElement(OptimizerKind kind);

/// What an optimizer updates of one block: one tensor, or several that share buffers.
struct TensorUpdate {
  std::size_t slot = 0;  ///< of blocks with several updates: which
  std::int64_t elements = 0;
  std::vector<BufferRef> gradients, updated;
  Bytes moved_per_element;  ///< by one fused kernel: gradients and what is updated, all but the moments
  bool own_part = false;    ///< as Compute::own_part, for gradients of which the rest was not reduced
};

/// The same with its moments and with buffers for what AdamW divides by, which is made of the second moments.
struct UpdatePiece {
  TensorUpdate update;
  std::vector<BufferRef> states;
  BufferRef root, denominator;  ///< invalid: there is none
};

using PieceVisitor = std::function<void(const UpdatePiece&)>;
/// Calls the visitor for each piece of a step, in order; blocks that are alike as one loop.
using EachPiece = std::function<void(const PieceVisitor&)>;

/// The kernels of torch.optim (optim/adam.py: _single_tensor_adam, _multi_tensor_adam; optim/sgd.py), by
/// optimizer_step.kernel. Fused, everything happens in one of them. Else AdamW's are: the decayed weights and both
/// moments, four operations in place that are priced as one kernel here; the root of the second moments, which is a new
/// tensor; its division by the bias correction; epsilon; and the weights, divided by that. SGD's are the momentum and
/// the weights, all in place; without momentum there is one kernel anyway. Weight decay is AdamW's, which multiplies
/// weights in place; SGD has none, which is PyTorch's default. Releases up to 1.13 had denominators in a second list.
class UpdateKernels {
 public:
  UpdateKernels(Role& role, StreamId stream)
      : role_(role),
        stream_(stream),
        moments_(MomentsOf(role.job.optimizer)),
        dtype_(role.job.axes.precision.optimizer) {}

  /// Whether one kernel does it all.
  static bool IsOne(const Job& job);
  /// Whether the second moments' roots take memory.
  static bool MakesRoots(const Job& job) { return !IsOne(job) && job.optimizer == OptimizerKind::adamw; }

  /// Zeros, in memory of their own.
  void MakeState(const UpdatePiece& piece) const;
  void UpdateAtOnce(const UpdatePiece& piece) const;
  void UpdateMoments(const UpdatePiece& piece) const;
  void TakeRoot(const BufferRef& state, const BufferRef& root) const;
  /// `quotient` may be `root` itself.
  void Divide(const BufferRef& root, const BufferRef& quotient) const;
  void AddEpsilon(const BufferRef& denominator) const;
  /// Of the first `elements` of what the piece updates. `denominator` is invalid for SGD.
  void Apply(const UpdatePiece& piece, const BufferRef& denominator, std::int64_t elements) const;

 private:
  Bytes GradientBytes(const UpdatePiece& piece) const;
  void Emit(const char* name, const UpdatePiece& piece, Bytes moved_per_element) const;
  void EmitPointwise(const char* name, std::vector<BufferRef> reads, std::vector<BufferRef> writes,
                     std::int64_t elements, Bytes moved_per_element) const;

  Role& role_;
  StreamId stream_;
  std::int64_t moments_;
  DType dtype_;  ///< of the moments
};

/// Writes the updates operation by operation, each over all pieces. `foreach` needs the roots of all of them, which its
/// later operations change in place. With `divides_apart` the quotient is a new list: the for-loop over one tensor that
/// has several pieces.
void UpdateInLists(Role& role, const EachPiece& each, bool divides_apart);

}  // namespace tidemark
