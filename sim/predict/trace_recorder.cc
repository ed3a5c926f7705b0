// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/program/layers.h"
#include "sim/strategies/gradient_clip.h"

namespace tidemark {
namespace {

constexpr Bytes kUnlimited{std::int64_t{1} << 62};

/// The place of `key` in a table that grows: `add` appends what is new.
template <class Key, class Add>
std::uint32_t PlaceOf(std::map<Key, std::uint32_t>& known, const Key& key, std::size_t size, Add add) {
  const auto [found, is_new] = known.emplace(key, static_cast<std::uint32_t>(size));
  if (is_new) {
    add();
  }
  return found->second;
}

std::vector<std::uint32_t> FirstSlots(const Program& program) {
  std::vector<std::uint32_t> first(1, 0);
  for (const Buffer& buffer : program.buffers) {
    first.push_back(first.back() + static_cast<std::uint32_t>(buffer.count()));
  }
  return first;
}

bool IsAlike(const Program& a, const Buffer& left, const Program& b, const Buffer& right) {
  return left.category == right.category && left.dtype == right.dtype && left.elements == right.elements &&
         left.extents == right.extents && left.place == right.place &&
         a.streams[left.stream.index].name == b.streams[right.stream.index].name;
}

Error Mismatch(const Program& program, std::string_view name, std::string_view what) {
  return {ErrorCode::internal, program.role, fmt::format("buffer '{}' {}", name, what),
          "this is a fault of tidemark: please report the job"};
}

}  // namespace

TraceRecorder::TraceRecorder(const AllocatorOptions& options, std::optional<Bytes> late_capacity)
    : allocator_(MakeAllocator(options, kUnlimited)) {
  if (late_capacity && allocator_->records_streams()) {
    late_.emplace(options, *late_capacity);
  }
  trace_.origin = "predicted";
}

Status TraceRecorder::BeginStep(const Program& program, std::string_view kind, Nanos start,
                                std::span<const std::string> shardings) {
  TIDEMARK_CHECK(open_spans_.empty());
  std::vector<std::uint32_t> first_slot = FirstSlots(program);
  std::vector<Held> held(first_slot.back());
  if (program_ != nullptr) {
    TIDEMARK_ASSIGN(held, HandOver(program, first_slot));
    allocator_->Synchronize();
    after_sync_ = true;
    if (late_) {
      late_->Synchronize();
    }
  }
  program_ = &program;
  start_ = start;
  first_slot_ = std::move(first_slot);
  held_ = std::move(held);
  trace_.role = program.role;
  trace_.ranks = program.ranks;
  trace_.steps.push_back({std::string(kind), start, start, trace_.memory.size()});
  reserved_in_step_ = allocator_->reserved();
  ReadTables(shardings);
  FindMarks();
  return Done{};
}

/// Finds each resident buffer of `next` among those that the current program keeps.
Result<std::vector<TraceRecorder::Held>> TraceRecorder::HandOver(const Program& next,
                                                                 const std::vector<std::uint32_t>& first_slot) const {
  std::map<std::string_view, std::size_t> kept;
  for (std::size_t i = 0; i < program_->buffers.size(); ++i) {
    if (program_->buffers[i].kept) {
      kept.emplace(program_->buffers[i].name, i);
    }
  }
  std::vector<Held> held(first_slot.back());
  for (std::size_t i = 0; i < next.buffers.size(); ++i) {
    const Buffer& buffer = next.buffers[i];
    if (!buffer.resident) {
      continue;
    }
    const auto found = kept.find(buffer.name);
    if (found == kept.end() || !IsAlike(*program_, program_->buffers[found->second], next, buffer)) {
      return Mismatch(next, buffer.name, "begins a step, but the step before did not leave it like that");
    }
    std::copy_n(held_.begin() + first_slot_[found->second], buffer.count(), held.begin() + first_slot[i]);
    kept.erase(found);
  }
  if (!kept.empty()) {
    return Mismatch(next, kept.begin()->first, "is left by a step, but the next one does not begin with it");
  }
  return held;
}

void TraceRecorder::ReadTables(std::span<const std::string> shardings) {
  TIDEMARK_CHECK(shardings.empty() || shardings.size() == program_->buffers.size());
  tensors_.clear();
  for (std::size_t i = 0; i < program_->buffers.size(); ++i) {
    const Buffer& buffer = program_->buffers[i];
    const TensorKey key{buffer.name, buffer.category, buffer.dtype, buffer.bytes()};
    tensors_.push_back(PlaceOf(known_tensors_, key, trace_.tensors.size(), [&] {
      trace_.tensors.push_back({buffer.name, buffer.category, buffer.dtype, buffer.bytes(),
                                shardings.empty() ? std::string() : shardings[i], LayersOf(*program_, buffer)});
    }));
  }
  strings_.clear();
  for (const std::string& name : program_->names) {
    strings_.push_back(PlaceOf(known_strings_, name, trace_.strings.size(), [&] { trace_.strings.push_back(name); }));
  }
  streams_.clear();
  for (const Stream& stream : program_->streams) {
    streams_.push_back(PlaceOf(known_streams_, stream.name, trace_.streams.size(), [&] {
      trace_.streams.push_back({stream.name, std::string(Name(stream.kind))});
    }));
  }
}

/// Data-parallel collectives are where gradients are reduced and parameters gathered, in whichever phase that is; the
/// optimizer's kernels on norms are where gradients are clipped.
void TraceRecorder::FindMarks() {
  marks_.clear();
  const auto touches = [&](const std::vector<BufferRef>& refs, std::initializer_list<Category> categories) {
    return std::any_of(refs.begin(), refs.end(), [&](const BufferRef& ref) {
      return std::find(categories.begin(), categories.end(), program_->buffers[ref.buffer.index].category) !=
             categories.end();
    });
  };
  for (const Node& node : program_->nodes) {
    if (const auto* kernel = std::get_if<Compute>(&node); kernel != nullptr && kernel->work == Work::optimizer) {
      if (IsClipKernel(program_->names[kernel->name.index])) {
        marks_[kernel->name] = "clip";
      }
    }
    const auto* collective = std::get_if<Collective>(&node);
    if (collective == nullptr || program_->groups[collective->group.index].name == "tp") {
      continue;
    }
    const bool gathers =
        collective->kind == CollectiveKind::all_gather || collective->kind == CollectiveKind::broadcast;
    if (gathers && touches(collective->reads, {Category::parameter, Category::bucket, Category::optimizer})) {
      marks_[collective->name] = "gather";
    } else if (!gathers && touches(collective->reads, {Category::gradient, Category::accumulator, Category::bucket})) {
      marks_[collective->name] = "reduce";
    }
  }
}

/// Of the instants of one name the trace keeps the one at which most is alive, the first of these.
void TraceRecorder::Mark(const std::string& name) {
  const auto [highest, is_new] = marked_.emplace(name, total_);
  if (trace_.memory.empty() || (!is_new && total_ <= highest->second)) {
    return;
  }
  highest->second = total_;
  std::erase_if(trace_.marks, [&](const InstantMark& mark) { return mark.name == name; });
  trace_.marks.push_back({name, trace_.memory.size()});
}

void TraceRecorder::EndStep(Nanos end) {
  trace_.steps.back().end = end;
  trace_.step = end;
}

void TraceRecorder::OnResident(const BufferInstance& instance) {
  if (trace_.steps.size() == 1) {
    OnAlloc(instance, Nanos(), Nanos());
  }
}

void TraceRecorder::OnAlloc(const BufferInstance& instance, Nanos issue, Nanos ready) {
  const Buffer& buffer = program_->buffers[instance.buffer.index];
  if (buffer.place != Place::device) {
    return;
  }
  const std::uint32_t stream = streams_[buffer.stream.index];
  const auto allocation = allocator_->Allocate(buffer.bytes(), stream);
  TIDEMARK_CHECK(allocation.has_value());
  held_[instance.slot] = {allocation->handle, TakeLogId(), allocation->address};
  if (late_ && !late_->Allocate(held_[instance.slot].log_id, buffer.bytes(), stream, start_ + issue)) {
    late_.reset();
  }
  Log({true, held_[instance.slot].log_id, buffer.bytes(), stream});
  Record(true, instance, issue, ready, allocation->address);
}

void TraceRecorder::OnUsedUntil(const BufferInstance&, Nanos done) { used_until_ = done; }

std::optional<Bytes> TraceRecorder::reserved_late() const {
  return late_ ? std::optional(late_->reserved_peak()) : std::nullopt;
}

void TraceRecorder::OnFree(const BufferInstance& instance, Nanos issue, Nanos ready) {
  const Nanos used_until = std::exchange(used_until_, Nanos());
  const Buffer& buffer = program_->buffers[instance.buffer.index];
  if (buffer.place != Place::device) {
    return;
  }
  const Held& held = held_[instance.slot];
  allocator_->Free(held.handle);
  if (late_) {
    late_->Free(held.log_id, start_ + issue, start_ + used_until);
  }
  Log({false, held.log_id, buffer.bytes(), streams_[buffer.stream.index]});
  free_log_ids_.push_back(held.log_id);
  Record(false, instance, issue, ready, held.address);
}

void TraceRecorder::Log(Request request) {
  request.after_sync = std::exchange(after_sync_, false);
  log_.push_back(request);
}

std::uint32_t TraceRecorder::TakeLogId() {
  if (free_log_ids_.empty()) {
    return log_ids_++;
  }
  const std::uint32_t id = free_log_ids_.back();
  free_log_ids_.pop_back();
  return id;
}

void TraceRecorder::Record(bool alloc, const BufferInstance& instance, Nanos issue, Nanos ready,
                           std::uint64_t address) {
  MemoryEvent event;
  event.alloc = alloc;
  event.tensor = TensorNameId{tensors_[instance.buffer.index]};
  event.index0 = static_cast<std::int32_t>(instance.index0);
  event.index1 = static_cast<std::int32_t>(instance.index1);
  event.issue = start_ + issue;
  event.ready = start_ + ready;
  event.address = address;
  event.span = OpenSpan();
  event.stream = static_cast<std::uint16_t>(streams_[program_->buffers[instance.buffer.index].stream.index]);
  event.allocator_bytes = allocator_->allocated();
  event.reserved_bytes = allocator_->reserved();
  reserved_in_step_ = std::max(reserved_in_step_, event.reserved_bytes);
  const Bytes bytes = program_->buffers[instance.buffer.index].bytes();
  total_ = alloc ? total_ + bytes : total_ - bytes;
  trace_.memory.push_back(event);
}

std::uint16_t TraceRecorder::OpenSpan() const { return open_spans_.empty() ? kNoSpan : open_spans_.back(); }

void TraceRecorder::OnSlice(StreamId stream, NameId name, Nanos start, Nanos end) {
  if (const auto mark = marks_.find(name); mark != marks_.end()) {
    Mark(mark->second);
  }
  if (late_) {
    late_->Launch(streams_[stream.index], start_ + end);
  }
  trace_.slices.push_back({static_cast<std::uint16_t>(streams_[stream.index]), TraceStringId{strings_[name.index]},
                           start_ + start, start_ + end, OpenSpan()});
}

void TraceRecorder::OnBegin(const Begin& begin, std::int64_t microbatch, Nanos host) {
  // The last usable index stands for all later phases: a span with 65,535 phases still has every event in order.
  if (trace_.spans.size() < kNoSpan) {
    trace_.spans.push_back(
        {std::string(Name(begin.phase)), microbatch, start_ + host, start_ + host, std::string(Name(begin.side))});
  }
  open_spans_.push_back(static_cast<std::uint16_t>(trace_.spans.size() - 1));
}

void TraceRecorder::OnEnd(Phase, Nanos host) {
  trace_.spans[open_spans_.back()].end = start_ + host;
  open_spans_.pop_back();
}

Trace TraceRecorder::TakeTrace() && { return std::move(trace_); }

}  // namespace tidemark
