// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp2/gradient_scatter.h"

#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "sim/strategies/host_optimizer.h"

namespace tidemark {

GradientScatter::GradientScatter(Role& role, const Units& units, DType stored, AllReduceWhen all_reduce_when)
    : role_(role),
      units_(units),
      precision_(role.job.axes.precision),
      stored_(stored),
      replicas_(role.job.axes.shard.replicas),
      all_reduce_when_(all_reduce_when),
      sums_tokens_(role.job.axes.loss_scale == LossScale::global_tokens),
      offloads_(role.job.axes.optimizer_step.offload),
      kept_(!role.job.axes.buffers.set_to_none && role.step != StepKind::first),
      scatter_stream_(role.builder.AddStream("reduce_scatter", StreamKind::collective)),
      behind_(scatter_stream_) {
  if (replicas_ > 1) {
    replica_group_ = role.AddGroup("replicas", replicas_, role.job.layout.tp * units.meshes.front().shards);
    all_reduce_stream_ = role.builder.AddStream("all_reduce", StreamKind::collective);
    behind_ = all_reduce_stream_;
  }
  for (std::size_t mesh = 0; mesh < units.meshes.size(); ++mesh) {
    Declare(mesh);
  }
}

void GradientScatter::Declare(std::size_t mesh) {
  const ShardMesh& on = units_.meshes[mesh];
  std::vector<std::int64_t> whole, shards;
  for (const UnitSize& size : on.sizes) {
    whole.push_back(size.trainable_padded);
    shards.push_back(size.trainable_padded / on.shards);
  }
  const DType reduce = precision_.reduce;
  const auto declare = [&](const char* name, Category category, DType dtype, StreamId stream, Parts parts,
                           bool resident = false, bool kept = false) {
    return role_.PerBlock(name + on.of, category, dtype, stream, parts == Parts::all ? whole : shards, resident, kept,
                          units_.Holds(mesh, parts, false, category == Category::gradient));
  };
  OnMesh& buffers = buffers_.emplace_back();
  buffers.packed = declare("packed gradients of", Category::bucket, precision_.gradients, role_.compute, Parts::all);
  buffers.input = declare("scatter input of", Category::bucket, reduce, role_.compute, Parts::all);
  buffers.output = declare("scatter output of", Category::bucket, reduce, scatter_stream_, Parts::own);
  if (replicas_ > 1) {
    buffers.partial = declare("partly reduced gradient of", Category::accumulator, reduce, scatter_stream_, Parts::own);
  }
  buffers.cast = declare("cast scatter output of", Category::bucket, stored_, behind_, Parts::own);
  const bool keeps = !role_.job.axes.buffers.set_to_none;
  if (!offloads_) {
    buffers.sharded = declare("sharded gradient of", Category::gradient, stored_,
                              reduce == stored_ ? scatter_stream_ : behind_, Parts::own, kept_, keeps);
    return;
  }
  const auto own = [&, mesh](const Parameter& parameter) {
    return parameter.trainable && units_.MeshOf(parameter) == mesh ? units_.ShardOf(parameter) : 0;
  };
  Holding rows = units_.Rows(on);
  rows.masters = true;
  buffers.on_host.Declare(role_, "sharded gradient of", Category::gradient, stored_, own, kept_, keeps, rows,
                          kHostStream);
  buffers.arriving.Declare(role_, "arriving gradient of", Category::bucket, stored_, own, false, false, units_.Rows(on),
                           kHostStream);
}

std::vector<BufferRef> GradientScatter::Sharded(const ParameterGroup& group) const {
  if (!offloads_) {
    return {Ref(&OnMesh::sharded, group)};
  }
  std::vector<BufferRef> refs;
  units_.ForEachTrainedOf(role_, group, [&](const ParameterAt& at) { refs.push_back(ShardedOf(at)); });
  return refs;
}

BufferRef GradientScatter::ShardedOf(const ParameterAt& at) const {
  const ParameterGroup group = units_.GroupOf(role_, at);
  return offloads_ ? buffers_[group.mesh].on_host(role_, at) : Ref(&OnMesh::sharded, group);
}

bool GradientScatter::AllReduces(const Microbatch& microbatch) const {
  return replicas_ > 1 && (all_reduce_when_ == AllReduceWhen::every_scatter || microbatch.place.last);
}

/// Whether sums that wait for their all-reduce exist before `microbatch`.
bool GradientScatter::HasPartial(const Microbatch& microbatch) const {
  return replicas_ > 1 && all_reduce_when_ == AllReduceWhen::last_microbatch && microbatch.place.reduced;
}

/// Whether a sharded gradient exists before it.
bool GradientScatter::HasSharded(const Microbatch& microbatch) const {
  return kept_ || (microbatch.place.reduced && !HasPartial(microbatch));
}

bool GradientScatter::OutputIsSharded(const Microbatch& microbatch) const {
  return precision_.reduce == stored_ && !HasSharded(microbatch) && !offloads_;
}

BufferRef GradientScatter::OutputOf(const Microbatch& microbatch, const ParameterGroup& group) const {
  const bool stays_partial = replicas_ > 1 && !AllReduces(microbatch);
  if (stays_partial && !HasPartial(microbatch)) {
    return Ref(&OnMesh::partial, group);
  }
  return !stays_partial && OutputIsSharded(microbatch) ? Ref(&OnMesh::sharded, group) : Ref(&OnMesh::output, group);
}

/// fully_shard's _get_gradient_divide_factors: averages, unless the factor is given or fp16 might overflow.
Reduction GradientScatter::Operation() const {
  return sums_tokens_ || precision_.reduce == DType::fp16 ? Reduction::sum : Reduction::avg;
}

/// Of an fp16 reduction: the smallest power of two that is at least the root of N, as long as it divides N evenly.
std::int64_t GradientScatter::PreDivisor() const {
  std::int64_t divisor = 1;
  if (precision_.reduce == DType::fp16 && !sums_tokens_) {
    while (Ranks() % divisor == 0 && Ranks() > divisor * divisor) {
      divisor *= 2;
    }
  }
  return divisor;
}

void GradientScatter::PackAhead(const ParameterGroup& group, const BufferRef& gradient) {
  FreeScattered();
  const BufferRef input = Ref(&OnMesh::input, group);
  const Buffer& packed = role_.builder.buffer(gradient.buffer);
  packed_ahead_ = packed.elements;
  role_.Alloc(input);
  role_.MemoryKernel("pack gradients", role_.compute, Work::compute, {gradient}, {input}, packed_ahead_,
                     packed.bytes() * 2);
  role_.Free(gradient);
}

void GradientScatter::Scatter(const Microbatch& microbatch, const ParameterGroup& group,
                              const std::vector<BufferRef>& gradients) {
  if (gradients.empty() && packed_ahead_ == 0) {
    return;
  }
  if (!scattering_.empty() && scattering_.front().unit != group.unit) {
    FreeScattered();
  }
  if (!gradients.empty()) {
    Pack(gradients, group);
  }
  packed_ahead_ = 0;
  for (const BufferRef& gradient : gradients) {
    role_.Free(gradient);
  }
  role_.builder.Order(scatter_stream_, role_.compute, "gradients packed");
  const BufferRef output = OutputOf(microbatch, group);
  role_.Alloc(output);
  Reduce(group, output);
  role_.builder.Emit(Record{role_.builder.Event("gradients scattered"), scatter_stream_});
  scattering_.push_back(group);
  if (replicas_ == 1 || AllReduces(microbatch)) {
    const BufferRef partial = replicas_ > 1 ? Ref(&OnMesh::partial, group) : BufferRef{};
    if (HasPartial(microbatch)) {
      role_.AddKernel("add partly reduced gradient", scatter_stream_, partial, output);
    }
    AllReduce(group, output);
    TakeShard(microbatch, group, output);
    if (hook_) {
      hook_(group, behind_);
    }
    if (HasPartial(microbatch)) {
      role_.Free(partial);
    }
    role_.builder.Emit(Record{role_.builder.Event("gradients reduced"), behind_});
    return;
  }
  if (HasPartial(microbatch)) {
    role_.AddKernel("accumulate partly reduced gradient", scatter_stream_, output, Ref(&OnMesh::partial, group));
    role_.Free(output);
  }
  role_.builder.Emit(Record{role_.builder.Event("gradients reduced"), scatter_stream_});
}

/// Copies gradients into the scatter's input. Widening happens on the way; narrowing takes a packed copy of its own.
void GradientScatter::Pack(const std::vector<BufferRef>& gradients, const ParameterGroup& group) {
  const BufferRef input = Ref(&OnMesh::input, group);
  const std::int64_t elements = units_.SizeOf(group).trainable_padded - packed_ahead_;
  const DType from = role_.builder.buffer(gradients.front().buffer).dtype, to = precision_.reduce;
  Bytes moved{0};
  for (const BufferRef& gradient : gradients) {
    moved += role_.builder.buffer(gradient.buffer).bytes();
  }
  if (packed_ahead_ == 0) {
    role_.Alloc(input);
  }
  // Between fp16 and bf16 neither holds the other's values: promotion leads to fp32, so this, too, takes the detour.
  const bool narrows = from != to && SizeOf(to) <= SizeOf(from);
  const BufferRef packed = narrows ? Ref(&OnMesh::packed, group) : input;
  if (narrows) {
    role_.Alloc(packed);
  }
  std::vector<BufferRef> reads = gradients;
  if (packed_ahead_ > 0) {
    reads.push_back(packed);  // what is there stays
  }
  role_.MemoryKernel("pack gradients", role_.compute, Work::compute, std::move(reads), {packed}, elements,
                     moved + SizeOf(narrows ? from : to) * elements);
  if (narrows) {
    role_.CopyKernel("narrow gradients", role_.compute, packed, input);
    role_.Free(packed);
  }
}

void GradientScatter::Reduce(const ParameterGroup& group, const BufferRef& output) {
  const BufferRef input = Ref(&OnMesh::input, group);
  if (PreDivisor() > 1) {
    role_.builder.Emit(Scale{role_.builder.Named("divide before"), Rational(1, PreDivisor()), scatter_stream_, input});
  }
  const ShardMesh& mesh = units_.meshes[group.mesh];
  if (mesh.shards == 1) {
    role_.CopyKernel("copy gradients", scatter_stream_, input, output);
    return;
  }
  role_.builder.Emit(Collective{role_.builder.Named("scatter gradients"),
                                CollectiveKind::reduce_scatter,
                                Operation(),
                                Rational(1),
                                mesh.group,
                                precision_.reduce,
                                units_.SizeOf(group).trainable_padded,
                                scatter_stream_,
                                {input},
                                {output}});
}

void GradientScatter::AllReduce(const ParameterGroup& group, const BufferRef& output) {
  if (replicas_ > 1) {
    role_.builder.Order(all_reduce_stream_, scatter_stream_, "shard summed");
    role_.builder.Emit(Collective{role_.builder.Named("all-reduce shards"),
                                  CollectiveKind::all_reduce,
                                  Operation(),
                                  Rational(1),
                                  replica_group_,
                                  precision_.reduce,
                                  units_.SizeOf(group).trainable_padded / units_.ShardsOf(group),
                                  all_reduce_stream_,
                                  {output},
                                  {output}});
  }
  if (precision_.reduce == DType::fp16 && !sums_tokens_ && Ranks() > PreDivisor()) {
    role_.builder.Emit(Scale{role_.builder.Named("divide behind"), Rational(PreDivisor(), Ranks()), behind_, output});
  }
}

/// One parameter after another; what is bound to the loop's variable goes before the next is copied. What the copies
/// read is given back to the stream that they are on, so nobody waits for that.
void GradientScatter::SendToHost(const ParameterGroup& group, const BufferRef& output, bool adds) {
  const ParameterTable& arriving = buffers_[group.mesh].arriving;
  units_.ForEachTrainedOf(role_, group, [&](const ParameterAt& at) {
    const BufferRef sharded = ShardedOf(at), to = adds ? arriving(role_, at) : sharded;
    role_.Alloc(to);
    CopyOverLink(role_, "sharded gradient to host", behind_, {output}, {to}, units_.ShardOf(ParameterOf(role_, at)),
                 stored_);
    if (adds) {
      role_.builder.Emit(HostSync{behind_});
      role_.AddKernel("add sharded gradient", kHostStream, to, sharded);
      role_.Free(to);
    }
  });
}

/// The reduced output becomes the sharded gradient, or is added to it.
void GradientScatter::TakeShard(const Microbatch& microbatch, const ParameterGroup& group, const BufferRef& output) {
  if (OutputIsSharded(microbatch)) {
    return;
  }
  const bool adds = HasSharded(microbatch), casts = precision_.reduce != stored_;
  const bool passes_on = adds || offloads_;
  const BufferRef cast = Ref(passes_on ? &OnMesh::cast : &OnMesh::sharded, group);
  if (casts) {
    role_.Alloc(cast);
    role_.CopyKernel("cast sharded gradient", behind_, output, cast);
  }
  if (offloads_) {
    SendToHost(group, casts ? cast : output, adds);
  } else if (adds) {
    role_.AddKernel("add sharded gradient", behind_, casts ? cast : output, Ref(&OnMesh::sharded, group));
  }
  if (passes_on && casts) {
    role_.Free(cast);
  }
  if (replicas_ == 1) {
    role_.Free(output);
  }
}

void GradientScatter::EndBackward(const Microbatch& microbatch) {
  if (scattering_.empty()) {
    return;
  }
  const EventId reduced = role_.builder.Event("gradients reduced");
  role_.builder.Emit(Wait{reduced, role_.compute});
  if (offloads_ && (replicas_ == 1 || AllReduces(microbatch)) && !HasSharded(microbatch)) {
    role_.builder.Emit(HostSync{behind_});
  }
  if (AllReduces(microbatch) && !OutputIsSharded(microbatch)) {
    role_.builder.Emit(Wait{reduced, scatter_stream_});
    units_.EachTrainedGroup(role_, [&](const ParameterGroup& group) { role_.Free(Ref(&OnMesh::output, group)); });
  }
  FreeScattered();
}

void GradientScatter::FreeScattered() {
  if (!scattering_.empty()) {
    role_.builder.Emit(Wait{role_.builder.Event("gradients scattered"), role_.compute});
  }
  for (const ParameterGroup& group : std::exchange(scattering_, {})) {
    role_.Free(Ref(&OnMesh::input, group));
  }
}

void GradientScatter::Discard(const Microbatch& last) {
  const bool waits = replicas_ > 1 && all_reduce_when_ == AllReduceWhen::last_microbatch;
  if (last.place.reduced || last.place.synchronises) {
    role_.builder.Order(scatter_stream_, role_.compute, "discarded");
    role_.builder.Emit(Wait{role_.builder.Event("discarded"), behind_});
    if (waits) {
      units_.EachTrainedGroup(role_, [&](const ParameterGroup& group) { role_.Free(Ref(&OnMesh::partial, group)); });
    } else {
      FreeOrZero();
    }
  }
}

void GradientScatter::ZeroSharded() {
  if (role_.job.axes.buffers.set_to_none && !offloads_) {
    role_.builder.Order(scatter_stream_, role_.compute, "updated");
    if (behind_ != scatter_stream_) {
      role_.builder.Emit(Wait{role_.builder.Event("updated"), behind_});
    }
  }
  FreeOrZero();
}

void GradientScatter::FreeOrZero() {
  const bool frees = role_.job.axes.buffers.set_to_none;
  units_.EachTrainedGroup(role_, [&](const ParameterGroup& group) {
    for (const BufferRef& sharded : Sharded(group)) {
      if (frees) {
        role_.Free(sharded);
      } else {
        role_.ZeroKernel("zero gradient", StateStream(role_), Work::optimizer, sharded);
      }
    }
  });
  kept_ = !frees;
}

void GradientScatter::AppendKey(std::int64_t position, std::vector<std::int64_t>& key) const {
  const auto unit = scattering_.empty() ? std::nullopt : std::optional(scattering_.front().unit);
  key.insert(key.end(), {role_.KeyOf(unit, position), std::ssize(scattering_)});
}

void GradientScatter::Shift(std::int64_t blocks) {
  for (ParameterGroup& group : scattering_) {
    if (role_.stage.RunOf(group.unit) == role_.stage.RunOf(role_.current())) {
      group.unit += blocks;
    }
  }
}

}  // namespace tidemark
