// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/trace_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <string_view>
#include <tuple>

#include "models/machine/device_bytes.h"
#include "traces/family.h"
#include "traces/utf8.h"

namespace tidemark {
namespace {

/// What a trace says of requests that were refused.
void AddRefused(const Trace& trace, std::vector<RefusedRequest>& all) {
  const bool allocated = Tells(trace, &MemoryEvent::allocator_bytes),
             reserved = Tells(trace, &MemoryEvent::reserved_bytes);
  for (const InstantMark& mark : trace.marks) {
    if (mark.name != kOutOfMemory || mark.events > trace.memory.size()) {
      continue;
    }
    const std::size_t last = mark.events - 1;
    const MemoryEvent& event = trace.memory[last];
    all.push_back({trace.role, event.issue, PlaceOf(trace, last),
                   allocated ? std::optional(event.allocator_bytes) : std::nullopt,
                   reserved ? std::optional(event.reserved_bytes) : std::nullopt, mark.events == trace.memory.size()});
  }
}

/// The allocator's highest totals; nothing where the trace has none.
std::optional<Bytes> HighestOf(const Trace& trace, Bytes MemoryEvent::*total) {
  Bytes highest;
  for (const MemoryEvent& event : trace.memory) {
    highest = std::max(highest, event.*total);
  }
  return highest > Bytes(0) ? std::optional(highest) : std::nullopt;
}

RoleReport MakeRole(Trace trace) {
  RoleReport role;
  role.role = trace.role;
  role.ranks = trace.ranks;
  role.peak = SummarisePeak(trace);
  role.phases = SummarisePhases(trace);
  role.allocator_bytes = HighestOf(trace, &MemoryEvent::allocator_bytes);
  role.reserved = HighestOf(trace, &MemoryEvent::reserved_bytes);
  role.device = {trace.device_low, trace.device_expected, trace.device_high};
  role.trace = std::move(trace);
  return role;
}

Bytes NeededBy(const RoleReport& role) {
  return role.device.high > Bytes(0) ? role.device.high : role.reserved.value_or(role.peak.allocated);
}

/// Which of a file's traces to show: the named role, else the highest.
std::size_t Choose(const std::vector<RoleReport>& roles, const std::string& wanted) {
  std::size_t highest = 0;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (!wanted.empty() && roles[i].role == wanted) {
      return i;
    }
    if (roles[i].peak.allocated > roles[highest].peak.allocated) {
      highest = i;
    }
  }
  return highest;
}

TraceSummary Summarise(ReadTrace read, std::string label, const std::string& wanted) {
  TraceSummary summary;
  std::vector<RoleReport> roles;
  for (Trace& trace : read.file.traces) {
    AddRefused(trace, summary.refused);
    roles.push_back(MakeRole(std::move(trace)));
    if (!read.file.note.empty()) {
      roles.back().device = {};  // what was said of the whole adds up to nothing with the totals of a part
    }
  }
  const std::size_t chosen = Choose(roles, wanted);
  summary.label = std::move(label);
  summary.path = Utf8(read.path);
  summary.format = std::move(read.file.format);
  summary.note = std::move(read.file.note);
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (NeededBy(roles[i]) > summary.needed) {
      summary.needed = NeededBy(roles[i]);
      summary.needed_by = roles[i].role;
    }
    const Peak& peak = roles[i].peak;
    summary.roles.push_back({roles[i].role, roles[i].ranks, peak.allocated, roles[i].reserved,
                             PhaseLabel(peak.phase, peak.microbatch, peak.step, peak.side)});
  }
  summary.role = std::move(roles[chosen]);
  summary.origin = summary.trace().origin;
  summary.title = summary.trace().title;
  summary.job_yaml = summary.trace().job_yaml;
  const Trace& trace = summary.trace();
  summary.device_memory = trace.device_memory;
  summary.usable_memory = trace.usable_memory > Bytes(0) ? trace.usable_memory : trace.device_memory;
  summary.lints = summary.trace().lints;
  return summary;
}

/// What a tensor belongs to: "w" of "gradient of w" and of "layer.w".
std::string_view OwnerOf(std::string_view name) {
  constexpr std::string_view kOf = " of ";
  if (const std::size_t of = name.rfind(kOf); of != std::string_view::npos) {
    return name.substr(of + kOf.size());
  }
  return name.substr(name.rfind('.') + 1);
}

