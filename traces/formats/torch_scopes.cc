// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_scopes.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "traces/formats/torch_trace.h"

namespace tidemark {
namespace {

/// "forward#3": a phase and its microbatch; any other text is a phase as a whole.
Span SpanNamed(const std::string& name) {
  constexpr std::size_t kMostDigits = 9;
  Span span;
  span.phase = name;
  const std::size_t mark = name.rfind('#');
  if (mark != std::string::npos && mark > 0 && mark + 1 < name.size() && name.size() - mark - 1 <= kMostDigits &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(mark) + 1, name.end(),
                  [](char c) { return c >= '0' && c <= '9'; })) {
    span.microbatch = ParseWhole(std::string_view(name).substr(mark + 1)).value_or(-1);
    span.phase = name.substr(0, mark);
  }
  return span;
}

}  // namespace

TorchScopes::TorchScopes(const TorchSnapshot& snapshot, std::size_t device, std::int64_t first_us, Trace& trace)
    : trace_(trace), first_us_(first_us) {
  for (const TorchAnnotation& annotation : snapshot.annotations) {
    if (annotation.device == TorchAnnotation::kEveryDevice || annotation.device == static_cast<std::int64_t>(device)) {
      annotations_.push_back(&annotation);
    }
  }
  std::stable_sort(annotations_.begin(), annotations_.end(),
                   [](const auto* a, const auto* b) { return a->time_us < b->time_us; });
}

/// Of a scope from before the recording, the part within it counts. Times that lie absurdly far apart stop there.
Nanos TorchScopes::Since(std::int64_t time_us) const {
  constexpr std::int64_t kLongestUs = std::int64_t{1} << 52;  // 142 years
  std::int64_t since = 0;
  const bool beyond = __builtin_sub_overflow(time_us, first_us_, &since);
  return Nanos(beyond ? 0 : std::clamp<std::int64_t>(since, 0, kLongestUs) * 1000);
}

void TorchScopes::Advance(std::int64_t time_us, std::size_t memory) {
  last_ = std::max(last_, Since(time_us));
  for (; next_ < annotations_.size() && annotations_[next_]->time_us <= time_us; ++next_) {
    const TorchAnnotation& annotation = *annotations_[next_];
    const Nanos now = Since(annotation.time_us);
    if (annotation.begins) {
      Begin(annotation.name, now, memory);
    } else {
      Close(annotation.name, now);
    }
  }
}

void TorchScopes::Begin(const std::string& name, Nanos now, std::size_t memory) {
  Span span = SpanNamed(name);
  if (span.phase == kTorchStep && span.microbatch >= 0) {
    open_steps_[name] = trace_.steps.size();
    const Nanos begin = trace_.steps.empty() ? now : std::max(now, trace_.steps.back().end);
    if (!trace_.steps.empty()) {  // a step ends where the next one begins
      trace_.steps.back().end = begin;
    }
    trace_.steps.push_back({"", begin, begin, memory});
    return;
  }
  if (trace_.spans.size() + 1 >= kNoSpan) {
    too_many_ = true;
    return;
  }
  const auto index = static_cast<std::uint16_t>(trace_.spans.size());
  span.begin = span.end = now;
  trace_.spans.push_back(span);
  open_by_name_[name].push_back(index);
  open_.insert(index);
}

void TorchScopes::Close(const std::string& name, Nanos now) {
  if (const auto step = open_steps_.find(name); step != open_steps_.end()) {
    EndStep(step->second, now);
    open_steps_.erase(step);
    return;
  }
  const auto found = open_by_name_.find(name);
  if (found == open_by_name_.end() || found->second.empty()) {
    return;  // it began before the recording, when is not known
  }
  const std::uint16_t index = found->second.back();
  found->second.pop_back();
  open_.erase(index);
  trace_.spans[index].end = now;
}

/// Where another one has begun since, it has ended there.
void TorchScopes::EndStep(std::size_t step, Nanos now) {
  if (step + 1 == trace_.steps.size()) {
    trace_.steps.back().end = std::max(trace_.steps.back().end, now);
  }
}

void TorchScopes::End(std::size_t memory) {
  for (; next_ < annotations_.size();) {
    Advance(annotations_[next_]->time_us, memory);
  }
  for (const std::uint16_t index : open_) {
    trace_.spans[index].end = std::max(trace_.spans[index].begin, last_);
  }
  for (const auto& [name, step] : open_steps_) {
    EndStep(step, last_);
  }
  open_steps_.clear();
  open_.clear();
  trace_.step = std::max(trace_.step, last_);
}

}  // namespace tidemark
