// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/gemini_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tidemark {
namespace {

/// Adam's two moments of one element, and its multiply-adds: bias corrections, root and quotient among them.
constexpr std::int64_t kMoments = 2, kFlopsPerElement = 12;

}  // namespace

void ChunkTable::Declare(Role& role, const Buffer& chunk, const std::vector<std::int64_t>& elements,
                         const std::vector<Holding>& holds) {
  for (std::size_t i = 0; i < elements.size(); ++i) {
    Buffer buffer = chunk;
    buffer.name += elements.size() > 1 ? fmt::format(" {}", i) : "";
    buffer.elements = elements[i];
    buffer.stream = role.compute;
    buffer.holds = {holds[i]};
    refs_.push_back({elements[i] == 0 ? BufferId{} : role.builder.AddBuffer(std::move(buffer)), {}});
  }
}

GeminiChunks::GeminiChunks(Role& role, const ChunkLayout& layout)
    : role_(role), axes_(role.job.axes), layout_(layout), ranks_(role.job.layout.GradientRanks()) {
  stream_ = role.builder.AddStream("dp", StreamKind::collective);
  reduce_stream_ = axes_.sync.overlap ? role.builder.AddStream("reduce", StreamKind::collective) : role.compute;
  group_ = role.AddGroup("dp", ranks_, role.job.layout.tp);
  Declare();
}

std::vector<Holding> GeminiChunks::HoldsWhole() const {
  std::vector<Holding> holds;
  for (std::size_t chunk = 0; chunk < layout_.elements.size(); ++chunk) {
    holds.push_back({.of = layout_.members[chunk], .multiple = layout_.elements[chunk]});
  }
  return holds;
}

/// A rank's shard: an equal part of the chunk, padding and all.
std::vector<Holding> GeminiChunks::HoldsOwn(bool masters) const {
  std::vector<Holding> holds = HoldsWhole();
  for (Holding& holding : holds) {
    holding.cut = layout_.keep_gathered ? Cut::none : Cut::together;
    holding.ranks = layout_.keep_gathered ? 1 : ranks_;
    holding.masters = masters;
  }
  return holds;
}

/// Elements of this rank's shard that are parameters: the last ranks have fewer.
std::int64_t GeminiChunks::OwnElements(std::size_t chunk) const {
  if (layout_.keep_gathered) {
    return layout_.used[chunk];
  }
  const std::int64_t shard = layout_.elements[chunk] / ranks_;
  return std::clamp<std::int64_t>(layout_.used[chunk] - role_.program.rank * shard, 0, shard);
}

/// Moments cover this rank's parameters without padding.
void GeminiChunks::Declare() {
  const Precision& precision = axes_.precision;
  const bool sharded = !layout_.keep_gathered, later = role_.step != StepKind::first;
  std::vector<std::int64_t> shards, moments;
  for (std::size_t chunk = 0; chunk < layout_.elements.size(); ++chunk) {
    shards.push_back(sharded ? layout_.elements[chunk] / ranks_ : layout_.elements[chunk]);
    moments.push_back(kMoments * OwnElements(chunk));
  }
  const auto buffer = [](const char* name, Category category, DType dtype, bool resident, bool kept) {
    return Buffer{.name = name, .category = category, .dtype = dtype, .stream = {}, .resident = resident, .kept = kept};
  };
  const std::vector<Holding> all = HoldsWhole(), own = HoldsOwn(false);
  const Category gradient = Category::gradient;
  whole_.Declare(role_, buffer("parameter chunk", Category::parameter, precision.params, !sharded, !sharded),
                 layout_.elements, all);
  gradient_.Declare(role_, buffer("gradient chunk", gradient, precision.gradients, !sharded && later, !sharded),
                    layout_.elements, all);
  if (sharded) {
    shard_.Declare(role_, buffer("shard of parameter chunk", Category::parameter, precision.params, true, true), shards,
                   own);
    gradient_shard_.Declare(role_, buffer("shard of gradient chunk", gradient, precision.gradients, later, true),
                            shards, own);
  }
  backup_.Declare(role_, buffer("accumulated gradient times N", gradient, precision.gradients, false, false), shards,
                  own);
  if (precision.master) {
    masters_.Declare(role_, buffer("master weights of chunk", Category::optimizer, *precision.master, true, true),
                     shards, HoldsOwn(true));
  }
  std::vector<Holding> unpadded = own;
  for (Holding& holding : unpadded) {
    holding.unpadded = sharded;
    holding.multiple = sharded ? holding.multiple : 1;
  }
  moments_.Declare(role_, buffer("moments of chunk", Category::optimizer, precision.optimizer, later, true), moments,
                   unpadded);
}

