// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "cli/audit_report.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/strategies.h"
#include "cli/write_file.h"
#include "reports/render/render.h"
#include "sim/predict/audit.h"

namespace tidemark {
namespace {

class AuditCommand : public Command {
 public:
  std::string_view name() const override { return "audit"; }
  std::string_view summary() const override {
    return "What is wrong with a job's strategy, and what its windows really come to";
  }
  std::string_view examples() const override {
    return "  tidemark audit job.yaml                                  every value and gradient of a step, followed\n"
           "  tidemark audit job.yaml --set buffers.tp_gather=pooled-unsafe\n"
           "                                                           which values a shared buffer loses, and to "
           "whom\n"
           "  tidemark audit job.yaml --set sync.when=custom --set 'sync.expression=i % (steps - 1) == 0'\n"
           "                                                           where a loop's own predicate steps, and on "
           "what\n"
           "  tidemark audit job.yaml --step first                     the first step, where it is another program\n"
           "  tidemark audit job.yaml --format json                    for scripts; exit code 1 where it found "
           "something\n"
           "  tidemark audit job.yaml --html audit.html                a page, for a browser\n"
           "\n"
           "Found are: values that are read after their memory was written under another name (clobber), accesses of\n"
           "two streams that nothing orders (race), windows whose gradient is not the mean over their microbatches\n"
           "and ranks, and whatever else of the job is known to be a mistake. A predicate is evaluated for three\n"
           "times accumulation_steps microbatches. Told, and no fault: what stays allocated after its last use,\n"
           "and what holds it there in the real system.\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddChoice<StepKind>(app, "--step", step_,
                        {{"first", StepKind::first}, {"second", StepKind::second}, {"steady", StepKind::steady}},
                        "which optimizer step: first, second or steady (default)");
    app.add_option("--html", html_path_, "write the same as a page to this file; - is stdout, without the report")
        ->type_name("FILE");
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(RefuseToOverwrite(html_path_, job_.path));
    TIDEMARK_ASSIGN(const Job job, LoadJob(job_, StrategiesForAudit()));
    TIDEMARK_ASSIGN(const JobAudit audit, AuditJob(job, step_));
    const AuditReport report = MakeReport(job, step_, audit);
    if (!html_path_.empty()) {
      TIDEMARK_TRY(WriteFile(html_path_, RenderAs("html", report)));
    }
    if (html_path_ != "-") {
      TIDEMARK_TRY(WriteOut(RenderAs(RendererOf(format_), report, {WantsColour()})));
    }
    return report.clean || exit_zero_ ? 0 : static_cast<int>(ErrorCode::finding);
  }

 private:
  JobOptions job_;
  StepKind step_ = StepKind::steady;
  std::string html_path_;
  OutputFormat format_ = OutputFormat::text;
  bool exit_zero_ = false;
};

}  // namespace

std::unique_ptr<Command> CmdAudit() { return std::make_unique<AuditCommand>(); }

}  // namespace tidemark
