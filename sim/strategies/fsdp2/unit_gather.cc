// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp2/unit_gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tidemark {

UnitGather::UnitGather(Role& role, const Units& units, GroupId group)
    : role_(role),
      units_(units),
      settings_(role.job.axes.shard),
      precision_(role.job.axes.precision),
      loss_calls_head_(settings_.reshard_after_backward && role.stage.BlockAt(role.stage.blocks - 1).chunks_end > 0),
      group_(group),
      copy_in_stream_(role.builder.AddStream("all_gather_copy_in", StreamKind::collective)),
      gather_stream_(role.builder.AddStream("all_gather", StreamKind::collective)) {
  const auto padded = &UnitSize::padded;
  Holding own_rows = units.Rows();
  own_rows.frozen = own_rows.masters = true;
  shards_.Declare(
      role, "shard of", Category::parameter, StoredType(),
      [&](const Parameter& parameter) { return units.ShardOf(parameter); }, true, true, own_rows);
  cast_ = role.PerBlock("cast shard of", Category::bucket, precision_.params, copy_in_stream_,
                        units.Sizes(padded, units.shards), false, false, units.Holds(Parts::own, true, false));
  gathered_buffer_ = role.PerBlock("gathered", Category::bucket, precision_.params, copy_in_stream_,
                                   units.Sizes(padded, 1), false, false, units.Holds(Parts::all, true, false));
  unsharded_.Declare(
      role, "unsharded", Category::parameter, precision_.params,
      [&](const Parameter& parameter) { return units.PaddedOf(parameter); }, false, false);
  if (units.shards == 1 && Casts()) {
    cast_alone_.Declare(role, "cast", Category::bucket, precision_.params, ParameterTable::Of::all, false);
  }
}

void UnitGather::BeginForward() {
  forward_ = true;
  if (units_.shards > 1) {
    role_.builder.Order(copy_in_stream_, role_.compute, "forward begins");
    role_.builder.Emit(Wait{role_.builder.Event("forward begins"), gather_stream_});
  }
}

void UnitGather::BeforeForward(const Microbatch& microbatch, std::int64_t position) {
  // Parameters that were not resharded after the last backward are still there.
  if (!units_.Opens(position) || !(microbatch.first() || settings_.reshard_after_backward)) {
    return;
  }
  if (!ahead_ || *ahead_ < position) {
    Gather(position);
  }
  FreeGathered();
  Unpack(position);
  gathered_ = position;
  PrefetchForward(position);
}

void UnitGather::PrefetchForward(std::int64_t position) {
  if (ahead_ == position) {
    ahead_.reset();
  }
  const std::int64_t end = std::min(position + settings_.prefetch_forward, role_.stage.blocks - 1);
  for (std::int64_t next = position + 1; next <= end; ++next) {
    if (units_.Opens(next) && units_.shards > 1 && (!ahead_ || *ahead_ < next)) {
      Gather(next);
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
  const std::int64_t unit = units_.Of(position);
  if (!ahead_ || *ahead_ > position) {
    Gather(unit);
  }
  Unpack(unit);
  gathered_ = unit;
  FreeGathered();
}

void UnitGather::PrefetchBackward(std::int64_t position) {
  if (ahead_ == position) {
    ahead_.reset();
  }
  const std::int64_t end = std::max<std::int64_t>(position - settings_.prefetch_backward, 0);
  for (std::int64_t next = position - 1; next >= end; --next) {
    if (units_.Closes(next) && ReshardsAfterForward(next) && units_.shards > 1 && (!ahead_ || *ahead_ > next)) {
      Gather(next);
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
EventId UnitGather::Gathered(std::int64_t position) {
  const std::int64_t events = Reach();
  return role_.builder.Event(events == 1 ? "gathered" : fmt::format("gathered {}", position % events));
}

/// Casts a unit's shards, copies them into their place in the gather buffer, and gathers in place.
void UnitGather::Gather(std::int64_t unit) {
  if (units_.shards == 1) {
    return;
  }
  const BufferRef gathered = role_.Ref(gathered_buffer_, unit);
  const UnitSize& size = units_.SizeAt(unit);
  const std::int64_t elements = size.padded / units_.shards;
  std::vector<BufferRef> inputs;
  units_.ForEachOf(role_, unit, [&](const ParameterAt& at) { inputs.push_back(Shard(at)); });
  if (Casts()) {
    const BufferRef cast = role_.Ref(cast_, unit);
    role_.Alloc(cast);
    role_.MemoryKernel("cast shard", copy_in_stream_, Work::compute, std::exchange(inputs, {cast}), {cast}, elements,
                       (SizeOf(StoredType()) + SizeOf(precision_.params)) * elements);
  }
  role_.Alloc(gathered);
  role_.MemoryKernel("copy shard in", copy_in_stream_, Work::compute, std::move(inputs), {gathered}, elements,
                     SizeOf(precision_.params) * 2 * elements);
  if (Casts()) {
    role_.Free(role_.Ref(cast_, unit));
  }
  role_.builder.Order(gather_stream_, copy_in_stream_, "copied in");
  role_.builder.Emit(Collective{role_.builder.Named("gather parameters"),
                                CollectiveKind::all_gather,
                                Reduction::none,
                                Rational(1),
                                group_,
                                precision_.params,
                                size.padded,
                                gather_stream_,
                                {gathered},
                                {gathered}});
  role_.builder.Emit(Record{Gathered(unit), gather_stream_});
}

/// Copies gathered parameters to where kernels read them.
void UnitGather::Unpack(std::int64_t unit) {
  if (units_.shards == 1) {
    CopyAlone(unit);
    return;
  }
  std::vector<BufferRef> unsharded;
  units_.ForEachOf(role_, unit, [&](const ParameterAt& at) {
    unsharded.push_back(Unsharded(at));
    role_.Alloc(unsharded.back());
  });
  role_.builder.Emit(Wait{Gathered(unit), role_.compute});
  const std::int64_t elements = units_.SizeAt(unit).padded;
  role_.MemoryKernel("unpack parameters", role_.compute, Work::compute, {role_.Ref(gathered_buffer_, unit)},
                     std::move(unsharded), elements, SizeOf(precision_.params) * 2 * elements);
  role_.builder.Emit(Record{role_.builder.Event("unpacked"), role_.compute});
}

void UnitGather::CopyAlone(std::int64_t unit) {
  std::optional<BufferRef> before;
  units_.ForEachOf(role_, unit, [&](const ParameterAt& at) {
    BufferRef input = Shard(at);
    if (Casts()) {
      input = cast_alone_(role_, at);
      role_.Alloc(input);
      role_.CopyKernel("cast shard", role_.compute, Shard(at), input);
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
}

void UnitGather::FreeGathered() {
  if (gathered_ && units_.shards > 1) {
    role_.builder.Emit(Wait{role_.builder.Event("unpacked"), copy_in_stream_});
    role_.builder.Emit(Wait{role_.builder.Event("unpacked"), gather_stream_});
    role_.Free(role_.Ref(gathered_buffer_, *gathered_));
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
  key.insert(key.end(), {role_.KeyOf(gathered_, position), role_.KeyOf(ahead_, position), position % Reach(),
                         ReshardsAfterForward(position) ? 1 : 0});
}

void UnitGather::Shift(std::int64_t blocks) {
  const std::size_t run = role_.stage.RunOf(role_.current());
  for (std::optional<std::int64_t>* remembered : {&gathered_, &ahead_}) {
    if (*remembered && role_.stage.RunOf(**remembered) == run) {
      **remembered += blocks;
    }
  }
}

}  // namespace tidemark
