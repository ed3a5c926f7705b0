// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/chosen_trace.h"
#include "cli/command.h"
#include "cli/load_trace.h"
#include "cli/options.h"
#include "cli/shell_word.h"
#include "cli/trace_name.h"
#include "cli/write_file.h"
#include "models/job/fields.h"
#include "models/job/read.h"
#include "models/job/read_allocator.h"
#include "reports/render/render.h"
#include "reports/summarise/peak.h"
#include "sim/memory/trace_replay.h"
#include "sim/strategies/strategy.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

/// What a trace tells of its allocator.
struct OwnAllocator {
  AllocatorOptions options;
  bool told = false;
};

constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());

/// What people set, each by itself, and the other allocators that there are.
const std::vector<std::vector<std::string>>& UsualSettings() {
  static const std::vector<std::vector<std::string>> settings = {
      {"kind=torch-caching"},
      {"kind=torch-caching", "expandable_segments=true"},
      {"kind=torch-caching", "max_split_size=128 MiB"},
      {"kind=torch-caching", "max_split_size=512 MiB"},
      {"kind=torch-caching", "roundup_power2_divisions=4"},
      {"kind=torch-caching", "large_segment_size=64 MiB"},
      {"kind=cuda-async"},
      {"kind=arena"},
      {"kind=exact"},
  };
  return settings;
}

class ReplayCommand : public Command {
 public:
  std::string_view name() const override { return "replay"; }
  std::string_view summary() const override { return "The allocations of a trace under another allocator"; }
  std::string_view examples() const override {
    return "  tidemark replay step.trace                                     under its own allocator, and what others "
           "would do\n"
           "  tidemark replay step.trace --set expandable_segments=true      under PyTorch's with this knob of "
           "PYTORCH_CUDA_ALLOC_CONF\n"
           "  tidemark replay step.trace --set max_split_size=128MiB --capacity 40GiB    on a device of 40 GiB: "
           "flushes, or out of memory\n"
           "  tidemark replay step.trace --allocator cuda-async --trace other.trace      writes the trace as it would "
           "have been\n"
           "\n"
           "A trace of any readable format will do that tells allocations and frees (tidemark list formats). Sizes, "
           "order and\n"
           "streams are the trace's; addresses, rounding, caching and what is reserved are the allocator's.\n";
  }

  void Setup(CLI::App& app) override {
    std::vector<std::string> kinds;
    for (const auto& [kind, summary] : AllocatorSummaries()) {
      kinds.push_back(kind);
    }
    app.add_option("TRACE", path_, "a trace file")->required();
    app.add_option("--allocator", kind_,
                   "its kind, without knobs but those of --set; default: the trace's own with its knobs, or PyTorch's "
                   "where it tells none")
        ->type_name("KIND")
        ->check(CLI::IsMember(kinds));
    app.add_option("--set", set_, "a knob of the allocator, as a job's `allocator` has it (any number of times)")
        ->type_name("KNOB=VALUE")
        ->expected(1)
        ->take_all();
    app.add_option("--capacity", capacity_, "what the device has: 80GiB; default: no limit")->type_name("SIZE");
    app.add_option("--role", role_, "the role to replay; default: the one that peaks highest")->type_name("NAME");
    app.add_option("--trace", trace_path_, "write the replayed trace to this file; - is stdout, without the report")
        ->type_name("FILE");
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(CheckOptions());
    TIDEMARK_ASSIGN(const ReadTrace file, LoadTrace(path_));
    TIDEMARK_ASSIGN(const std::size_t chosen, ChooseTrace(file, role_));
    const Trace& trace = file.file.traces[chosen];
    if (!file.file.note.empty()) {
      fmt::print(stderr, "note: {}: {}\n", path_, file.file.note);
    }
    if (trace.memory.empty()) {
      return Result<int>(BadInput("the trace tells no allocations",
                                  "record it with memory: profile_memory=True, or a "
                                  "memory snapshot"))
          .At(path_);
    }
    const auto [own, tells_setting] = AllocatorOf(trace);
    std::vector<std::string> settings = set_;
    const bool sets_kind = std::ranges::any_of(
        set_, [](const std::string& set) { return set.starts_with("kind=") || set.starts_with("allocator.kind="); });
    if (!kind_.empty() && sets_kind) {
      return BadInput("--allocator and --set kind=KIND name one allocator each", "leave one of them out");
    }
    if (!kind_.empty()) {
      settings.insert(settings.begin(), "kind=" + kind_);
    }
    const bool anew = sets_kind || !kind_.empty();  // a kind that is named has the knobs that are named, and no other
    TIDEMARK_ASSIGN(const AllocatorOptions asked, ReadAllocator(anew ? AllocatorOptions() : own, settings));
    ReplayReport report = Describe(file, trace);
    TraceReplay replay = ReplayTrace(trace, asked, capacity());
    report.replayed = SettingOf(asked, replay);
    report.replayed.own = asked == own;
    report.tells_setting = tells_setting;
    DescribePeak(trace, replay, report);
    if (settings.empty()) {
      TIDEMARK_TRY(ReplayOthers(trace, asked, report));
    } else if (asked != own) {
      report.others.push_back(SettingOf(own, ReplayTrace(trace, own, capacity())));
      report.others.back().own = true;
    }
    if (!trace_path_.empty()) {
      TIDEMARK_TRY(Write(std::move(replay.trace), asked));
    }
    if (trace_path_ != "-") {
      TIDEMARK_TRY(WriteOut(RenderAs(RendererOf(format_), report, {WantsColour()})));
    }
    return report.replayed.refused && !exit_zero_ ? static_cast<int>(ErrorCode::finding) : 0;
  }

