// SPDX-License-Identifier: Apache-2.0
//
// Chrome's JSON, as PyTorch's profiler writes it (traces/formats/chrome_log.h says what of it is read).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "traces/formats/annotations.h"
#include "traces/formats/chrome_log.h"
#include "traces/formats/chrome_text.h"
#include "traces/formats/device_recording.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostTraces = 512;  ///< one for each process on each device

// c10::DeviceType, https://github.com/pytorch/pytorch/blob/main/c10/core/DeviceType.h
constexpr std::int64_t kProcessor = 0;

std::string RoleOf(const ChromeDevice& device) {
  switch (device.type) {
    case kProcessor:
      return "cpu";
    case 1:
      return fmt::format("cuda:{}", device.id);
    case 12:
      return fmt::format("xpu:{}", device.id);
    default:
      return fmt::format("device type {}:{}", device.type, device.id);
  }
}

/// A process on a device has addresses of its own. Process 0: of a device on which no process allocates.
struct ChromeOwner {
  ChromeDevice device;
  std::uint32_t process = 0;
  friend auto operator<=>(const ChromeOwner&, const ChromeOwner&) = default;
};

/// What of the log is of one process on one device.
struct DeviceLog {
  std::vector<ChromeBlock> blocks, out_of_memory;
  std::vector<RecordedSlice> slices;
};

Annotation AnnotationOf(const ChromeAnnotation& from, const StringPool& names) {
  Annotation annotation{names[from.slice.name], from.slice.begin, from.slice.end};
  if (from.phase != 0) {
    annotation.told = true;
    annotation.span.phase = names[from.phase];
    annotation.span.side = names[from.side];
    annotation.span.microbatch = std::max<std::int64_t>(from.microbatch, -1);
  }
  return annotation;
}

/// The sites of a device by who allocates and, within a phase, in which annotation.
class SiteTable {
 public:
  SiteTable(const StringPool& names, std::vector<AllocationSite>& sites) : names_(names), sites_(sites) {}

  std::uint32_t At(const ChromeBlock& block, const AnnotationText* inside) {
    const bool told = block.tensor != 0;
    const std::string_view where = told || inside == nullptr ? std::string_view() : std::string_view(inside->name);
    const std::uint32_t name = told ? block.tensor : block.site;
    const auto [found, is_new] =
        ids_.try_emplace({where, told, name, block.category, block.dtype}, static_cast<std::uint32_t>(sites_.size()));
    if (is_new) {
      const std::string who = name == 0 ? "outside of operators" : names_[name];
      sites_.push_back({where.empty() ? who : fmt::format("{}.{}", where, who), block.category, block.dtype});
    }
    return found->second;
  }

 private:
  const StringPool& names_;
  std::vector<AllocationSite>& sites_;
  std::map<std::tuple<std::string_view, bool, std::uint32_t, Category, DType>, std::uint32_t> ids_;
};

/// The traces of a log, one for each device.
class ChromeReader {
 public:
  explicit ChromeReader(ChromeLog log) : log_(std::move(log)) {}

  Result<TraceFile> Read() {
    FindBegin();
    FindSites(log_);
    TIDEMARK_TRY(Divide());
    TraceFile file;
    for (auto& [owner, parts] : devices_) {
      TIDEMARK_ASSIGN(Trace trace, TraceOfDevice(owner, parts));
      file.traces.push_back(std::move(trace));
    }
    file.note = Note();
    return file;
  }

 private:
  void FindBegin() {
    std::optional<Nanos> first;
    if (IsOurs()) {  // its times are a trace's already
      first = Nanos();
    }
    const auto hear = [&](Nanos at) { first = first ? std::min(*first, at) : at; };
    for (const auto* blocks : {&log_.blocks, &log_.out_of_memory}) {
      std::for_each(blocks->begin(), blocks->end(), [&](const ChromeBlock& block) { hear(block.at); });
    }
    for (const auto* slices : {&log_.operators, &log_.device_slices}) {
      std::for_each(slices->begin(), slices->end(), [&](const ChromeSlice& slice) { hear(slice.begin); });
    }
    for (const ChromeAnnotation& annotation : log_.annotations) {
      hear(annotation.slice.begin);
    }
    begin_ = first.value_or(Nanos());
  }