void GeminiChunks::Communicate(const char* name, CollectiveKind kind, Reduction reduction, StreamId from,
                               const BufferRef& input, const BufferRef& output) {
  const bool reduces = reduction != Reduction::none;
  role_.builder.Order(stream_, from, reduces ? "gradient chunk complete" : "chunk needed");
  role_.builder.Emit(Collective{role_.builder.Named(name),
                                kind,
                                reduction,
                                Rational(1),
                                group_,
                                reduces ? axes_.precision.reduce : axes_.precision.params,
                                role_.builder.buffer(reduces ? input.buffer : output.buffer).elements,
                                stream_,
                                {input},
                                {output}});
  role_.builder.Order(from, stream_, reduces ? "gradient chunk reduced" : "chunk gathered");
}

/// Without an order to the stream that used it last, the allocator is relied on to keep the memory until then.
void GeminiChunks::FreeAfter(const BufferRef& ref, StreamId stream) {
  role_.builder.Emit(tidemark::Free{ref, stream != role_.compute});
}

void GeminiChunks::Gather(std::int64_t chunk) {
  role_.Alloc(whole_(chunk));
  if (ranks_ == 1) {
    role_.CopyKernel("copy chunk", role_.compute, shard_(chunk), whole_(chunk));
  } else {
    Communicate("gather chunk", CollectiveKind::all_gather, Reduction::none, role_.compute, shard_(chunk),
                whole_(chunk));
  }
  role_.Free(shard_(chunk));
}

void GeminiChunks::GiveUp(std::int64_t chunk, StreamId stream) {
  role_.Alloc(shard_(chunk));
  role_.CopyKernel("shard of chunk", stream, whole_(chunk), shard_(chunk));
  FreeAfter(whole_(chunk), stream);
}

void GeminiChunks::OpenGradient(std::int64_t chunk, bool first_microbatch) {
  const bool keep = layout_.keep_gathered;
  const BufferRef whole = gradient_(chunk), final_gradient = FinalGradient(chunk);
  if (first_microbatch) {
    const bool exists = role_.step != StepKind::first;
    if (exists && !keep) {
      role_.Free(final_gradient);
    }
    if (!exists || !keep) {
      role_.Alloc(whole);
    }
    if (!exists) {
      role_.ZeroKernel("zero gradient chunk", role_.compute, Work::compute, whole);
    }
    return;
  }
  const BufferRef backup = backup_(chunk);
  const Buffer& buffer = role_.builder.buffer(backup.buffer);
  role_.Alloc(backup);
  role_.CopyKernel("back up gradient", role_.compute, final_gradient, backup);
  role_.builder.Emit(Scale{role_.builder.Named("gradient times N"), Rational(ranks_), role_.compute, backup});
  if (!keep) {
    role_.Free(final_gradient);
    role_.Alloc(whole);
  }
  role_.ZeroKernel("zero gradient chunk", role_.compute, Work::compute, whole);
  Compute add{role_.builder.Named("add gradient back"),
              Pointwise{buffer.elements, buffer.bytes().count() * 3, 1},
              role_.compute,
              Work::compute,
              Rational(1),
              {backup, whole},
              {whole}};
  add.own_part = !keep && ranks_ > 1;
  role_.builder.Emit(std::move(add));
  role_.Free(backup);
}

