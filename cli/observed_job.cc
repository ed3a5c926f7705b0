// SPDX-License-Identifier: Apache-2.0
#include "cli/observed_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "base/text.h"
#include "cli/choice.h"
#include "cli/chosen_trace.h"
#include "cli/load_trace.h"
#include "models/job/change.h"
#include "models/job/job_template.h"
#include "sim/observe/observed_network.h"
#include "sim/strategies/strategy.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {
namespace {

constexpr const char* kNetworkName = "observed network";
constexpr std::int64_t kMostSamples = 1 << 20;

/// "forward of microbatch 0 of step 2 in resnet.json.gz (torch profiler, cpu)"
std::string PlaceText(const PhasePlace& place, const Trace& trace, const std::string& path) {
  std::string text = place.microbatch < 0 ? "a microbatch" : "microbatch";
  text += place.microbatch < 0 ? "" : fmt::format(" {}", place.microbatch);
  text += place.step < 0 ? "" : fmt::format(" of step {}", place.step + 1);
  return fmt::format("{} in {} ({}{})", text, path, trace.origin, trace.role.empty() ? "" : ", " + trace.role);
}

std::vector<std::string> Describe(const ObservedNetwork& network, const std::string& place, const Job& job,
                                  bool assumes_batch) {
  const std::int64_t samples = network.table.samples;
  std::vector<std::string> lines = {
      fmt::format("{} blocks of {}, taken as {} samples{}", network.table.rows.size(), place, Grouped(samples),
                  assumes_batch ? " (the job's micro_batch_size; --observed-batch says another)" : ""),
      fmt::format("{} saved by its forward pass, {} of activations and gradients at its peak", Text(network.saved),
                  Text(network.peak)),
      fmt::format("{} trained parameters, by {} of gradients in {}", Grouped(network.parameters),
                  Text(network.gradients), Name(network.dtype)),
  };
  if (network.before > Bytes()) {
    lines.push_back(
        fmt::format("not the {} that were alive before it: of weights and optimizer state the job has its own, and "
                    "none of what has no gradient (frozen weights, running statistics)",
                    Text(network.before)));
  }
  if (network.tells_times) {
    Nanos forward, backward;
    for (const TableRow& row : network.table.rows) {
      forward += Nanos(row.forward_ns);
      backward += Nanos(row.backward_ns);
    }
    lines.push_back(fmt::format("{} of forward and {} of backward pass", Text(forward), Text(backward)));
  }
  lines.insert(lines.end(), network.notes.begin(), network.notes.end());
  if (job.micro_batch_size != samples) {
    lines.push_back(
        fmt::format("sizes and times are scaled to {} samples: what does not grow with them grows here as well",
                    Grouped(job.micro_batch_size)));
  }
  if (network.dtype != job.axes.precision.gradients) {
    lines.push_back(fmt::format("activations stay as they were, beside gradients in {}: the job's are in {}",
                                Name(network.dtype), Name(job.axes.precision.gradients)));
  }
  return lines;
}

/// The samples of a microbatch of the job as its file has it: that is what was measured, and --set asks what another
/// one would need. Where the file does not say it, --set has to.
Result<std::int64_t> SamplesOf(const JobOptions& options, const JobChange& change) {
  const std::vector<StrategyDefaults> strategies = KnownStrategies();
  const JobChange* const changes[] = {&change};
  const std::string file = std::filesystem::path(options.path).filename().string();
  for (const bool with_changes : {false, true}) {
    JobOptions of = options;
    of.set = with_changes ? options.set : std::vector<std::string>();
    Result<JobTemplate> job = ReadJobTemplate(of, strategies);
    Result<Job> resolved = job ? job->Unchecked(changes) : Result<Job>(job.error());
    if (with_changes || (resolved && resolved->SourceOf("micro_batch_size").starts_with(file + ":"))) {
      TIDEMARK_TRY(resolved);
      return resolved->micro_batch_size;
    }
  }
  return std::int64_t{1};
}

}  // namespace

void AddObservedOptions(CLI::App& app, ObservedOptions& options) {
  CLI::Option* trace = app.add_option("--observed", options.path,
                                      "a trace of one measured microbatch of any model: sizes and times of its blocks "
                                      "take the place of the job's network")
                           ->type_name("TRACE");
  app.add_option("--observed-batch", options.batch,
                 "samples of that microbatch; default: micro_batch_size of the job's file, before any --set")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, kMostSamples))
      ->needs(trace);
  AddChoice<DType>(app, "--observed-dtype", options.dtype,
                   {{"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp64", DType::fp64}},
                   "dtype of its gradients, where the trace does not tell it: fp32 (default), bf16, fp16, fp64",
                   "DTYPE");
  app.get_option("--observed-dtype")->needs(trace);
}

Result<ObservedJob> LoadObservedJob(const JobOptions& options, const ObservedOptions& observed) {
  if (observed.path.empty()) {
    TIDEMARK_ASSIGN(Job job, LoadJob(options));
    return ObservedJob{std::move(job), {}};
  }
  const std::vector<StrategyDefaults> strategies = KnownStrategies();
  TIDEMARK_ASSIGN(JobTemplate job, ReadJobTemplate(options, strategies));
  TIDEMARK_ASSIGN(const ReadTrace file, LoadTrace(observed.path));
  TIDEMARK_ASSIGN(const std::size_t chosen, ChooseTrace(file, {}));
  const Trace& trace = file.file.traces[chosen];
  ObserveOptions observe;
  observe.gradients = observed.dtype;
  TIDEMARK_ASSIGN(ObservedNetwork network, ObserveNetwork(trace, observe).At(observed.path));
  const std::string source = "observed in " + observed.path;
  if (observed.batch) {
    network.table.samples = *observed.batch;
  } else {
    TIDEMARK_ASSIGN(const JobChange unscaled, ChangeToTable(kNetworkName, network.table, source));
    TIDEMARK_ASSIGN(network.table.samples, SamplesOf(options, unscaled));
  }
  TIDEMARK_ASSIGN(const JobChange change, ChangeToTable(kNetworkName, network.table, source));
  const JobChange* const changes[] = {&change};
  TIDEMARK_ASSIGN(Job resolved, job.With(changes));
  std::vector<std::string> lines =
      Describe(network, PlaceText(network.microbatch, trace, observed.path), resolved, !observed.batch);
  return ObservedJob{std::move(resolved), std::move(lines)};
}

}  // namespace tidemark
