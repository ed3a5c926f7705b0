// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/trace_recorder.h"

namespace tidemark {
namespace {

constexpr Bytes kUnlimited{std::int64_t{1} << 62};
constexpr std::uint16_t kNoSpan = 0xffff;

}  // namespace

TraceRecorder::TraceRecorder(const Program& program, const AllocatorOptions& options)
    : program_(program), allocator_(MakeAllocator(options, kUnlimited)) {
  std::int64_t slots = 0;
  for (const Buffer& buffer : program.buffers) {
    trace_.tensors.push_back({buffer.name, buffer.category, buffer.dtype, buffer.bytes()});
    slots += buffer.count();
  }
  handles_.resize(static_cast<std::size_t>(slots));
  addresses_.resize(static_cast<std::size_t>(slots));
  trace_.strings = program.names;
  for (const Stream& stream : program.streams) {
    trace_.streams.push_back({stream.name, std::string(Name(stream.kind))});
  }
  trace_.origin = "predicted";
  trace_.role = program.role;
  trace_.ranks = program.ranks;
}

void TraceRecorder::OnAlloc(const BufferInstance& instance, Nanos issue, Nanos ready) {
  const Buffer& buffer = program_.buffers[instance.buffer.index];
  if (buffer.place != Place::device) {
    return;
  }
  const auto allocation = allocator_->Allocate(buffer.bytes(), buffer.stream.index);
  TIDEMARK_CHECK(allocation.has_value());
  handles_[instance.slot] = allocation->handle;
  addresses_[instance.slot] = allocation->address;
  log_.push_back({true, instance.slot, buffer.bytes(), buffer.stream.index});
  Record(true, instance, issue, ready, allocation->address);
}

void TraceRecorder::OnFree(const BufferInstance& instance, Nanos issue, Nanos ready) {
  const Buffer& buffer = program_.buffers[instance.buffer.index];
  if (buffer.place != Place::device) {
    return;
  }
  allocator_->Free(handles_[instance.slot]);
  log_.push_back({false, instance.slot, buffer.bytes(), buffer.stream.index});
  Record(false, instance, issue, ready, addresses_[instance.slot]);
}

void TraceRecorder::Record(bool alloc, const BufferInstance& instance, Nanos issue, Nanos ready,
                           std::uint64_t address) {
  log_event_.push_back(trace_.memory.size());
  MemoryEvent event;
  event.alloc = alloc;
  event.tensor = TensorNameId{instance.buffer.index};
  event.index0 = static_cast<std::int32_t>(instance.index0);
  event.index1 = static_cast<std::int32_t>(instance.index1);
  event.issue = issue;
  event.ready = ready;
  event.address = address;
  event.span = open_spans_.empty() ? kNoSpan : open_spans_.back();
  event.allocator_bytes = allocator_->allocated();
  event.reserved_bytes = allocator_->reserved();
  trace_.memory.push_back(event);
}

void TraceRecorder::OnSlice(StreamId stream, NameId name, Nanos start, Nanos end) {
  trace_.slices.push_back({static_cast<std::uint16_t>(stream.index), TraceStringId{name.index}, start, end});
}

void TraceRecorder::OnBegin(Phase phase, std::int64_t microbatch, Nanos host) {
  // The last usable index stands for all later phases: a step with 65,535 phases still has every event in order.
  if (trace_.spans.size() < kNoSpan) {
    trace_.spans.push_back({std::string(Name(phase)), microbatch, host, host});
  }
  open_spans_.push_back(static_cast<std::uint16_t>(trace_.spans.size() - 1));
}

void TraceRecorder::OnEnd(Phase, Nanos host) {
  trace_.spans[open_spans_.back()].end = host;
  open_spans_.pop_back();
}

std::string TraceRecorder::PhaseOf(std::size_t index) const {
  const std::uint16_t span = trace_.memory[log_event_[index]].span;
  return span == kNoSpan ? "before the step" : trace_.spans[span].phase;
}

Trace TraceRecorder::TakeTrace(Nanos step) && {
  trace_.step = step;
  return std::move(trace_);
}

}  // namespace tidemark
