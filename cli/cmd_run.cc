// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/execution.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "cli/write_file.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

class RunCommand : public Command {
 public:
  std::string_view name() const override { return "run"; }
  std::string_view summary() const override { return "Executes a job's steps for real, and measures them"; }
  std::string_view examples() const override {
    return "  tidemark run job.yaml                                one step on random tokens, a process per rank\n"
           "  tidemark run job.yaml --steps 50 --data text.txt     learns from a text, byte by byte\n"
           "  tidemark run job.yaml --verify                       are its gradients those of one big batch?\n"
           "  tidemark run job.yaml --trace measured.trace         memory and time, event by event\n"
           "  mpirun -np 4 tidemark run job.yaml                   under your own launcher\n"
           "\n"
           "Weights and data follow from --seed alone, however many ranks there are. The exit code is 1 where --verify "
           "finds\nother numbers, or where a device runs out of memory (--capacity).\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddDeviceOption(app, device_);
    AddExecutionOptions(app, options_);
    app.add_flag("--verify", options_.verify, "compare the first step's gradients with those of one big batch in fp64");
    app.add_option("--trace", trace_path_, "write what happened on every rank, event by event, to this file")
        ->type_name("FILE");
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(RefuseToOverwrite(trace_path_, job_.path));
    TIDEMARK_ASSIGN(const Job job, LoadJob(job_));
    options_.traces = !trace_path_.empty();
    TIDEMARK_ASSIGN(const Execution execution, Execute(job, options_));
    if (!execution.reports()) {
      return 0;
    }
    if (!trace_path_.empty()) {
      TIDEMARK_ASSIGN(const auto format, FindTraceFormat("tidemark"));
      TIDEMARK_ASSIGN(const std::string bytes, format->Write(execution.traces));
      TIDEMARK_TRY(WriteFile(trace_path_, bytes));
    }
    const RunReport report{job, execution.outcome, execution.numerics};
    if (trace_path_ != "-") {
      const std::string text = format_ == OutputFormat::json ? RenderJson(report) : RenderText(report);
      TIDEMARK_TRY(WriteOut(format_ == OutputFormat::markdown ? "```\n" + text + "```\n" : text));
    }
    return report.Finding() && !exit_zero_ ? static_cast<int>(ErrorCode::finding) : 0;
  }

 private:
  JobOptions job_;
  ExecutionOptions options_;
  std::string device_, trace_path_;
  OutputFormat format_ = OutputFormat::text;
  bool exit_zero_ = false;
};

}  // namespace

std::unique_ptr<Command> CmdRun() { return std::make_unique<RunCommand>(); }

}  // namespace tidemark