  Status Divide() {
    for (const ChromeBlock& block : log_.blocks) {
      devices_[{block.device, block.process}].blocks.push_back(block);
      processes_[block.device].insert(block.process);
    }
    for (const ChromeBlock& block : log_.out_of_memory) {
      devices_[{block.device, block.process}].out_of_memory.push_back(block);
      processes_[block.device].insert(block.process);
    }
    for (const ChromeSlice& slice : log_.device_slices) {
      const ChromeDevice device{1, slice.device};
      const auto processes = processes_.find(device);
      if (processes != processes_.end() && processes->second.size() > 1) {
        ++of_nobody_;
        continue;
      }
      const std::uint32_t process = processes == processes_.end() ? 0 : *processes->second.begin();
      devices_[{device, process}].slices.push_back(
          {slice.begin, slice.end, slice.name, slice.thread, slice.is_copy, IssuedAt(slice)});
    }
    if (devices_.empty()) {
      return BadInput(fmt::format("memory events or work of a device were expected, but there is neither{}",
                                  log_.cut_off ? " before the file is cut off" : ""),
                      "record with torch.profiler.profile(..., profile_memory=True)");
    }
    if (devices_.size() > kMostTraces) {
      return BadInput(fmt::format("at most {} devices and processes on them were expected, but there are {}",
                                  kMostTraces, devices_.size()),
                      "merge the traces of fewer ranks");
    }
    return Done{};
  }

  std::optional<Nanos> IssuedAt(const ChromeSlice& slice) const {
    const auto found = log_.issued.find(slice.correlation);
    return found == log_.issued.end() ? std::nullopt : std::optional(found->second);
  }

  /// The annotations of the process; of all where it does not annotate, but not in a file of ours: there a trace has
  /// all of its own.
  const Timeline& TimelineOf(std::uint32_t process) {
    std::map<std::uint32_t, std::vector<Annotation>> annotations;
    if (timelines_.empty()) {
      for (const ChromeAnnotation& annotation : log_.annotations) {
        annotations[annotation.slice.process].push_back(AnnotationOf(annotation, log_.names));
      }
    }
    for (auto& [of, own] : annotations) {
      timelines_.emplace(of, std::move(own));
    }
    if (IsOurs()) {
      return timelines_.try_emplace(process, std::vector<Annotation>()).first->second;
    }
    const auto own = timelines_.find(process);
    return own == timelines_.end() ? TimelineOfAll() : own->second;
  }

  const Timeline& TimelineOfAll() {
    if (!of_all_) {
      std::vector<Annotation> all;
      for (const ChromeAnnotation& annotation : log_.annotations) {
        all.push_back(AnnotationOf(annotation, log_.names));
      }
      of_all_.emplace(std::move(all));
    }
    return *of_all_;
  }

  Result<Trace> TraceOfDevice(const ChromeOwner& owner, DeviceLog& parts) {
    const Timeline& timeline = TimelineOf(owner.process);
    left_out_ += timeline.left_out();
    DeviceRecording recording;
    recording.role = RoleOf(owner.device);
    if (const auto all = processes_.find(owner.device); all != processes_.end() && all->second.size() > 1) {
      recording.role += fmt::format(" of {}", log_.names[owner.process]);
    }
    recording.origin = IsOurs() ? log_.origin : "torch profiler";
    recording.is_whole = IsOurs();
    recording.counts_own = owner.device.type == kProcessor;
    Identify(owner.process, recording);
    recording.clock = parts.slices.empty() ? "" : "cupti";
    AddBlocks(parts.blocks, timeline, recording);
    for (const ChromeBlock& instant : parts.out_of_memory) {
      recording.instants.push_back({kOutOfMemory, instant.at});
    }
    for (const auto& [thread, name] : log_.thread_names) {
      recording.streams.emplace_back(thread, log_.names[name]);
    }
    recording.slices = std::move(parts.slices);
    return TraceOf(std::move(recording), timeline, log_.names, begin_);
  }

  /// Written by Tidemark.
  bool IsOurs() const { return !log_.origin.empty(); }

  /// In a file of ours: what the process is called and where it comes from.
  void Identify(std::uint32_t process, DeviceRecording& recording) const {
    const auto found = log_.processes.find(process);
    if (IsOurs() && found != log_.processes.end()) {
      recording.role = log_.names[found->second.name];
      recording.origin = found->second.origin == 0 ? log_.origin : std::string(log_.names[found->second.origin]);
    }
  }

