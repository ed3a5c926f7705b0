// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/update_kernels.h"

#include <utility>

#include "sim/strategies/host_optimizer.h"

namespace tidemark {

std::int64_t MomentsOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adamw:
      return 2;
    case OptimizerKind::sgd_momentum:
      return 1;
    case OptimizerKind::sgd:
      return 0;
  }
  TIDEMARK_CHECK(false && "unknown optimizer");
}

std::int64_t UpdateFlopsPerElement(OptimizerKind kind) { return kind == OptimizerKind::adamw ? 12 : 4; }

bool UpdateKernels::IsOne(const Job& job) {
  return job.axes.optimizer_step.kernel == OptimizerStep::Kernel::fused || job.optimizer == OptimizerKind::sgd;
}

void UpdateKernels::MakeState(const UpdatePiece& piece) const {
  for (const BufferRef& state : piece.states) {
    role_.Alloc(state);
    role_.ZeroKernel("zero moments", stream_, Work::optimizer, state);
  }
}

Bytes UpdateKernels::GradientBytes(const UpdatePiece& piece) const {
  return SizeOf(role_.builder.buffer(piece.update.gradients.front().buffer).dtype);
}

/// The kernel that takes the gradients.
void UpdateKernels::Emit(const char* name, const UpdatePiece& piece, Bytes moved_per_element) const {
  std::vector<BufferRef> reads = piece.update.gradients;
  std::vector<BufferRef> writes = piece.update.updated;
  writes.insert(writes.end(), piece.states.begin(), piece.states.end());
  reads.insert(reads.end(), writes.begin(), writes.end());
  const std::int64_t elements = piece.update.elements;
  Compute update{
      role_.builder.Named(name),
      OptimizerUpdate{elements, (moved_per_element * elements).count(), UpdateFlopsPerElement(role_.job.optimizer)},
      stream_,
      Work::optimizer,
      Rational(1),
      std::move(reads),
      std::move(writes)};
  update.own_part = piece.update.own_part;
  role_.builder.Emit(std::move(update));
}

void UpdateKernels::EmitPointwise(const char* name, std::vector<BufferRef> reads, std::vector<BufferRef> writes,
                                  std::int64_t elements, Bytes moved_per_element) const {
  role_.MemoryKernel(name, stream_, Work::optimizer, std::move(reads), std::move(writes), elements,
                     moved_per_element * elements);
}

void UpdateKernels::UpdateAtOnce(const UpdatePiece& piece) const {
  Emit("optimizer update", piece, piece.update.moved_per_element + SizeOf(dtype_) * 2 * moments_);
}

/// AdamW: weights times 1 - lr * decay; first moments towards the gradient; second moments times beta2, then plus the
/// gradient's square. SGD: momentum times its factor, then plus the gradient.
void UpdateKernels::UpdateMoments(const UpdatePiece& piece) const {
  const bool adam = moments_ == 2;
  const Bytes gradient = GradientBytes(piece);
  const Bytes weights = piece.update.moved_per_element - gradient;
  Emit("update moments", piece,
       SizeOf(dtype_) * (adam ? 6 : 4) + gradient * (adam ? 2 : 1) + (adam ? weights : Bytes(0)));
}

void UpdateKernels::TakeRoot(const BufferRef& state, const BufferRef& root) const {
  EmitPointwise("root of second moments", {state}, {root}, role_.builder.buffer(root.buffer).elements,
                SizeOf(dtype_) * 2);
}

void UpdateKernels::Divide(const BufferRef& root, const BufferRef& quotient) const {
  EmitPointwise("correct bias", {root}, {quotient}, role_.builder.buffer(root.buffer).elements, SizeOf(dtype_) * 2);
}

void UpdateKernels::AddEpsilon(const BufferRef& denominator) const {
  EmitPointwise("add epsilon", {denominator}, {denominator}, role_.builder.buffer(denominator.buffer).elements,
                SizeOf(dtype_) * 2);
}

void UpdateKernels::Apply(const UpdatePiece& piece, const BufferRef& denominator, std::int64_t elements) const {
  std::vector<BufferRef> reads = piece.update.updated;
  reads.insert(reads.end(), piece.states.begin(), piece.states.end());
  if (denominator.buffer.valid()) {
    reads.push_back(denominator);
  }
  const Bytes weights = piece.update.moved_per_element - GradientBytes(piece);
  EmitPointwise("apply update", std::move(reads), piece.update.updated, elements, weights + SizeOf(dtype_) * moments_);
}

void UpdateInLists(Role& role, const EachPiece& each, bool divides_apart) {
  const UpdateKernels write(role, StateStream(role));
  if (UpdateKernels::IsOne(role.job)) {
    each([&](const UpdatePiece& piece) { write.UpdateAtOnce(piece); });
    return;
  }
  each([&](const UpdatePiece& piece) { write.UpdateMoments(piece); });
  if (!UpdateKernels::MakesRoots(role.job)) {
    each([&](const UpdatePiece& piece) { write.Apply(piece, {}, piece.update.elements); });
    return;
  }
  const auto denominator = [&](const UpdatePiece& piece) { return divides_apart ? piece.denominator : piece.root; };
  each([&](const UpdatePiece& piece) {
    role.Alloc(piece.root);
    write.TakeRoot(piece.states.front(), piece.root);
  });
  each([&](const UpdatePiece& piece) {
    if (divides_apart) {
      role.Alloc(piece.denominator);
    }
    write.Divide(piece.root, denominator(piece));
  });
  if (divides_apart) {
    each([&](const UpdatePiece& piece) { role.Free(piece.root); });
  }
  each([&](const UpdatePiece& piece) { write.AddEpsilon(denominator(piece)); });
  each([&](const UpdatePiece& piece) { write.Apply(piece, denominator(piece), piece.update.elements); });
  each([&](const UpdatePiece& piece) { role.Free(denominator(piece)); });
}

}  // namespace tidemark
