// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/recorder.h"

#include <fmt/format.h>

#include <utility>

#include "profiler/capture/heap.h"
#include "sim/program/layers.h"

namespace tidemark {
namespace {

constexpr Nanos kKeepEvery{200'000'000};

std::uint32_t PlaceOf(std::map<std::string, std::uint32_t>& known, const std::string& key, std::size_t size) {
  return known.emplace(key, static_cast<std::uint32_t>(size)).first->second;
}

}  // namespace

Nanos Recorder::Now() const {
  if (!zero_) {
    return Nanos();
  }
  const auto elapsed = std::chrono::steady_clock::now() - *zero_;
  return Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
}

Nanos Recorder::zero() const {
  const auto since = zero_ ? zero_->time_since_epoch() : std::chrono::steady_clock::duration();
  return Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

void Recorder::StartClock() {
  zero_ = std::chrono::steady_clock::now();
  KeepNow();
}

void Recorder::KeepNow() {
  if (keep_) {
    const HeapScope scope(HeapOwner::trace);
    keep_(trace_);
    kept_at_ = Now();
  }
}

void Recorder::KeepSometimes() {
  if (Now() - kept_at_ >= kKeepEvery) {
    KeepNow();
  }
}

void Recorder::BeginStep(const Program& program, std::string_view kind) {
  const HeapScope scope(HeapOwner::trace);
  trace_.role = program.role;
  trace_.steps.push_back({std::string(kind), Now(), Now(), trace_.memory.size()});
  step_.emplace(annotations_, Annotation{.name = fmt::format("{} step", kind)});
  if (progress_ != nullptr) {
    progress_->BeginStep();
  }
}

PhasePlace Recorder::place() const {
  if (open_.empty()) {
    return {};
  }
  const Span& span = trace_.spans[open_.back().span];
  return {span.phase, span.microbatch, std::ssize(trace_.steps) - 1, span.side};
}

void Recorder::EndStep() {
  open_.clear();  // where memory ran out
  step_.reset();
  trace_.steps.back().end = Now();
  trace_.step = trace_.steps.back().end - trace_.steps.front().begin;
  Wait(true);
  KeepSometimes();
}

void Recorder::Memory(bool alloc, const Program& program, const Buffer& buffer, std::int64_t index0,
                      std::int64_t index1, const kernels::TensorType& type, const TensorMemory::Piece& piece,
                      const Allocator& allocator) {
  const HeapScope scope(HeapOwner::trace);
  Beat();
  const TensorKey key{buffer.name, buffer.category, type.dtype, type.elements};
  const auto [found, is_new] = tensors_.emplace(key, static_cast<std::uint32_t>(trace_.tensors.size()));
  if (is_new) {
    trace_.tensors.push_back({buffer.name, buffer.category, type.dtype, SizeOf(type.dtype) * type.elements,
                              std::string(), LayersOf(program, buffer)});
  }
  MemoryEvent event;
  event.alloc = alloc;
  event.tensor = TensorNameId{found->second};
  event.index0 = static_cast<std::int32_t>(index0);
  event.index1 = static_cast<std::int32_t>(index1);
  event.issue = event.ready = Now();
  event.address = reinterpret_cast<std::uint64_t>(piece.data);
  event.span = open_span();
  const Stream& birth = program.streams[buffer.stream.index];
  event.stream = StreamRow(birth.name, Name(birth.kind));
  event.allocator_bytes = allocator.allocated();
  event.reserved_bytes = allocator.reserved();
  trace_.memory.push_back(event);
  if (annotations_ != nullptr && alloc && piece.bytes > Bytes(0)) {
    annotations_->NameRegion(event.address, buffer.name);
  }
}

void Recorder::Refuse(Bytes requested) {
  const HeapScope scope(HeapOwner::trace);
  trace_.missing = RefusedText(requested);
  if (!trace_.memory.empty()) {
    trace_.marks.push_back({kOutOfMemory, trace_.memory.size()});
  }
}

void Recorder::Busy(const std::string& stream, std::string_view kind, const std::string& name, Nanos start, Nanos end,
                    std::uint16_t span) {
  const HeapScope scope(HeapOwner::trace);
  Beat();
  const std::uint16_t on = StreamRow(stream, kind);
  const std::uint32_t named = PlaceOf(strings_, name, trace_.strings.size());
  if (named == trace_.strings.size()) {
    trace_.strings.push_back(name);
  }
  trace_.slices.push_back({on, TraceStringId{named}, start, end, span});
}

std::uint16_t Recorder::StreamRow(const std::string& name, std::string_view kind) {
  const std::uint32_t row = PlaceOf(streams_, name, trace_.streams.size());
  if (row == trace_.streams.size()) {
    trace_.streams.push_back({name, std::string(kind)});
  }
  return static_cast<std::uint16_t>(row);
}

void Recorder::Begin(Phase phase, std::int64_t microbatch, Side side) {
  const HeapScope scope(HeapOwner::trace);
  if (trace_.spans.size() < kNoSpan) {  // the last usable index stands for all later phases
    trace_.spans.push_back({std::string(Name(phase)), microbatch, Now(), Now(), std::string(Name(side))});
  }
  const std::string name =
      side == Side::none ? std::string(Name(phase)) : fmt::format("{} {}", Name(phase), Name(side));
  open_.push_back({static_cast<std::uint16_t>(trace_.spans.size() - 1), phase, microbatch,
                   AnnotatedRange(annotations_, {name, phase, microbatch})});
  ReportPhase();
}

void Recorder::End() {
  trace_.spans[open_.back().span].end = Now();
  open_.pop_back();
  ReportPhase();
  if (open_.empty()) {
    KeepSometimes();
  }
}

AnnotatedRange Recorder::Operation(std::string_view name) const {
  Annotation operation{.name = name};
  if (!open_.empty()) {
    operation.phase = open_.back().phase;
    operation.microbatch = open_.back().microbatch;
  }
  return {annotations_, operation};
}

void Recorder::ReportPhase() {
  if (progress_ != nullptr) {
    progress_->SetPhase(open_.empty() ? std::nullopt : std::optional(open_.back().phase),
                        open_.empty() ? -1 : open_.back().microbatch);
  }
}

std::optional<Error> Recorder::Interruption() const {
  if (progress_ == nullptr || !RankProgress::asked_to_stop()) {
    return std::nullopt;
  }
  return Error{ErrorCode::interrupted, "", "interrupted " + progress_->place().Text(), ""};
}

void Recorder::Wait(bool waits) {
  if (progress_ != nullptr) {
    progress_->Enter(waits ? RankProgress::State::waiting : RankProgress::State::running);
  }
}

}  // namespace tidemark
