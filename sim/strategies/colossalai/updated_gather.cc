// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/updated_gather.h"

#include <utility>

#include "sim/lower/fold_alike.h"
#include "sim/strategies/colossalai/zero_flush.h"
#include "sim/strategies/parameter_order.h"
#include "sim/strategies/updated_parameters.h"

namespace tidemark {

UpdatedGather::UpdatedGather(Role& role, StreamId stream, GroupId group, std::int64_t ranks, RefAt source, RefAt weight)
    : role_(role),
      stream_(stream),
      group_(group),
      ranks_(ranks),
      source_(std::move(source)),
      weight_(std::move(weight)) {
  Plan();
  DeclareBuffers();
}

/// The master is not what is gathered: another dtype.
bool UpdatedGather::Casts() const {
  const Precision& precision = role_.job.axes.precision;
  return precision.master && *precision.master != precision.params;
}

void UpdatedGather::Plan() {
  const std::int64_t limit = role_.job.axes.sync.bucket_elements;
  const auto part = [&](const Parameter& parameter) { return PartOf(parameter); };
  FlushMembers collected, pending;
  std::int64_t held = 0;
  std::optional<ParameterAt> direct;
  visits_.resize(static_cast<std::size_t>(role_.stage.blocks));
  for (const ParameterAt& at : DefinitionOrder(role_)) {
    const std::int64_t elements = part(ParameterOf(role_, at));
    Visit visit{at, elements > limit, {}, std::exchange(direct, std::nullopt)};
    if (visit.direct) {
      direct = at;
    } else {
      if (held + elements > limit) {
        visit.flush = std::exchange(pending, {});
        held = 0;
      }
      pending.push_back(at);
      collected.push_back(at);
      held += elements;
    }
    visits_[static_cast<std::size_t>(at.position)].push_back(std::move(visit));
  }
  left_ = std::move(pending);
  last_direct_ = direct;
  plan_.emplace(role_, collected, part, part, limit);
}

void UpdatedGather::DeclareBuffers() {
  const DType dtype = role_.job.axes.precision.params;
  const StreamId compute = role_.compute;
  parts_.Declare(
      role_, "updated part of", Category::bucket, dtype, [&](const Parameter& parameter) { return PartOf(parameter); },
      false, false, HoldsParts(ranks_, Parts::own));
  copies_.Declare(
      role_, "gathered copy of", Category::bucket, dtype,
      [&](const Parameter& parameter) { return PartOf(parameter) * ranks_; }, false, false,
      HoldsParts(ranks_, Parts::all));
  for (const FlushPlan::Shape& shape : plan_->shapes()) {
    const std::string number = std::to_string(flat_.size());
    const auto declare = [&](const char* what, Parts parts) {
      return role_.builder.AddBuffer({.name = what + number,
                                      .category = Category::bucket,
                                      .dtype = dtype,
                                      .elements = shape.elements * (parts == Parts::own ? 1 : ranks_),
                                      .extents = {role_.stage.runs[shape.run].count, 1},
                                      .stream = compute,
                                      .holds = {HoldsParts(ranks_, parts, shape.members)}});
    };
    flat_.push_back(declare("flat updated parts ", Parts::own));
    gathered_.push_back(declare("gathered parameters ", Parts::all));
  }
}

void UpdatedGather::Write() {
  EachBlockAlike(
      role_, [&](std::int64_t position) { return Key(position); },
      [&](std::int64_t position) { WriteBlock(position); });
  if (!left_.empty()) {
    GatherBucket(left_);
  }
  if (last_direct_ && Casts()) {
    role_.Free(Part(*last_direct_));
  }
}

std::vector<std::int64_t> UpdatedGather::Key(std::int64_t position) const {
  std::vector<std::int64_t> key;
  for (const Visit& visit : visits_[static_cast<std::size_t>(position)]) {
    key.push_back(visit.at.parameter);
    key.push_back(visit.freed ? 1 + visit.freed->parameter : 0);
    if (visit.freed) {
      key.push_back(role_.KeyOf(visit.freed->position, position));
    }
    if (!visit.flush.empty()) {
      plan_->AppendKey(plan_->PlaceOf(visit.flush), position, key);
    }
  }
  return key;
}

void UpdatedGather::WriteBlock(std::int64_t position) {
  for (const Visit& visit : visits_[static_cast<std::size_t>(position)]) {
    WriteVisit(visit);
  }
}

void UpdatedGather::WriteVisit(const Visit& visit) {
  if (Casts()) {
    const BufferRef part = parts_(role_, visit.at);
    const Precision& precision = role_.job.axes.precision;
    const std::int64_t elements = PartOf(ParameterOf(role_, visit.at));
    role_.Alloc(part);
    role_.MemoryKernel("cast updated part", role_.compute, Work::optimizer, {source_(visit.at)}, {part}, elements,
                       (SizeOf(*precision.master) + SizeOf(precision.params)) * elements);
    if (visit.freed) {
      role_.Free(Part(*visit.freed));
    }
  }
  if (visit.direct) {
    GatherDirectly(visit.at);
  } else if (!visit.flush.empty()) {
    GatherBucket(visit.flush);
  }
}

void UpdatedGather::GatherDirectly(const ParameterAt& at) {
  AllGather(Part(at), weight_(at), PartOf(ParameterOf(role_, at)) * ranks_);
}

void UpdatedGather::GatherBucket(const FlushMembers& members) {
  const FlushPlace place = plan_->PlaceOf(members);
  const BufferRef gathered = Flat(gathered_, place);
  const DType dtype = role_.job.axes.precision.params;
  std::vector<BufferRef> parts;
  for (const ParameterAt& member : members) {
    parts.push_back(Part(member));
  }
  const bool flattens = members.size() > 1;  // of a single tensor flattening makes a view
  const BufferRef flat = flattens ? Flat(flat_, place) : parts.front();
  if (flattens) {
    const Buffer& buffer = role_.builder.buffer(flat.buffer);
    role_.Alloc(flat);
    role_.MemoryKernel("flatten updated parts", role_.compute, Work::optimizer, parts, {flat}, buffer.elements,
                       buffer.bytes() * 2);
  }
  role_.Alloc(gathered);
  AllGather(flat, gathered, role_.builder.buffer(gathered.buffer).elements);
  std::optional<ParameterAt> before;
  for (const ParameterAt& member : members) {
    const std::int64_t elements = PartOf(ParameterOf(role_, member)) * ranks_;
    const BufferRef copy = ranks_ > 1 ? copies_(role_, member) : gathered;
    if (ranks_ > 1) {
      role_.Alloc(copy);
      role_.MemoryKernel("join gathered parts", role_.compute, Work::optimizer, {gathered}, {copy}, elements,
                         SizeOf(dtype) * 2 * elements);
      if (before) {
        role_.Free(copies_(role_, *before));
      }
      before = member;
    }
    role_.MemoryKernel("copy gathered parameter", role_.compute, Work::optimizer, {copy}, {weight_(member)}, elements,
                       SizeOf(dtype) * 2 * elements);
  }
  for (std::size_t i = 0; Casts() && i < parts.size(); ++i) {
    role_.Free(parts[i]);
  }
  if (before) {
    role_.Free(copies_(role_, *before));
  }
  role_.Free(gathered);
  if (flattens) {
    role_.Free(flat);
  }
}

void UpdatedGather::AllGather(const BufferRef& part, const BufferRef& whole, std::int64_t elements) {
  const DType dtype = role_.job.axes.precision.params;
  if (ranks_ == 1) {
    role_.MemoryKernel("copy updated part", role_.compute, Work::optimizer, {part}, {whole}, elements,
                       SizeOf(dtype) * 2 * elements);
    return;
  }
  BetweenUpdateAndUse(role_, stream_, [&] { GatherUpdated(role_, stream_, group_, elements, {part}, {whole}); });
}

}  // namespace tidemark