void GeminiChunks::PutGradient(std::int64_t chunk, const BufferRef& gradient, bool first_microbatch,
                               bool first_of_chunk) {
  const BufferRef whole = gradient_(chunk);
  const Buffer& buffer = role_.builder.buffer(gradient.buffer);
  std::vector<BufferRef> reads{gradient};
  if (!first_microbatch || !first_of_chunk) {
    reads.push_back(whole);  // the other parameters' gradients stay
  }
  role_.MemoryKernel(first_microbatch ? "gradient to chunk" : "add gradient to chunk", role_.compute, Work::compute,
                     reads, {whole}, buffer.elements, buffer.bytes() * (first_microbatch ? 2 : 3));
}

void GeminiChunks::Reduce(std::int64_t chunk) {
  const StreamId stream = reduce_stream_;
  const BufferRef whole = gradient_(chunk), result = FinalGradient(chunk);
  if (!layout_.keep_gathered) {
    role_.Alloc(result);
  }
  if (stream != role_.compute) {
    role_.builder.Order(stream, role_.compute, "gradients of chunk copied");
  }
  if (layout_.keep_gathered) {
    if (ranks_ > 1) {
      Communicate("reduce gradient chunk", CollectiveKind::all_reduce, Reduction::sum, stream, whole, whole);
    }
  } else {
    if (ranks_ > 1) {
      Communicate("scatter gradient chunk", CollectiveKind::reduce_scatter, Reduction::sum, stream, whole, result);
    } else {
      role_.CopyKernel("copy gradient chunk", stream, whole, result);
    }
    FreeAfter(whole, stream);
    GiveUp(chunk, stream);
  }
  role_.builder.Emit(Scale{role_.builder.Named("gradient over N"), Rational(1, ranks_), stream, result});
}

void GeminiChunks::WaitForReductions() {
  if (reduce_stream_ != role_.compute) {
    role_.builder.Emit(HostSync{reduce_stream_});
  }
}

/// Nothing where this rank's shard is padding alone.
void GeminiChunks::UpdateOne(std::int64_t chunk) {
  if (!moments_.Has(chunk)) {
    return;
  }
  const Precision& precision = axes_.precision;
  const BufferRef parameters = layout_.keep_gathered ? whole_(chunk) : shard_(chunk);
  const BufferRef updated = precision.master ? masters_(chunk) : parameters, moments = moments_(chunk);
  const std::int64_t elements = role_.builder.buffer(moments.buffer).elements / kMoments;
  if (role_.step == StepKind::first) {
    role_.Alloc(moments);
    role_.ZeroKernel("zero moments", role_.compute, Work::optimizer, moments);
  }
  const Bytes moved = (SizeOf(precision.gradients) + SizeOf(precision.master.value_or(precision.params)) * 2 +
                       SizeOf(precision.optimizer) * 2 * kMoments) *
                      elements;
  role_.builder.Emit(Compute{role_.builder.Named("optimizer update"),
                             OptimizerUpdate{elements, moved.count(), kFlopsPerElement},
                             role_.compute,
                             Work::optimizer,
                             Rational(1),
                             {FinalGradient(chunk), updated, moments},
                             {updated, moments}});
}

void GeminiChunks::Update() {
  const auto chunks = static_cast<std::int64_t>(layout_.elements.size());
  role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    UpdateOne(chunk);
  }
  for (std::int64_t chunk = 0; axes_.precision.master && chunk < chunks; ++chunk) {
    const BufferRef parameters = layout_.keep_gathered ? whole_(chunk) : shard_(chunk);
    const Buffer& buffer = role_.builder.buffer(parameters.buffer);
    role_.MemoryKernel("parameters from masters", role_.compute, Work::optimizer, {masters_(chunk)}, {parameters},
                       buffer.elements, buffer.bytes() + role_.builder.buffer(masters_(chunk).buffer).bytes());
  }
  role_.builder.Emit(End{Phase::optimizer});
}

}  // namespace tidemark