  void AddBlocks(std::vector<ChromeBlock>& blocks, const Timeline& timeline, DeviceRecording& recording) const {
    std::stable_sort(blocks.begin(), blocks.end(), [](const ChromeBlock& a, const ChromeBlock& b) {
      return std::tuple(a.at, a.order) < std::tuple(b.at, b.order);
    });
    Timeline::Cursor cursor(timeline);
    SiteTable sites(log_.names, recording.sites);
    for (const ChromeBlock& block : blocks) {
      const Timeline::Place place = cursor.At(block.at);
      const std::int64_t index =
          block.tensor != 0 || place.inside == nullptr ? 0 : std::max<std::int64_t>(place.inside->number, 0);
      recording.blocks.push_back({block.at, block.address, block.n_bytes > 0, std::abs(block.n_bytes),
                                  block.allocator_bytes, block.reserved_bytes, sites.At(block, place.inside),
                                  static_cast<std::int32_t>(index), place.span});
    }
  }

  /// One sentence about what is missing.
  std::string Note() const {
    std::vector<std::string> notes;
    if (log_.cut_off) {
      notes.push_back(fmt::format("the file was cut off after {} events", Number(log_.events)));
    }
    if (log_.unreadable > 0) {
      notes.push_back(
          fmt::format("{} events lack a time, an address or a size that can be read", Number(log_.unreadable)));
    }
    if (left_out_ > 0) {
      notes.push_back(fmt::format("{} phases are left out, which are too many or too deep", Number(left_out_)));
    }
    if (of_nobody_ > 0) {
      notes.push_back(
          fmt::format("{} slices are left out: several processes share the device, and which of them they are "
                      "of is not told",
                      Number(of_nobody_)));
    }
    if (log_.blocks.empty()) {
      notes.emplace_back("it was recorded without profile_memory=True, and has no memory events");
    }
    return fmt::format("{}", fmt::join(notes, "; "));
  }

  static std::string Number(std::uint64_t number) { return Grouped(static_cast<std::int64_t>(number)); }

  ChromeLog log_;
  Nanos begin_;
  std::map<ChromeOwner, DeviceLog> devices_;
  std::map<ChromeDevice, std::set<std::uint32_t>> processes_;  ///< that allocate there
  std::map<std::uint32_t, Timeline> timelines_;                ///< by process; made when the first is asked for
  std::optional<Timeline> of_all_;
  std::uint64_t left_out_ = 0, of_nobody_ = 0;
};

class ChromeFormat : public TraceFormat {
 public:
  std::string_view name() const override { return "chrome"; }
  std::string_view summary() const override { return "Chrome JSON, as PyTorch's profiler writes it (profile_memory)"; }
  bool reads() const override { return true; }
  bool writes() const override { return true; }
  std::vector<std::string_view> endings() const override { return {".json"}; }
  bool text() const override { return true; }

  /// An object with keys that such files begin with (the list of events may come later), or a list of events.
  bool Sniff(std::string_view head) const override {
    const std::size_t begin = head.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) {
      return false;
    }
    const auto has = [&](std::string_view key) { return head.find(key) != std::string_view::npos; };
    return head[begin] == '{'   ? has("\"traceEvents\"") || has("\"schemaVersion\"") || has("\"deviceProperties\"")
           : head[begin] == '[' ? has("\"ph\"")
                                : false;
  }

  Result<TraceFile> Read(std::string_view bytes) const override {
    TIDEMARK_ASSIGN(ChromeLog log, ReadChromeLog(bytes));
    return ChromeReader(std::move(log)).Read();
  }

  Result<std::string> Write(std::span<const Trace> traces) const override { return ChromeText(traces); }

  std::vector<std::string> Loses(const Trace& trace) const override {
    const bool has_streams = std::ranges::any_of(trace.memory, [&](const MemoryEvent& event) {
      return event.stream != trace.memory.front().stream || event.ready != event.issue;
    });
    std::vector<std::string> lost;
    if (has_streams) {
      lost.emplace_back(
          "the streams of allocations and what their frees wait for, so that replay places them otherwise");
    }
    if (!trace.missing.empty()) {
      lost.emplace_back("that it is cut short");
    }
    return lost;
  }
};

}  // namespace

std::unique_ptr<TraceFormat> FormatChrome() { return std::make_unique<ChromeFormat>(); }

}  // namespace tidemark