 private:
  Bytes capacity() const { return limit_.value_or(kUnlimited); }

  Status CheckOptions() {
    if (!capacity_.empty()) {
      TIDEMARK_ASSIGN(limit_, ParseBytes(capacity_).At("--capacity"));
      if (*limit_ < Bytes(1 << 20)) {
        return BadInput(fmt::format("--capacity: {} is no device", Text(*limit_)),
                        "expected at least 1 MiB: write the unit as well, for example 80GiB");
      }
    }
    TIDEMARK_TRY(CheckTraceName(trace_path_));
    return RefuseToOverwrite(trace_path_, path_);
  }

  /// As the trace tells it, or its job; PyTorch's without knobs where nothing does. A setting that this allocator does
  /// not take is left out, with a note.
  OwnAllocator AllocatorOf(const Trace& trace) const {
    OwnAllocator own;
    const auto leave_out = [&](std::string_view what, const Error& error) {
      fmt::print(stderr, "note: {}: {} is left out: {}\n", path_, what, error.message);
    };
    if (trace.allocator.empty() && !trace.job_yaml.empty()) {
      const Result<AllocatorOptions> told = AllocatorOfJobYaml(trace.job_yaml);
      own.told = told.ok();
      own.options = told ? *told : own.options;
      if (!told) {
        leave_out("the allocator of its job", told.error());
      }
    }
    for (const std::string& setting : trace.allocator) {
      const Result<AllocatorOptions> with = ReadAllocator(own.options, {&setting, 1});
      own.told = own.told || with.ok();
      own.options = with ? *with : own.options;
      if (!with) {
        leave_out(fmt::format("its allocator's {}", setting), with.error());
      }
    }
    return own;
  }

  ReplayReport Describe(const ReadTrace& file, const Trace& trace) const {
    ReplayReport report;
    report.title = fmt::format("{}, {}: {} memory events", path_, trace.role,
                               Grouped(static_cast<std::int64_t>(trace.memory.size())));
    report.path = path_;
    report.origin = trace.origin.empty() ? file.file.format : trace.origin;
    report.role = trace.role;
    report.events = trace.memory.size();
    report.tensors_peak = SummarisePeak(trace).allocated;
    report.capacity = limit_;
    Bytes allocator, reserved;
    for (const MemoryEvent& event : trace.memory) {
      allocator = std::max(allocator, event.allocator_bytes);
      reserved = std::max(reserved, event.reserved_bytes);
    }
    if (reserved > Bytes(0)) {
      report.recorded_allocator_peak = allocator;
      report.recorded_reserved_peak = reserved;
    }
    return report;
  }

