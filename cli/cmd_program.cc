// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/observed_job.h"
#include "cli/options.h"
#include "sim/lower/lower.h"
#include "sim/program/text.h"

namespace tidemark {
namespace {

class ProgramCommand : public Command {
 public:
  std::string_view name() const override { return "program"; }
  std::string_view summary() const override { return "What each role does in one optimizer step, as text"; }
  std::string_view examples() const override {
    return "  tidemark program job.yaml                                every role, loops kept\n"
           "  tidemark program job.yaml --role 0                       the first pipeline stage only\n"
           "  tidemark program job.yaml --expand | grep alloc          every allocation of the step, in order\n"
           "  tidemark program job.yaml --step first                   the first step, where it is another program\n"
           "  tidemark program job.yaml --after cut-into-stages        blocks of each pipeline stage\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddObservedOptions(app, observed_);
    app.add_option("--role", role_, "one role only, by number or by name")->type_name("ROLE");
    app.add_flag("--expand", expand_, "write every loop out");
    AddChoice<StepKind>(app, "--step", step_,
                        {{"first", StepKind::first}, {"second", StepKind::second}, {"steady", StepKind::steady}},
                        "which optimizer step: first, second or steady (default)");
    app.add_option("--after", after_,
                   fmt::format("what this pass of the lowering left: {}", fmt::join(LoweringPasses(), ", ")))
        ->check(CLI::IsMember(LoweringPasses()).description(""))
        ->type_name("PASS");
  }

  Result<int> Run() override {
    TIDEMARK_ASSIGN(const Observation observation, Observe(observed_, job_));
    TellObserved(observation);
    TIDEMARK_ASSIGN(const Job job, LoadJob(job_));
    if (!after_.empty()) {
      return PrintPass(job);
    }
    TIDEMARK_ASSIGN(const StepProgram step, Lower(job, step_));
    TIDEMARK_ASSIGN(const std::vector<const Program*> roles, Chosen(step));
    for (const Program* role : roles) {
      const std::string text = Print(expand_ ? Unroll(*role) : *role);
      TIDEMARK_TRY(WriteOut(role == roles.front() ? text : "\n" + text));
    }
    return 0;
  }

 private:
  Result<int> PrintPass(const Job& job) const {
    std::string text;
    TIDEMARK_TRY(Lower(job, step_, [&](std::string_view pass, const std::string& dump) {
      if (pass == after_) {
        text = dump;
      }
    }));
    TIDEMARK_TRY(WriteOut(text));
    return 0;
  }

  /// The roles that the user wants to see.
  Result<std::vector<const Program*>> Chosen(const StepProgram& step) const {
    std::vector<const Program*> chosen;
    std::vector<std::string> known;
    for (const Program& role : step.roles) {
      known.push_back(role.role);
      if (role_.empty() || role_ == role.role || role_ == std::to_string(role.role_index)) {
        chosen.push_back(&role);
      }
    }
    if (chosen.empty()) {
      const std::string nearest = Nearest(role_, known);
      return BadInput(fmt::format("--role: expected a number below {} or a name, found '{}'", known.size(), role_),
                      nearest.empty() ? fmt::format("the first role is 0 or '{}'", known.front())
                                      : fmt::format("did you mean '{}'?", nearest));
    }
    return chosen;
  }

  JobOptions job_;
  ObservedOptions observed_;
  std::string role_;
  bool expand_ = false;
  StepKind step_ = StepKind::steady;
  std::string after_;
};

}  // namespace

std::unique_ptr<Command> CmdProgram() { return std::make_unique<ProgramCommand>(); }

}  // namespace tidemark
