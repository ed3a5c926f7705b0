// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "cli/budget_report.h"
#include "cli/command.h"
#include "cli/execution.h"
#include "cli/hardware.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "cli/trace_name.h"
#include "cli/write_file.h"
#include "sim/predict/lints.h"

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
           "Weights and data follow from the job's network, its packing and --seed, however many ranks there are. The "
           "exit\ncode is 1 where --verify finds other numbers, or where a device runs out of memory (--capacity).\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddDeviceOption(app, options_.device);
    AddExecutionOptions(app, options_);
    AddTimedOption(app, options_);
    AddCapacityOption(app, options_);
    app.add_flag("--verify", options_.verify, "compare the first step's gradients with those of one big batch in fp64");
    app.add_option("--trace", options_.trace_path,
                   "write what happened on every rank, event by event, to this file; - is stdout, without the report")
        ->type_name("FILE");
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(CheckDevice(options_.device));
    TIDEMARK_TRY(CheckTraceName(options_.trace_path));
    TIDEMARK_TRY(RefuseToOverwrite(options_.trace_path, job_.path));
    TIDEMARK_ASSIGN(const Job job, LoadJob(job_));
    options_.job_path = job_.path;
    TIDEMARK_ASSIGN(const Execution execution, Execute(job, options_));
    if (!execution.reports()) {
      return execution.place.exit_code;
    }
    const RunReport report{job,
                           options_.device.empty() ? "cpu" : options_.device,
                           execution.exchanges,
                           execution.outcome,
                           execution.peak,
                           execution.numerics,
                           execution.budgets,
                           ReasonsOf(execution.budgets, TimeDoubt(execution.place.world->ranks_here())),
                           LintJob(job),
                           DescribeHardware(options_.device)};
    if (options_.trace_path != "-") {
      const std::string text = format_ == OutputFormat::json ? RenderJson(report) : RenderText(report);
      TIDEMARK_TRY(WriteMeasured(format_ == OutputFormat::markdown ? "```\n" + text + "```\n" : text));
    }
    if (execution.unwritten) {
      return *execution.unwritten;
    }
    return report.Finding() && !exit_zero_ ? static_cast<int>(ErrorCode::finding) : 0;
  }

 private:
  JobOptions job_;
  ExecutionOptions options_;
  OutputFormat format_ = OutputFormat::text;
  bool exit_zero_ = false;
};

}  // namespace

std::unique_ptr<Command> CmdRun() { return std::make_unique<RunCommand>(); }

}  // namespace tidemark
