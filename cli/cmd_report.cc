// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/load_trace.h"
#include "cli/options.h"
#include "cli/write_file.h"
#include "reports/render/render.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostTraces = 8;  ///< more pictures beside each other than anybody can compare

/// The renderer for a file by its ending; empty where the ending says nothing.
std::string_view RendererOfFile(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  return ending == ".html" || ending == ".htm"      ? "html"
         : ending == ".md" || ending == ".markdown" ? "markdown"
         : ending == ".json"                        ? "json"
         : ending == ".txt"                         ? "terminal"
                                                    : "";
}

class ReportCommand : public Command {
 public:
  std::string_view name() const override { return "report"; }
  std::string_view summary() const override { return "Pictures and tables of traces, several side by side"; }
  std::string_view examples() const override {
    return "  tidemark report step.trace                              its peak, and what is alive there\n"
           "  tidemark report before.trace after.trace                which peaks higher, and which tensors make the "
           "difference\n"
           "  tidemark report before.trace after.trace -o both.html   the same with pictures on one scale, for a "
           "browser\n"
           "  tidemark predict job.yaml --trace step.trace            writes such a trace\n";
  }

  void Setup(CLI::App& app) override {
    app.add_option("TRACE", paths_, "trace files; differences are those of the others to the first")->required();
    app.add_option("-o,--output", output_, "write a page (.html), Markdown (.md), JSON (.json) or text (.txt)")
        ->type_name("FILE");
    app.add_option("--role", role_, "the role to show; default: the one in which the first trace peaks highest")
        ->type_name("NAME");
    AddFormatOption(app, format_);
    format_option_ = app.get_option("--format");
  }

  Result<int> Run() override {
    TIDEMARK_ASSIGN(const std::string_view renderer, ChooseRenderer());
    if (paths_.size() > kMostTraces) {
      return BadInput(
          fmt::format("{} traces are more than the {} that one report lays side by side", paths_.size(), kMostTraces),
          "write several reports, each with the trace that the others are compared with as its first");
    }
    std::vector<ReadTrace> files;
    for (const std::string& path : paths_) {
      TIDEMARK_ASSIGN(ReadTrace file, LoadTrace(path));
      files.push_back(std::move(file));
    }
    TIDEMARK_TRY(CheckRole(role_, files));
    const TraceReport report = MakeTraceReport(std::move(files), role_);
    if (ToFile()) {
      TIDEMARK_TRY(WriteFile(output_, RenderAs(renderer, report)));
    } else {
      TIDEMARK_TRY(WriteOut(RenderAs(renderer, report, {WantsColour()})));
    }
    return 0;
  }

 private:
  bool ToFile() const { return !output_.empty() && output_ != "-"; }

  Result<std::string_view> ChooseRenderer() const {
    if (!ToFile()) {
      return RendererOf(format_);
    }
    const std::string_view renderer = RendererOfFile(output_);
    if (renderer.empty()) {
      return BadInput(fmt::format("-o {}: expected a name that ends in .html, .md, .json or .txt", output_),
                      "leave out -o to write to stdout by --format");
    }
    if (format_option_->count() > 0 && renderer != RendererOf(format_)) {
      return BadInput(fmt::format("-o {} contradicts --format", output_), "leave out --format: the ending decides");
    }
    for (const std::string& path : paths_) {
      std::error_code none;
      if (std::filesystem::equivalent(output_, path, none)) {
        return BadInput(fmt::format("'{}' is one of the traces and would be overwritten", output_),
                        "name another file");
      }
    }
    return renderer;
  }

  std::vector<std::string> paths_;
  std::string output_, role_;
  OutputFormat format_ = OutputFormat::text;
  CLI::Option* format_option_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> CmdReport() { return std::make_unique<ReportCommand>(); }

}  // namespace tidemark