  void DescribePeak(const Trace& trace, const TraceReplay& replay, ReplayReport& report) const {
    if (replay.trace.memory.empty()) {
      return;
    }
    const std::size_t at = replay.refused.value_or(replay.at);
    report.at = PlaceOf(trace, at);
    report.at_ns = trace.memory[at].issue;
    const InstantNames names(trace);
    for (const PinnedSegment& segment : replay.pinned) {
      report.pinned.push_back(DescribeSegment(trace, names, segment.bytes, segment.free, segment.holders));
    }
    report.timeline = SummariseReplay(replay.trace);
  }

  ReplayedSetting SettingOf(const AllocatorOptions& options, const TraceReplay& replay) const {
    ReplayedSetting setting;
    setting.allocator = AllocatorText(options);
    setting.allocator_peak = replay.allocator_peak;
    setting.reserved_peak = replay.reserved_peak;
    setting.reserved = replay.reserved;
    setting.unused = replay.reserved - replay.allocated;
    setting.releasable = replay.releasable;
    setting.cache_flushes = replay.cache_flushes;
    if (replay.refused) {
      setting.refused = replay.refused_bytes;
    }
    setting.command = CommandOf(options);
    return setting;
  }

  std::string CommandOf(const AllocatorOptions& options) const {
    std::string command = "tidemark replay " + ShellWord(path_);
    for (const std::string& setting : AllocatorSettings(options)) {
      command += " --set " + ShellWord(setting);
    }
    return command + (capacity_.empty() ? "" : " --capacity " + ShellWord(capacity_)) +
           (role_.empty() ? "" : " --role " + ShellWord(role_));
  }

  Status ReplayOthers(const Trace& trace, const AllocatorOptions& asked, ReplayReport& report) const {
    for (const std::vector<std::string>& settings : UsualSettings()) {
      TIDEMARK_ASSIGN(const AllocatorOptions options, ReadAllocator({}, settings));
      if (options != asked) {
        report.others.push_back(SettingOf(options, ReplayTrace(trace, options, capacity())));
      }
    }
    std::ranges::stable_sort(report.others, {}, [](const ReplayedSetting& setting) {
      return std::pair(setting.refused.has_value(), setting.reserved_peak);
    });
    return Done{};
  }

  /// The job with the allocator that was replayed: the trace's own setting from now on. Empty where it cannot be told.
  static std::string JobWith(const std::string& job_yaml, const AllocatorOptions& options) {
    Result<Job> job = job_yaml.empty() ? Result<Job>(BadInput("the trace has no job"))
                                       : ParseJob(job_yaml, "the trace", {}, KnownStrategies());
    if (!job) {
      return "";
    }
    job->allocator = options;
    return JobYaml(*job);
  }

  Status Write(Trace replayed, const AllocatorOptions& options) const {
    replayed.job_yaml = JobWith(replayed.job_yaml, options);
    replayed.allocator = AllocatorSettings(options);
    replayed.origin = fmt::format("{}, replayed with {}", replayed.origin.empty() ? "a trace" : replayed.origin,
                                  AllocatorText(options));
    TIDEMARK_ASSIGN(const auto format, FindTraceFormat("tidemark"));
    TIDEMARK_ASSIGN(const std::string bytes, format->Write({&replayed, 1}));
    return WriteFile(trace_path_, bytes);
  }

  std::string path_, kind_, capacity_, role_, trace_path_;
  std::vector<std::string> set_;
  std::optional<Bytes> limit_;
  OutputFormat format_ = OutputFormat::text;
  bool exit_zero_ = false;
};

}  // namespace

std::unique_ptr<Command> CmdReplay() { return std::make_unique<ReplayCommand>(); }

}  // namespace tidemark
