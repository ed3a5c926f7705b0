// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/observed_job.h"
#include "cli/options.h"
#include "models/job/read.h"

namespace tidemark {
namespace {

class JobCommand : public Command {
 public:
  std::string_view name() const override { return "job"; }
  std::string_view summary() const override {
    return "Print a job with every default, and where each value comes from";
  }
  std::string_view examples() const override {
    return "  tidemark job job.yaml                               the whole job, as a file that can be run again\n"
           "  tidemark job nanotron.yaml > job.yaml               another tool's config as a Tidemark job\n"
           "  tidemark job job.yaml --set strategy=ddp-last       how the defaults change with the strategy\n"
           "  tidemark job job.yaml --observed step.json > own.yaml    a network of your own, as it was measured\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddObservedOptions(app, observed_);
  }

  Result<int> Run() override {
    TIDEMARK_ASSIGN(const Observation observation, Observe(observed_, job_));
    TellObserved(observation);
    TIDEMARK_ASSIGN(const Job job, LoadJob(job_));
    TIDEMARK_TRY(WriteOut(JobYaml(job)));
    return 0;
  }

 private:
  JobOptions job_;
  ObservedOptions observed_;
};

}  // namespace

std::unique_ptr<Command> CmdJob() { return std::make_unique<JobCommand>(); }

}  // namespace tidemark
