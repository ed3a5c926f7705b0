// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/load_trace.h"
#include "cli/trace_name.h"
#include "cli/write_file.h"
#include "reports/summarise/trace_report.h"
#include "traces/formats/format.h"
#include "traces/formats/trace_archive.h"
#include "traces/utf8.h"

namespace tidemark {
namespace {

constexpr std::uintmax_t kLongRead = std::uintmax_t{256} << 20;  ///< bytes that take about a second
constexpr std::int64_t kLongWrite = 2'000'000;                   ///< events that take about a second

struct Target {
  std::unique_ptr<TraceFormat> format;
  bool archive = false;  ///< a ZIP with a file for each trace
};

std::vector<std::string> NamesOf(const std::vector<std::unique_ptr<TraceFormat>>& formats) {
  std::vector<std::string> names;
  for (const auto& format : formats) {
    names.emplace_back(format->name());
  }
  return names;
}

/// The one format whose files end like this.
Result<std::unique_ptr<TraceFormat>> FormatOfEnding(const std::string& path) {
  std::vector<std::unique_ptr<TraceFormat>> fitting = FormatsOfEnding(path);
  if (fitting.size() == 1) {
    return std::move(fitting.front());
  }
  if (fitting.empty()) {
    return BadInput(fmt::format("-o {}: the ending tells no trace format; expected --to", path),
                    fmt::format("add --to with one of {}", fmt::join(NamesOf(WrittenFormats()), ", ")));
  }
  return BadInput(fmt::format("-o {}: several formats have files that end in {}; expected --to", path, EndingOf(path)),
                  fmt::format("add --to with one of {}", fmt::join(NamesOf(fitting), ", ")));
}

Result<std::unique_ptr<TraceFormat>> FormatOfName(const std::string& name) {
  Result<std::unique_ptr<TraceFormat>> format = FindTraceFormat(name);
  if (!format) {
    Error error = format.error();
    error.hint = error.hint.empty() ? "tidemark list formats tells them all" : error.hint;
    return Result<std::unique_ptr<TraceFormat>>(std::move(error)).At("--to");
  }
  if (!(*format)->writes()) {
    return BadInput(
        fmt::format("--to: {} is only read; expected one of {}", name, fmt::join(NamesOf(WrittenFormats()), ", ")));
  }
  return format;
}

class ConvertCommand : public Command {
 public:
  std::string_view name() const override { return "convert"; }
  std::string_view summary() const override { return "Traces from one format to another, for the tools that open it"; }
  std::string_view examples() const override {
    return "  tidemark convert step.trace -o step.pftrace             for https://ui.perfetto.dev\n"
           "  tidemark convert predicted.trace measured.trace -o both.pftrace\n"
           "                                                          one time line, a process for each rank of each\n"
           "  tidemark convert predicted.trace measured.trace -o both.zip\n"
           "                                                          a file for each and a manifest, in a ZIP\n"
           "  tidemark convert step.trace -o step.csv                 a line for each memory event\n"
           "  tidemark convert step.trace --to jsonl -o - | head      to stdout\n"
           "  tidemark predict job.yaml --trace step.trace            writes such a trace\n";
  }

  void Setup(CLI::App& app) override {
    app.add_option("TRACE", paths_, "trace files of any readable format (tidemark list formats)")->required();
    app.add_option("--to", to_, "the format to write; default: the one whose files end like FILE")->type_name("FORMAT");
    app.add_option("-o,--output", output_, "the file to write; - is stdout")->required()->type_name("FILE");
    app.add_option("--role", role_, "only the traces of this role; default: all")->type_name("NAME");
  }

  Result<int> Run() override {
    TIDEMARK_ASSIGN(const Target target, ChooseTarget());
    for (const std::string& path : paths_) {
      TIDEMARK_TRY(RefuseToOverwrite(output_, path));
    }
    TIDEMARK_TRY(CheckWritable(output_));
    TIDEMARK_ASSIGN(const std::vector<Trace> traces, Load());
    const std::int64_t events = CountEvents(traces);
    if (events > kLongWrite) {
      fmt::print(stderr, "writing {} events\n", Grouped(events));
    }
    TIDEMARK_ASSIGN(const std::string bytes,
                    target.archive ? WriteArchive(*target.format, traces) : target.format->Write(traces));
    TIDEMARK_TRY(WriteFile(output_, bytes));
    std::set<std::string> lost;
    for (const Trace& trace : traces) {
      for (std::string& clause : target.format->Loses(trace)) {
        lost.insert(std::move(clause));
      }
    }
    if (!lost.empty()) {
      fmt::print(stderr, "note: {} does not tell {}\n", target.format->name(), fmt::join(lost, ", nor "));
    }
    fmt::print(stderr, "{}: {} bytes from {} events of {} {}\n", output_ == "-" ? "stdout" : output_,
               Grouped(static_cast<std::int64_t>(bytes.size())), Grouped(events), traces.size(),
               traces.size() == 1 ? "trace" : "traces");
    return 0;
  }

 private:
  Result<Target> ChooseTarget() const {
    Target target;
    TIDEMARK_ASSIGN(target.format, to_.empty() ? FormatOfEnding(output_) : FormatOfName(to_));
    target.archive = EndingOf(output_) == kArchiveEnding;
    if (target.archive && !target.format->archives()) {
      return BadInput(fmt::format("-o {}: {} has no archives of several files", output_, target.format->name()),
                      "let the name end otherwise");
    }
    if (output_ == "-" && !target.format->text() && isatty(STDOUT_FILENO) == 1) {
      return BadInput(fmt::format("-o -: {} is binary, and stdout is a terminal", target.format->name()),
                      "name a file, or send stdout to one");
    }
    return target;
  }

  /// The traces of all files; those of several files carry in their role which file they are from.
  Result<std::vector<Trace>> Load() const {
    std::vector<ReadTrace> files;
    for (const std::string& path : paths_) {
      std::error_code none;
      const std::uintmax_t size = std::filesystem::file_size(path, none);
      if (!none && size > kLongRead) {
        fmt::print(stderr, "reading {}: {}\n", path, Text(Bytes(static_cast<std::int64_t>(size))));
      }
      TIDEMARK_ASSIGN(ReadTrace file, LoadTrace(path));
      if (!file.file.note.empty()) {
        fmt::print(stderr, "note: {}: {}\n", path, file.file.note);
      }
      files.push_back(std::move(file));
    }
    TIDEMARK_TRY(CheckRole(role_, files));
    const std::vector<std::string> labels = TraceLabels(files);
    std::vector<Trace> traces;
    for (std::size_t i = 0; i < files.size(); ++i) {
      for (Trace& trace : files[i].file.traces) {
        if (!role_.empty() && trace.role != role_) {
          continue;
        }
        if (files.size() > 1) {
          trace.role = trace.role.empty() ? labels[i] : fmt::format("{}: {}", labels[i], trace.role);
        }
        trace.missing = files[i].file.note;
        MakeUtf8(trace);
        traces.push_back(std::move(trace));
      }
    }
    return traces;
  }

  static std::int64_t CountEvents(const std::vector<Trace>& traces) {
    std::size_t events = 0;
    for (const Trace& trace : traces) {
      events += trace.memory.size() + trace.slices.size();
    }
    return static_cast<std::int64_t>(events);
  }

  std::vector<std::string> paths_;
  std::string to_, output_, role_;
};

}  // namespace

std::unique_ptr<Command> CmdConvert() { return std::make_unique<ConvertCommand>(); }

}  // namespace tidemark
