// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp2/unit_gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "sim/strategies/host_optimizer.h"

namespace tidemark {

UnitGather::UnitGather(Role& role, const Units& units)
    : role_(role),
      units_(units),
      settings_(role.job.axes.shard),
      precision_(role.job.axes.precision),
      loss_calls_head_(settings_.reshard_after_backward && role.stage.BlockAt(role.stage.blocks - 1).chunks_end > 0),
      offloads_(role.job.axes.optimizer_step.offload),
      copy_in_stream_(role.builder.AddStream("all_gather_copy_in", StreamKind::collective)),
      gather_stream_(role.builder.AddStream("all_gather", StreamKind::collective)) {
  for (std::size_t mesh = 0; mesh < units.meshes.size(); ++mesh) {
    Declare(mesh);
  }
  unsharded_.Declare(
      role, "unsharded", Category::parameter, precision_.params,
      [&](const Parameter& parameter) { return units.PaddedOf(parameter); }, false, false);
}

void UnitGather::Declare(std::size_t mesh) {
  const ShardMesh& on = units_.meshes[mesh];
  OnMesh& buffers = buffers_.emplace_back();
  std::vector<std::int64_t> whole, own;
  for (const UnitSize& size : on.sizes) {
    whole.push_back(size.padded);
    own.push_back(size.padded / on.shards);
  }
  Holding own_rows = units_.Rows(on);
  own_rows.frozen = own_rows.masters = true;
  const auto of_mesh = [&, mesh](std::int64_t elements, const Parameter& parameter) {
    return units_.MeshOf(parameter) == mesh ? elements : 0;
  };
  const auto own_part = [&](const Parameter& parameter) { return of_mesh(units_.ShardOf(parameter), parameter); };
  buffers.shards.Declare(role_, "shard of", Category::parameter, StoredType(), own_part, true, true, own_rows,
                         StateStream(role_));
  const StreamId copies = on.shards == 1 ? role_.compute : copy_in_stream_;
  if (offloads_) {
    buffers.brought.Declare(role_, "brought shard of", Category::bucket, StoredType(), own_part, false, false, own_rows,
                            copies);
  }
  buffers.cast = role_.PerBlock("cast shard of" + on.of, Category::bucket, precision_.params, copy_in_stream_, own,
                                false, false, units_.Holds(mesh, Parts::own, true, false));
  buffers.gathered = role_.PerBlock("gathered" + on.of, Category::bucket, precision_.params, copy_in_stream_, whole,
                                    false, false, units_.Holds(mesh, Parts::all, true, false));
  if (Casts() && (on.shards == 1 || offloads_)) {
    own_rows.masters = false;
    buffers.cast_each.Declare(role_, "cast", Category::bucket, precision_.params, own_part, false, false,
                              on.shards == 1 ? std::nullopt : std::optional(own_rows), copies);
  }
}

bool UnitGather::Gathers() const {
  return std::any_of(units_.meshes.begin(), units_.meshes.end(), [](const ShardMesh& mesh) { return mesh.shards > 1; });
}

void UnitGather::Reshard(std::int64_t unit) {
  for (const ParameterGroup& group : units_.GroupsOf(unit)) {
    Reshard(group);
  }
}

void UnitGather::BeginForward() {
  forward_ = true;
  if (Gathers()) {
    role_.builder.Order(copy_in_stream_, role_.compute, "forward begins");
    role_.builder.Emit(Wait{role_.builder.Event("forward begins"), gather_stream_});
  }
}

void UnitGather::BeforeForward(const Microbatch& microbatch, std::int64_t position) {
  // Parameters that were not resharded after the last backward are still there.
  if (!units_.Opens(position) || !(microbatch.first() || settings_.reshard_after_backward)) {
    return;
  }
  for (const ParameterGroup& group : units_.GroupsOf(position)) {
    if (!ahead_ || *ahead_ < position) {
      Gather(group);
    }
    FreeGathered();
    Unpack(group);
  }
  PrefetchForward(position);
}

void UnitGather::PrefetchForward(std::int64_t position) {
  if (ahead_ == position) {
    ahead_.reset();
  }
  const std::int64_t end = std::min(position + settings_.prefetch_forward, role_.stage.blocks - 1);
  for (std::int64_t next = position + 1; next <= end; ++next) {
    if (units_.Opens(next) && Gathers() && (!ahead_ || *ahead_ < next)) {
      for (const ParameterGroup& group : units_.GroupsOf(next)) {
        Gather(group);
      }
      ahead_ = next;
    }
  }
}

void UnitGather::AfterForward(std::int64_t position) {
  if (units_.Closes(position) && ReshardsAfterForward(position)) {
    Reshard(units_.Of(position));
  }
}

void UnitGather::EndForward() {
  FreeGathered();
  forward_ = false;
}

void UnitGather::BeforeBackward(std::int64_t position) {
  if (!units_.Closes(position)) {
    return;
  }
  if (ReshardsAfterForward(position)) {
    Unshard(position);
  }
  PrefetchBackward(position);
}

void UnitGather::Unshard(std::int64_t position) {
  for (const ParameterGroup& group : units_.GroupsOf(units_.Of(position))) {
    if (!ahead_ || *ahead_ > position) {
      Gather(group);
    }
    Unpack(group);
    FreeGathered();
  }
}

void UnitGather::PrefetchBackward(std::int64_t position) {
  if (ahead_ == position) {
    ahead_.reset();
  }
  const std::int64_t end = std::max<std::int64_t>(position - settings_.prefetch_backward, 0);
  for (std::int64_t next = position - 1; next >= end; --next) {
    if (units_.Closes(next) && ReshardsAfterForward(next) && Gathers() && (!ahead_ || *ahead_ > next)) {
      for (const ParameterGroup& group : units_.GroupsInReverse(next)) {
        Gather(group);
      }
      ahead_ = next;
    }
  }
}

void UnitGather::ReshardAll() {
  role_.EachBlock([&](std::int64_t position) {
    if (units_.Opens(position)) {
      Reshard(position);
    }
  });
}

bool UnitGather::ReshardsAfterForward(std::int64_t position) const {
  const bool last_unit = units_.Of(position) == units_.Of(role_.stage.blocks - 1);
  if (last_unit && loss_calls_head_) {
    return true;
  }
  const bool keeps_layer = role_.stage.runs[role_.stage.RunOf(position)].stays_gathered;
  return settings_.reshard_after_forward && (!last_unit || settings_.reshard_last_unit) && !keeps_layer;
}

/// Several gathers may be under way: each has an event of its own until its unit has been copied out.
EventId UnitGather::Gathered(const ParameterGroup& group) {
  const std::int64_t events = Reach();
  const std::string name = "gathered" + units_.meshes[group.mesh].of;
  return role_.builder.Event(events == 1 ? name : fmt::format("{} {}", name, group.unit % events));
}

/// What of a shard is copied from: the shard, or what is made of it.
BufferRef UnitGather::InputOf(const ParameterAt& at, StreamId stream) {
  const OnMesh& buffers = buffers_[units_.GroupOf(role_, at).mesh];
  BufferRef input = Shard(at);
  if (offloads_) {
    const BufferRef brought = buffers.brought(role_, at);
    role_.Alloc(brought);
    CopyOverLink(role_, "shard to device", stream, {input}, {brought}, units_.ShardOf(ParameterOf(role_, at)),
                 StoredType());
    input = brought;
  }
  if (Casts()) {
    const BufferRef cast = buffers.cast_each(role_, at);
    role_.Alloc(cast);
    role_.CopyKernel("cast shard", stream, input, cast);
    if (offloads_) {
      role_.Free(input);
    }
    input = cast;
  }
  return input;
}

/// Those of a group that is gathered. Shards that are here are cast together.
std::vector<BufferRef> UnitGather::InputsOf(const ParameterGroup& group) {
  std::vector<BufferRef> inputs;
  if (offloads_) {
    units_.ForEachOf(role_, group, [&](const ParameterAt& at) { inputs.push_back(InputOf(at, copy_in_stream_)); });
    return inputs;
  }
  units_.ForEachOf(role_, group, [&](const ParameterAt& at) { inputs.push_back(Shard(at)); });
  if (Casts()) {
    const BufferRef cast = role_.Ref(buffers_[group.mesh].cast, group.unit);
    const std::int64_t elements = units_.SizeOf(group).padded / units_.ShardsOf(group);
    role_.Alloc(cast);
    role_.MemoryKernel("cast shard", copy_in_stream_, Work::compute, std::exchange(inputs, {cast}), {cast}, elements,
                       (SizeOf(StoredType()) + SizeOf(precision_.params)) * elements);
  }
  return inputs;
}

/// Casts a group's shards, copies them into their place in the gather buffer, and gathers in place.
void UnitGather::Gather(const ParameterGroup& group) {
  const ShardMesh& mesh = units_.meshes[group.mesh];
  if (mesh.shards == 1) {
    return;
  }
  const BufferRef gathered = role_.Ref(buffers_[group.mesh].gathered, group.unit);
  const std::int64_t padded = units_.SizeOf(group).padded, elements = padded / mesh.shards;
  const std::vector<BufferRef> inputs = InputsOf(group);
  role_.Alloc(gathered);
  role_.MemoryKernel("copy shard in", copy_in_stream_, Work::compute, inputs, {gathered}, elements,
                     SizeOf(precision_.params) * 2 * elements);
  if (MakesInputs()) {
    std::for_each(inputs.begin(), inputs.end(), [&](const BufferRef& input) { role_.Free(input); });
  }
  role_.builder.Order(gather_stream_, copy_in_stream_, "copied in");
  role_.builder.Emit(Collective{role_.builder.Named("gather parameters"),
                                CollectiveKind::all_gather,
                                Reduction::none,
                                Rational(1),
                                mesh.group,
                                precision_.params,
                                padded,
                                gather_stream_,
                                {gathered},
                                {gathered}});
  role_.builder.Emit(Record{Gathered(group), gather_stream_});
}

/// Copies gathered parameters to where kernels read them.
void UnitGather::Unpack(const ParameterGroup& group) {
  if (units_.ShardsOf(group) == 1) {
    CopyAlone(group);
    return;
  }
  std::vector<BufferRef> unsharded;
  units_.ForEachOf(role_, group, [&](const ParameterAt& at) {
    unsharded.push_back(Unsharded(at));
    role_.Alloc(unsharded.back());
  });
  role_.builder.Emit(Wait{Gathered(group), role_.compute});
  const std::int64_t elements = units_.SizeOf(group).padded;
  role_.MemoryKernel("unpack parameters", role_.compute, Work::compute,
                     {role_.Ref(buffers_[group.mesh].gathered, group.unit)}, std::move(unsharded), elements,
                     SizeOf(precision_.params) * 2 * elements);
  role_.builder.Emit(Record{role_.builder.Event("unpacked"), role_.compute});
  gathered_ = group;
}

void UnitGather::CopyAlone(const ParameterGroup& group) {
  std::optional<BufferRef> before;
  units_.ForEachOf(role_, group, [&](const ParameterAt& at) {
    const BufferRef input = InputOf(at, role_.compute);
    if (MakesInputs()) {
      if (before) {
        role_.Free(*before);
      }
      before = input;
    }
    role_.Alloc(Unsharded(at));
    role_.CopyKernel("copy parameters", role_.compute, input, Unsharded(at));
  });
  if (before) {
    role_.Free(*before);
  }
  if (Gathers()) {
    role_.builder.Emit(Record{role_.builder.Event("unpacked"), role_.compute});
    AwaitUnpacked();
  }
}

void UnitGather::AwaitUnpacked() {
  role_.builder.Emit(Wait{role_.builder.Event("unpacked"), copy_in_stream_});
  role_.builder.Emit(Wait{role_.builder.Event("unpacked"), gather_stream_});
}

void UnitGather::FreeGathered() {
  if (gathered_) {
    AwaitUnpacked();
    role_.Free(role_.Ref(buffers_[gathered_->mesh].gathered, gathered_->unit));
  }
  gathered_.reset();
}

std::int64_t UnitGather::BlocksAlike(std::int64_t position) const {
  const std::size_t run = role_.stage.RunOf(position);
  const std::int64_t first = role_.stage.first[run];
  const std::int64_t last = first + role_.stage.runs[run].count - 1;
  const std::int64_t blocks =
      forward_ ? last - position - settings_.prefetch_forward : position - first - settings_.prefetch_backward;
  return std::max<std::int64_t>(blocks + 1, 0);
}

/// The number of gathers that may be under way.
std::int64_t UnitGather::Reach() const {
  return std::max<std::int64_t>({1, settings_.prefetch_forward, settings_.prefetch_backward});
}

void UnitGather::AppendKey(std::int64_t position, std::vector<std::int64_t>& key) const {
  const auto unit = gathered_ ? std::optional(gathered_->unit) : std::nullopt;
  key.insert(key.end(), {role_.KeyOf(unit, position), gathered_ ? static_cast<std::int64_t>(gathered_->mesh) : 0,
                         role_.KeyOf(ahead_, position), position % Reach(), ReshardsAfterForward(position) ? 1 : 0});
}

void UnitGather::Shift(std::int64_t blocks) {
  const std::size_t run = role_.stage.RunOf(role_.current());
  if (gathered_ && role_.stage.RunOf(gathered_->unit) == run) {
    gathered_->unit += blocks;
  }
  if (ahead_ && role_.stage.RunOf(*ahead_) == run) {
    *ahead_ += blocks;
  }
}

}  // namespace tidemark
