// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/gradient_clip.h"

#include <utility>

namespace tidemark {
namespace {

constexpr const char* kNorms = "gradient norms";
constexpr const char* kCoefficient = "clip coefficient";
constexpr const char* kScaling = "clip gradients";

Bytes GradientBytes(const Role& role, const UpdatePiece& piece) {
  const Buffer& gradient = role.builder.buffer(piece.update.gradients.front().buffer);
  return SizeOf(gradient.dtype) * piece.update.elements;
}

}  // namespace

bool IsClipKernel(std::string_view name) { return name == kNorms || name == kCoefficient || name == kScaling; }

GradientClip::GradientClip(Role& role, std::int64_t tensors) : role_(role) {
  if (role.job.axes.optimizer_step.clip_norm == 0 || tensors == 0) {
    return;
  }
  const auto declare = [&](const char* name, std::int64_t elements) {
    return BufferRef{role.builder.AddBuffer({name, Category::workspace, DType::fp32, elements, {1, 1}, role.compute}),
                     {}};
  };
  norms_ = declare(kNorms, tensors);
  total_ = declare("norm of all gradients", 1);
}

void GradientClip::TinyKernel(const char* name, const BufferRef& from, const BufferRef& to) {
  const Bytes moved = role_.builder.buffer(from.buffer).bytes() + role_.builder.buffer(to.buffer).bytes();
  role_.MemoryKernel(name, role_.compute, Work::optimizer, {from}, {to}, 1, moved);
}

void GradientClip::Reduce(const char* group, std::int64_t ranks, std::int64_t stride) {
  if (ranks == 1) {
    return;
  }
  const StreamId stream = role_.builder.AddStream(group, StreamKind::collective);
  role_.builder.Order(stream, role_.compute, "norm measured");
  role_.builder.Emit(Collective{role_.builder.Named("reduce norm"),
                                CollectiveKind::all_reduce,
                                Reduction::sum,
                                Rational(1),
                                role_.AddGroup(group, ranks, stride),
                                DType::fp32,
                                1,
                                stream,
                                {total_},
                                {total_}});
  role_.builder.Order(role_.compute, stream, "norm reduced");
}

void GradientClip::Measure(const EachPiece& each, bool divided, bool host_reads_norm) {
  if (!norms_.buffer.valid()) {
    return;
  }
  role_.Alloc(norms_);
  each([&](const UpdatePiece& piece) {
    const std::int64_t elements = piece.update.elements;
    role_.builder.Emit(Compute{role_.builder.Named(kNorms),
                               Pointwise{elements, GradientBytes(role_, piece).count(), 1},
                               role_.compute,
                               Work::optimizer,
                               Rational(1),
                               piece.update.gradients,
                               {norms_},
                               piece.update.own_part});
  });
  Sum(divided, host_reads_norm);
}

void GradientClip::BeginParts() {
  if (norms_.buffer.valid()) {
    role_.Alloc(norms_);
  }
}

void GradientClip::MeasurePart(StreamId stream, const BufferRef& gradient, std::int64_t elements) {
  if (norms_.buffer.valid()) {
    role_.MemoryKernel(kNorms, stream, Work::optimizer, {gradient}, {norms_}, elements,
                       SizeOf(role_.builder.buffer(gradient.buffer).dtype) * elements);
  }
}

void GradientClip::Sum(bool divided, bool host_reads_norm) {
  if (!norms_.buffer.valid()) {
    return;
  }
  role_.Alloc(total_);
  TinyKernel("norm of norms", norms_, total_);
  role_.Free(norms_);
  const Layout& layout = role_.job.layout;
  if (divided) {
    Reduce("dp", layout.dp / role_.job.axes.shard.replicas, layout.tp);
  }
  Reduce("tp", layout.tp, 1);
  Reduce("pp", layout.pp, layout.dp * layout.tp);
  if (host_reads_norm) {
    role_.builder.Emit(HostSync{role_.compute});
  } else {
    TinyKernel(kCoefficient, total_, total_);
  }
  measured_ = true;
}

void GradientClip::Scale(const EachPiece& each, StreamId stream) {
  if (!measured_) {
    return;
  }
  each([&](const UpdatePiece& piece) {
    std::vector<BufferRef> reads = piece.update.gradients;
    reads.push_back(total_);
    role_.MemoryKernel(kScaling, stream, Work::optimizer, std::move(reads), piece.update.gradients,
                       piece.update.elements, GradientBytes(role_, piece) * 2);
  });
}

void GradientClip::Forget() {
  if (measured_) {
    role_.Free(total_);
  }
  measured_ = false;
}

}  // namespace tidemark