/// Systems name the same thing differently ("accumulated gradient of w", "main gradient of w"): a family that is only
/// at the first peak and one that is only at the second are one where category, bytes and what they belong to agree.
void PairRenamed(std::vector<TensorDifference>& tensors) {
  std::map<std::tuple<Category, Bytes, std::string_view>, std::deque<TensorDifference*>> came;
  for (TensorDifference& come : tensors) {
    if (come.before == Bytes(0)) {
      came[{come.category, come.after, OwnerOf(come.name)}].push_back(&come);
    }
  }
  for (TensorDifference& gone : tensors) {
    if (gone.after != Bytes(0) || gone.before == Bytes(0)) {
      continue;
    }
    const auto found = came.find({gone.category, gone.before, OwnerOf(gone.name)});
    if (found != came.end() && !found->second.empty()) {
      TensorDifference& best = *found->second.front();
      found->second.pop_front();
      gone.name_after = best.name;
      std::swap(gone.after, best.after);
    }
  }
  std::erase_if(tensors,
                [](const TensorDifference& tensor) { return tensor.before == Bytes(0) && tensor.after == Bytes(0); });
}

}  // namespace

std::optional<bool> TraceSummary::Fits() const {
  if (RanOut()) {
    return false;
  }
  if (device_memory <= Bytes(0)) {
    return std::nullopt;
  }
  const bool fits = tidemark::Fits({Bytes(0), Bytes(0), needed}, usable_memory);
  return fits && !note.empty() ? std::nullopt : std::optional(fits);
}

std::size_t TraceReport::Highest() const {
  std::size_t highest = 0;
  for (std::size_t i = 1; i < traces.size(); ++i) {
    if (traces[i].role.peak.allocated > traces[highest].role.peak.allocated) {
      highest = i;
    }
  }
  return highest;
}

PeakDifference ComparePeaks(const Peak& before, const Peak& after) {
  std::map<std::pair<std::string, Category>, TensorDifference> families;
  const auto add = [&](const Peak& peak, Bytes TensorDifference::*bytes) {
    for (const LiveBuffers& live : peak.live) {
      const std::string name = FamilyOf(live.name);
      TensorDifference& family = families[{name, live.category}];
      family.name = name;
      family.category = live.category;
      family.*bytes += live.bytes;
    }
  };
  add(before, &TensorDifference::before);
  add(after, &TensorDifference::after);
  PeakDifference difference;
  difference.before = before.allocated;
  difference.after = after.allocated;
  for (auto& [key, family] : families) {
    difference.tensors.push_back(std::move(family));
  }
  PairRenamed(difference.tensors);
  std::stable_sort(difference.tensors.begin(), difference.tensors.end(), [](const auto& a, const auto& b) {
    const auto key = [](const TensorDifference& tensor) {
      return std::pair(std::abs(tensor.difference().count()), tensor.before.count());
    };
    return key(a) > key(b);
  });
  return difference;
}

std::vector<std::string> TraceLabels(const std::vector<ReadTrace>& files) {
  std::vector<std::string> labels;
  for (const ReadTrace& file : files) {
    labels.push_back(std::filesystem::path(file.path).stem().string());
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (labels[i].empty() || std::count(labels.begin(), labels.end(), labels[i]) > 1) {
      labels.clear();
      break;
    }
  }
  for (std::size_t i = labels.size(); i < files.size(); ++i) {
    const std::string& path = files[i].path;
    const auto same = std::count_if(files.begin(), files.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const ReadTrace& file) { return file.path == path; });
    labels.push_back(same == 0 ? path : path + " (" + std::to_string(same + 1) + ")");
  }
  std::ranges::transform(labels, labels.begin(), Utf8);
  return labels;
}

TraceReport MakeTraceReport(std::vector<ReadTrace> files, const std::string& role) {
  TIDEMARK_CHECK(!files.empty());
  TraceReport report;
  const std::vector<std::string> labels = TraceLabels(files);
  std::string wanted = role;
  for (std::size_t i = 0; i < files.size(); ++i) {
    report.traces.push_back(Summarise(std::move(files[i]), labels[i], wanted));
    if (wanted.empty()) {
      wanted = report.traces.front().role.role;
    }
  }
  for (std::size_t i = 1; i < report.traces.size(); ++i) {
    PeakDifference difference = ComparePeaks(report.traces[0].role.peak, report.traces[i].role.peak);
    difference.other = i;
    report.differences.push_back(std::move(difference));
  }
  std::vector<std::string> jobs;
  for (const TraceSummary& trace : report.traces) {
    jobs.push_back(trace.job_yaml);
  }
  report.jobs = CompareJobs(jobs);
  return report;
}

}  // namespace tidemark
