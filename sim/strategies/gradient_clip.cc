// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/gradient_clip.h"

#include <iterator>
#include <utility>

#include "sim/program/stages.h"
#include "sim/strategies/host_optimizer.h"

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

bool IsClipKernel(std::string_view name) {
  const std::string_view kernel = WithoutStage(name);
  return kernel == kNorms || kernel == kCoefficient || kernel == kScaling;
}

GradientClip::GradientClip(Role& role, std::int64_t tensors, Place gradients)
    : role_(role), stream_(gradients == Place::host ? kHostStream : role.compute) {
  if (role.job.axes.optimizer_step.clip_norm == 0) {
    return;
  }
  norm().tensors += tensors;
  if (++norm().declared < std::ssize(role.program.chunks) || norm().tensors == 0) {
    return;
  }
  const auto declare = [&](const char* name, std::int64_t elements) {
    return BufferRef{
        role.program.builder.AddBuffer({name, Category::workspace, DType::fp32, elements, {1, 1}, stream_, gradients}),
        {}};
  };
  norm().numbers = declare(kNorms, norm().tensors);
  norm().total = declare("norm of all gradients", 1);
}

void GradientClip::TinyKernel(const char* name, const BufferRef& from, const BufferRef& to) {
  const Bytes moved = role_.builder.buffer(from.buffer).bytes() + role_.builder.buffer(to.buffer).bytes();
  role_.MemoryKernel(name, stream_, Work::optimizer, {from}, {to}, 1, moved);
}

void GradientClip::Reduce(const char* group, std::int64_t ranks, std::int64_t stride) {
  if (ranks == 1) {
    return;
  }
  const StreamId stream = role_.builder.AddStream(group, StreamKind::collective);
  if (stream_ != kHostStream) {
    role_.builder.Order(stream, stream_, "norm measured");
  }
  role_.builder.Emit(Collective{role_.builder.Named("reduce norm"),
                                CollectiveKind::all_reduce,
                                Reduction::sum,
                                Rational(1),
                                role_.AddGroup(group, ranks, stride),
                                DType::fp32,
                                1,
                                stream,
                                {norm().total},
                                {norm().total}});
  if (stream_ == kHostStream) {
    role_.builder.Emit(HostSync{stream});
  } else {
    role_.builder.Order(stream_, stream, "norm reduced");
  }
}

void GradientClip::Measure(const EachPiece& each, bool divided, bool host_reads_norm) {
  if (!clips()) {
    return;
  }
  if (norm().measured++ == 0) {
    role_.Alloc(norm().numbers);
  }
  measured_ = true;
  each([&](const UpdatePiece& piece) {
    const std::int64_t elements = piece.update.elements;
    role_.builder.Emit(Compute{role_.builder.Named(kNorms),
                               Pointwise{elements, GradientBytes(role_, piece).count(), 1},
                               stream_,
                               Work::optimizer,
                               Rational(1),
                               piece.update.gradients,
                               {norm().numbers},
                               piece.update.own_part});
  });
  if (norm().measured == std::ssize(role_.program.chunks)) {
    Sum(divided, host_reads_norm);
  }
}

void GradientClip::BeginParts() {
  if (clips()) {
    role_.Alloc(norm().numbers);
  }
}

void GradientClip::MeasurePart(StreamId stream, const BufferRef& gradient, std::int64_t elements) {
  if (clips()) {
    role_.MemoryKernel(kNorms, stream, Work::optimizer, {gradient}, {norm().numbers}, elements,
                       SizeOf(role_.builder.buffer(gradient.buffer).dtype) * elements);
  }
}

void GradientClip::Sum(bool divided, bool host_reads_norm) {
  if (!clips()) {
    return;
  }
  role_.Alloc(norm().total);
  TinyKernel("norm of norms", norm().numbers, norm().total);
  role_.Free(norm().numbers);
  const Layout& layout = role_.job.layout;
  if (divided) {
    Reduce("dp", layout.GradientRanks() / role_.job.axes.shard.replicas, layout.tp);
  }
  // Where all ranks have the same gradients but of experts, those with different ones are asked.
  const bool over_experts = !divided && layout.ep > 1;
  over_experts ? Reduce("ep x etp", layout.ExpertRanks(), 1) : Reduce("tp", layout.tp, 1);
  Reduce("pp", layout.pp, layout.GradientRanks() * layout.tp);
  if (host_reads_norm) {
    role_.builder.Emit(HostSync{stream_});
  } else {
    TinyKernel(kCoefficient, norm().total, norm().total);
  }
  measured_ = true;
}

void GradientClip::Scale(const EachPiece& each, StreamId stream) {
  if (!measured_) {
    return;
  }
  each([&](const UpdatePiece& piece) {
    std::vector<BufferRef> reads = piece.update.gradients;
    reads.push_back(norm().total);
    role_.MemoryKernel(kScaling, stream, Work::optimizer, std::move(reads), piece.update.gradients,
                       piece.update.elements, GradientBytes(role_, piece) * 2);
  });
}

void GradientClip::Forget() {
  if (std::exchange(measured_, false) && ++norm().clipped == std::ssize(role_.program.chunks)) {
    role_.Free(norm().total);
    norm().measured = norm().clipped = 0;
  }
}

}  // namespace tidemark
