// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/rotary_table_cuda.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/contents.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/rotary_tables.h"
#include "sim/program/residents.h"
#include "sim/program/stages.h"

namespace tidemark {

Executor::~Executor() {
  device_.Synchronize();
  for (const Held& held : held_) {
    if (held.piece.data != nullptr && held.on_host == nullptr) {
      memory_.Free(held.piece);
    }
  }
  const HeapScope scope(HeapOwner::host_tensors);
  for (Held& held : held_) {
    held.on_host.reset();
  }
}

void Executor::UseOn(StreamId stream, std::span<const BufferRef> refs, Loops loops) {
  for (const BufferRef& ref : refs) {
    const Buffer& buffer = BufferOf(ref);
    std::vector<StreamId>& users = held_[MemoryOf(ref, loops)].users;
    const bool known = stream == buffer.stream || std::find(users.begin(), users.end(), stream) != users.end();
    if (!known) {
      users.push_back(stream);
    }
  }
}

/// Before tensors take what there is: a queue of kernels has room beside them (kernels::Queue).
void Executor::MakeQueues(const Program& program) {
  std::set<std::uint32_t> streams;
  for (const Node& node : program.nodes) {
    if (const auto* compute = std::get_if<Compute>(&node)) {
      streams.insert(compute->stream.index);
    }
  }
  for (const std::uint32_t stream : streams) {
    device_.Give(stream, [](const Queue&) {});
  }
}

/// What the step before kept is the same buffer in this one, by name and place in its family.
Status Executor::TakeOver(const Program& program) {
  const HeapScope scope(HeapOwner::executor);
  using Key = std::tuple<std::string, std::int64_t, std::int64_t>;
  std::map<Key, Held> kept;
  for (std::size_t b = 0; program_ != nullptr && b < program_->buffers.size(); ++b) {
    const Buffer& buffer = program_->buffers[b];
    for (std::int64_t i = 0; buffer.kept && i < buffer.count(); ++i) {
      kept[{buffer.name, i / buffer.extents[1], i % buffer.extents[1]}] =
          held_[first_slot_[b] + static_cast<std::size_t>(i)];
    }
  }
  const bool first = program_ == nullptr;
  if (program_ != &program) {
    contents_ = {};
  }
  program_ = &program;
  first_slot_.clear();
  held_.clear();
  for (const Buffer& buffer : program.buffers) {
    first_slot_.push_back(held_.size());
    held_.resize(held_.size() + static_cast<std::size_t>(buffer.count()));
    for (std::size_t i = 0; i < buffer.slices.size(); ++i) {  // their values may be of the step before
      held_[first_slot_.back() + i].type = {Stored(buffer.dtype, options_.exact), buffer.elements};
    }
  }
  for (const auto& [id, index0, index1] : ResidentsOf(program)) {
    const Buffer& buffer = program.buffers[id.index];
    if (outcome_.out_of_memory) {
      return Done{};
    }
    const std::size_t slot = first_slot_[id.index] + static_cast<std::size_t>(index0 * buffer.extents[1] + index1);
    if (first) {
      TIDEMARK_TRY(MakeResident(buffer, slot, index0, index1));
      continue;
    }
    const auto found = kept.find({buffer.name, index0, index1});
    if (found == kept.end()) {
      return Error{ErrorCode::internal, "",
                   fmt::format("a step begins with '{}', which the step before did not keep", buffer.name),
                   "the program is wrong: please report the job"};
    }
    held_[slot] = found->second;
    held_[slot].users.clear();  // their work has ended
    kept.erase(found);
  }
  if (!kept.empty()) {
    return Error{
        ErrorCode::internal, "",
        fmt::format("a step keeps '{}', which the next one does not begin with", std::get<0>(kept.begin()->first)),
        "the program is wrong: please report the job"};
  }
  if (!first) {
    memory_.Synchronize();
  }
  return Done{};
}

Status Executor::MakeResident(const Buffer& buffer, std::size_t slot, std::int64_t index0, std::int64_t index1) {
  TIDEMARK_TRY(Allocate(buffer, slot, index0, index1, ResidentType(job_, model_, buffer, index0, options_.exact)));
  if (!outcome_.out_of_memory) {
    Fill(buffer, index0, held_[slot]);
  }
  return Done{};
}

/// Weights and their masters get the values that the training starts with, constants theirs; sums and moments are zero;
/// all else is not written yet.
void Executor::Fill(const Buffer& buffer, std::int64_t index, const Held& held) const {
  const kernels::Tensor tensor{held.type, held.piece.data};
  if (const auto table = RotaryTableIn(job_, model_, buffer)) {
    device_.Give(buffer.stream.index,
                 [table = *table, tensor](const Queue& queue) { on::FillRotaryTable(queue, table, tensor); });
    return;
  }
  const bool masters = buffer.category == Category::optimizer && WithoutStage(buffer.name).starts_with("master");
  if (buffer.category == Category::parameter || masters) {
    const auto contents = ContentsOf(model_, buffer, index);
    for (std::size_t i = 0; contents && i < contents->stretches.size(); ++i) {
      const Stretch& stretch = contents->stretches[i];
      const kernels::Tensor part = kernels::Slice(tensor, stretch.offset, stretch.elements);
      device_.Give(buffer.stream.index, [this, stretch, part](const Queue& queue) {
        model_.Initialise(stretch.weight, stretch.block, options_.seed, stretch.begin, part, queue);
      });
    }
  } else if (buffer.category == Category::optimizer || buffer.category == Category::accumulator ||
             buffer.category == Category::gradient) {
    device_.Give(buffer.stream.index, [tensor](const Queue& queue) { on::Zero(queue, tensor); });
  }
}

Status Executor::Allocate(const Buffer& buffer, std::size_t slot, std::int64_t index0, std::int64_t index1,
                          const kernels::TensorType& type) {
  if (buffer.category == Category::rng) {
    return Done{};  // random numbers are functions of counters here: there is no state to keep
  }
  if (buffer.place == Place::host) {
    AllocateOnHost(slot, type);
    return Done{};
  }
  const auto piece = memory_.Allocate(SizeOf(type.dtype) * type.elements, buffer.stream.index);
  const Allocator& allocator = memory_.allocator();
  if (!piece) {
    outcome_.out_of_memory = OutOfMemory{.requested = SizeOf(type.dtype) * type.elements,
                                         .reserved = allocator.reserved(),
                                         .capacity = allocator.device().capacity(),
                                         .cache_flushes = allocator.cache_flushes(),
                                         .tensor = buffer.name,
                                         .at = recorder_.place()};
    recorder_.Refuse(outcome_.out_of_memory->requested);
    return Done{};
  }
  held_[slot] = {type, *piece, nullptr, {}};
  recorder_.Memory(true, *program_, buffer, index0, index1, type, *piece, allocator);
  return Done{};
}

/// It counts for no device, so it is in no trace.
void Executor::AllocateOnHost(std::size_t slot, const kernels::TensorType& type) {
  const HeapScope scope(HeapOwner::host_tensors);
  const Bytes bytes = SizeOf(type.dtype) * type.elements;
  const std::shared_ptr<DeviceRoom> room = device_.HostRoomFor(bytes);
  if (poison_ == Poison::everything) {
    std::memset(room->data(), 0xff, static_cast<std::size_t>(bytes.count()));
  }
  held_[slot] = {type, {room->data(), bytes}, nullptr, {}, room};
}

void Executor::Release(const Buffer& buffer, std::size_t slot, std::int64_t index0, std::int64_t index1,
                       std::vector<Device::Mark> uses) {
  Held& held = held_[slot];
  if (held.piece.data == nullptr) {
    return;
  }
  if (held.on_host != nullptr) {
    {
      const HeapScope scope(HeapOwner::host_tensors);
      held.on_host.reset();
    }
    held = {};
    return;
  }
  if (uses.empty() || device_.is_synchronous()) {
    memory_.Free(held.piece);
  } else {
    memory_.FreeInUse(held.piece, std::move(uses));
  }
  recorder_.Memory(false, *program_, buffer, index0, index1, held.type, held.piece, memory_.allocator());
  held = {};
}

}  // namespace tidemark
