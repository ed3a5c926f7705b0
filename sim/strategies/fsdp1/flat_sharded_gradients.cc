// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp1/flat_sharded_gradients.h"

namespace tidemark {
namespace {

/// The power of two by which FSDP divides before it sums over `ranks`; the rest of `ranks` it divides by afterwards
/// (DefaultState._get_gradient_predivide_factor).
std::int64_t PredivideFactor(std::int64_t ranks) {
  std::int64_t factor = 1;
  while (ranks % factor == 0 && ranks > factor * factor) {
    factor *= 2;
  }
  return factor;
}

}  // namespace

FlatGradients::FlatGradients(FlatLayout& layout)
    : layout_(layout), last_stream_(layout.replicas > 1 ? layout.replica_stream : layout.scatter_stream) {
  const std::int64_t ranks = layout.shards * layout.replicas;
  before_ = Rational(1, PredivideFactor(ranks));
  after_ = Rational(PredivideFactor(ranks), ranks);
}

/// The weights are views of the flat parameter, so autograd concatenates their gradients when the last is there.
/// Gradients that another stream reads are recorded on it.
void FlatGradients::Flatten(const Microbatch& microbatch, std::int64_t unit) {
  Role& role = layout_.role;
  const bool adds = microbatch.place.pending || AddsToFinal(microbatch);
  const BufferRef made = At(adds ? layout_.fresh_gradient : layout_.flat_gradient, unit);
  std::vector<BufferRef> parts;
  layout_.EachParameter(unit, [&](const ParameterAt& at) { parts.push_back(layout_.gradients(role, at)); });
  const StreamId stream = layout_.flat_stream();
  const bool crosses = stream != role.compute;
  role.Alloc(made);
  if (crosses) {
    role.builder.Order(stream, role.compute, "gradients made");
  }
  const std::int64_t elements = layout_.SizeOfUnit(unit).elements;
  role.MemoryKernel("concatenate gradients", stream, Work::compute, parts, {made}, elements,
                    SizeOf(layout_.precision.gradients) * 2 * elements);
  for (const BufferRef& part : parts) {
    role.builder.Emit(Free{part, crosses});
  }
  if (adds) {
    role.AddKernel("accumulate flat gradient", stream, made,
                   AddsToFinal(microbatch) ? Final(unit) : At(layout_.flat_gradient, unit));
    role.Free(made);
  }
}

void FlatGradients::Reduce(const Microbatch& microbatch, std::int64_t unit) {
  Role& role = layout_.role;
  if (AddsToFinal(microbatch)) {
    return;
  }
  role.builder.Order(layout_.scatter_stream, layout_.flat_stream(), "gradients ready");
  if (layout_.whole()) {
    return ReduceWhole(unit);
  }
  const bool first = !microbatch.place.reduced;
  const bool in_place = first && !layout_.casts_shards();
  const BufferRef input = PrepareScatter(unit);
  const BufferRef output = At(in_place ? layout_.sharded_gradient : layout_.scattered, unit);
  role.Alloc(output);
  Scatter(unit, input, output);
  if (layout_.replicas > 1) {
    ReduceOverReplicas(output);
  }
  Divide("postdivide gradients", after_, last_stream_, output);
  if (!in_place) {
    TakeShard(first, unit, output);
  }
  const BufferRef flat = At(layout_.flat_gradient, unit);
  if (layout_.casts_gradients()) {
    role.Free(At(layout_.widened, unit));
  }
  if (layout_.pads(unit)) {
    role.Free(At(layout_.padded, unit));
  }
  role.builder.Emit(Free{flat, true});
}

/// The reduction over one rank moves nothing; what is left of it are the casts.
void FlatGradients::ReduceWhole(std::int64_t unit) {
  if (FlatIsFinal()) {
    return;
  }
  Role& role = layout_.role;
  const BufferRef flat = At(layout_.flat_gradient, unit), end = At(layout_.sharded_gradient, unit);
  const bool twice = layout_.casts_gradients() && layout_.casts_shards();
  const BufferRef reduced = twice ? At(layout_.widened, unit) : flat;
  if (twice) {
    role.Alloc(reduced);
    role.CopyKernel("cast gradient", layout_.scatter_stream, flat, reduced);
  }
  role.Alloc(end);
  role.CopyKernel("cast gradient", layout_.scatter_stream, reduced, end);
  if (twice) {
    role.Free(reduced);
  }
  role.builder.Emit(Free{flat, true});
}

/// Casts, and copies again where the unit does not divide by the ranks.
BufferRef FlatGradients::PrepareScatter(std::int64_t unit) {
  Role& role = layout_.role;
  BufferRef input = At(layout_.flat_gradient, unit);
  if (layout_.casts_gradients()) {
    const BufferRef cast = At(layout_.widened, unit);
    role.Alloc(cast);
    role.CopyKernel("cast gradient", layout_.scatter_stream, input, cast);
    input = cast;
  }
  if (layout_.pads(unit)) {
    const BufferRef padded = At(layout_.padded, unit);
    role.Alloc(padded);
    role.CopyKernel("pad gradient", layout_.scatter_stream, input, padded);
    input = padded;
  }
  return input;
}

void FlatGradients::Scatter(std::int64_t unit, const BufferRef& input, const BufferRef& output) {
  ProgramBuilder& builder = layout_.role.builder;
  Divide("predivide gradients", before_, layout_.scatter_stream, input);
  builder.Emit(Collective{builder.Named("scatter gradients"),
                          CollectiveKind::reduce_scatter,
                          Reduction::sum,
                          Rational(1),
                          layout_.group,
                          layout_.precision.reduce,
                          layout_.SizeOfUnit(unit).padded,
                          layout_.scatter_stream,
                          {input},
                          {output}});
}

void FlatGradients::ReduceOverReplicas(const BufferRef& shard) {
  ProgramBuilder& builder = layout_.role.builder;
  builder.Order(layout_.replica_stream, layout_.scatter_stream, "gradients scattered");
  builder.Emit(Collective{builder.Named("reduce gradients over replicas"),
                          CollectiveKind::all_reduce,
                          Reduction::sum,
                          Rational(1),
                          layout_.replica_group,
                          layout_.precision.reduce,
                          builder.buffer(shard.buffer).elements,
                          layout_.replica_stream,
                          {shard},
                          {shard}});
}

/// Casts to the dtype of the shards and adds to what earlier microbatches left.
void FlatGradients::TakeShard(bool first, std::int64_t unit, const BufferRef& scattered) {
  Role& role = layout_.role;
  const BufferRef shard = At(layout_.sharded_gradient, unit);
  BufferRef taken = scattered;
  if (layout_.casts_shards()) {
    taken = first ? shard : At(layout_.cast_gradient, unit);
    role.Alloc(taken);
    role.CopyKernel("cast sharded gradient", last_stream_, scattered, taken);
    role.builder.Emit(Free{scattered, layout_.replicas > 1});
  }
  if (!first) {
    role.AddKernel("accumulate sharded gradient", last_stream_, taken, shard);
    role.builder.Emit(Free{taken, layout_.replicas > 1});
  }
}

void FlatGradients::Divide(const char* name, Rational factor, StreamId stream, const BufferRef& ref) {
  if (factor != Rational(1)) {
    layout_.role.builder.Emit(Scale{layout_.role.builder.Named(name), factor, stream, ref});
  }
}

void FlatGradients::Join() {
  layout_.role.builder.Order(layout_.role.compute, layout_.scatter_stream, "gradients scattered");
  if (layout_.replicas > 1) {
    layout_.role.builder.Order(layout_.role.compute, layout_.replica_stream, "gradients reduced");
  }
}

BufferRef FlatGradients::Final(std::int64_t unit) const {
  return At(FlatIsFinal() ? layout_.flat_gradient : layout_.sharded_gradient, unit);
}

/// A shard that was used on the replicas' stream was recorded there.
void FlatGradients::FreeFinal(std::int64_t unit) { layout_.role.builder.Emit(Free{Final(unit), layout_.replicas > 1}); }

void FlatGradients::Discard(const Microbatch& last, std::int64_t unit) {
  const bool reduced = last.place.reduced || last.place.synchronises;
  if (reduced) {
    FreeFinal(unit);
  }
  if (!last.place.synchronises && !(layout_.whole() && reduced)) {
    layout_.role.Free(At(layout_.flat_gradient, unit));
  }
}

}  // namespace tidemark
