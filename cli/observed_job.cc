// SPDX-License-Identifier: Apache-2.0
#include "cli/observed_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/choice.h"
#include "cli/chosen_trace.h"
#include "cli/load_trace.h"
#include "models/configs/value.h"
#include "models/job/change.h"
#include "models/job/job_template.h"
#include "sim/observe/observed_network.h"
#include "sim/strategies/strategy.h"
#include "traces/place.h"
#include "traces/trace.h"
#include "traces/utf8.h"

namespace tidemark {
namespace {

constexpr const char* kNetworkName = "observed network";
constexpr std::int64_t kMostSamples = 1 << 20;
constexpr std::int64_t kMostFrozen = 100'000'000'000'000;

/// The options again, for command lines: with the samples that were taken, whatever else those lines set.
std::vector<std::string> WordsOf(const ObservedOptions& options, std::int64_t samples) {
  std::vector<std::string> words = {"--observed", options.path};
  const auto add = [&](const std::string& option, std::string value) {
    words.push_back(option);
    words.push_back(std::move(value));
  };
  add("--observed-batch", std::to_string(samples));
  if (options.frozen > 0) {
    add("--observed-frozen", std::to_string(options.frozen));
  }
  if (options.dtype) {
    add("--observed-dtype", std::string(Name(*options.dtype)));
  }
  return words;
}

/// "microbatch 0 of step 2 in resnet.json.gz (torch profiler, cpu)"
std::string PlaceText(const PhasePlace& place, const Trace& trace, const std::string& path) {
  std::string text = place.microbatch < 0 ? "a microbatch" : "microbatch";
  text += place.microbatch < 0 ? "" : fmt::format(" {}", place.microbatch);
  text += place.step < 0 ? "" : fmt::format(" of step {}", place.step + 1);
  return fmt::format("{} in {} ({}{})", text, Utf8(path), trace.origin, trace.role.empty() ? "" : ", " + trace.role);
}

std::vector<std::string> Describe(const ObservedNetwork& network, const ObservedOptions& options,
                                  const std::string& place) {
  std::vector<std::string> lines = {
      fmt::format("{} blocks of {}, taken as {} samples{}", network.table.rows.size(), place,
                  Grouped(network.table.samples),
                  options.batch ? "" : " (micro_batch_size of the job's file; --observed-batch says another)"),
      fmt::format("{} saved by its forward pass, {} of activations and gradients at its peak", Text(network.saved),
                  Text(network.peak)),
      fmt::format("{} trained parameters, by {} of gradients in {}", Grouped(network.parameters),
                  Text(network.gradients), Name(network.dtype)),
  };
  if (options.frozen > 0) {
    lines.push_back(fmt::format("{} frozen parameters beside them, spread evenly over the blocks (--observed-frozen)",
                                Grouped(options.frozen)));
  }
  if (network.before > Bytes()) {
    lines.push_back(fmt::format(
        "not the {} that were alive before it: of weights and optimizer state the job has its own, and none of what "
        "has no gradient ({}running statistics)",
        Text(network.before), options.frozen > 0 ? "" : "frozen weights unless --observed-frozen says how many, "));
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
  return lines;
}

/// What the job makes of it.
void DescribeUse(const ObservedNetwork& network, const Job& before, const Job& job, std::vector<std::string>& lines) {
  if (!before.network.name.empty()) {
    lines.push_back(fmt::format("in place of the job's network, {}", before.network.name));
  }
  if (job.micro_batch_size != network.table.samples) {
    lines.push_back(
        fmt::format("sizes and times are scaled to {} samples: what does not grow with them grows here as well",
                    Grouped(job.micro_batch_size)));
  }
  if (network.dtype != job.axes.precision.gradients) {
    lines.push_back(fmt::format("activations stay as they were, beside gradients in {}: the job's are in {}",
                                Name(network.dtype), Name(job.axes.precision.gradients)));
  }
}

/// Trained parameters bring their weights, masters, two moments and gradients; the rest has no gradient.
std::optional<Lint> LintOfRest(const ObservedNetwork& network, std::int64_t frozen) {
  constexpr std::int64_t kMostBytes = 16;  // a parameter: two copies and two moments, fp32
  constexpr std::int64_t kFrozenBytes = 4;
  const Bytes most = network.gradients + Bytes(kMostBytes) * network.parameters + Bytes(kFrozenBytes) * frozen;
  if (network.before <= most) {
    return std::nullopt;
  }
  return Lint{
      "observed-without-the-rest", "warning",
      fmt::format("{} were alive before the measured microbatch, {} more than its {} trained parameters can have "
                  "with masters, moments and gradients: frozen weights, statistics or data, which are in no number",
                  Text(network.before), Text(network.before - most), Grouped(network.parameters)),
      "--observed-frozen N counts N frozen parameters"};
}

void SpreadFrozen(std::int64_t frozen, Table& table) {
  const std::int64_t rows = std::ssize(table.rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    table.rows[static_cast<std::size_t>(row)].frozen_parameters = frozen / rows + (row < frozen % rows ? 1 : 0);
  }
}

/// The samples of a microbatch of the job as its file has it: that is what was measured, and --set asks what another
/// one would need. Where the file does not say it, --set has to.
Result<std::int64_t> SamplesOf(const JobOptions& options, const JobChange& change) {
  const std::vector<StrategyDefaults> strategies = KnownStrategies();
  const JobChange* const changes[] = {&change};
  const std::string file = std::filesystem::path(options.path).filename().string();
  for (const bool with_changes : {false, true}) {
    JobOptions of = options;
    if (!with_changes) {
      std::erase_if(of.set, [](const std::string& set) { return set.starts_with("micro_batch_size="); });
    }
    Result<JobTemplate> job = ReadJobTemplate(of, strategies);
    Result<Job> resolved = job ? job->Unchecked(changes) : Result<Job>(job.error());
    if (with_changes) {
      TIDEMARK_TRY(resolved);
    }
    const std::string source = resolved ? resolved->SourceOf("micro_batch_size") : "";
    if (source == file || source.starts_with(file + ":") || (with_changes && source == kCommandLine)) {
      return resolved->micro_batch_size;
    }
  }
  return BadInput("how many samples the measured microbatch had is not known: the job's file has no micro_batch_size",
                  "--observed-batch N says it");
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
  app.add_option("--observed-frozen", options.frozen,
                 "frozen parameters of that network, of which a microbatch leaves no trace; default: none")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, kMostFrozen))
      ->needs(trace);
  AddChoice<DType>(app, "--observed-dtype", options.dtype,
                   {{"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp64", DType::fp64}},
                   "dtype of its gradients, where the trace does not tell it: fp32 (default), bf16, fp16, fp64",
                   "DTYPE");
  app.get_option("--observed-dtype")->needs(trace);
}

Result<Observation> Observe(const ObservedOptions& options, JobOptions& job) {
  if (options.path.empty()) {
    return Observation();
  }
  if (std::ranges::any_of(job.set, [](const std::string& set) { return set.starts_with("network="); })) {
    return BadInput("--observed and --set network both say what the network is", "leave one of them out");
  }
  TIDEMARK_ASSIGN(job.text, ReadTextFile(job.path));
  TIDEMARK_ASSIGN(const ReadTrace file, LoadTrace(options.path));
  TIDEMARK_ASSIGN(const std::size_t chosen, ChooseTrace(file, {}));
  const Trace& trace = file.file.traces[chosen];
  ObserveOptions observe;
  observe.gradients = options.dtype.value_or(DType::fp32);
  TIDEMARK_ASSIGN(ObservedNetwork network, ObserveNetwork(trace, observe).At(options.path));
  SpreadFrozen(options.frozen, network.table);
  const std::string source = "observed in " + Utf8(options.path);
  if (options.batch) {
    network.table.samples = *options.batch;
  } else {
    TIDEMARK_ASSIGN(const JobChange unscaled, ChangeToTable(kNetworkName, network.table, source));
    TIDEMARK_ASSIGN(network.table.samples, SamplesOf(job, unscaled));
  }
  TIDEMARK_ASSIGN(JobChange change, ChangeToTable(kNetworkName, network.table, source));
  Observation observation;
  observation.lines = Describe(network, options, PlaceText(network.microbatch, trace, options.path));
  observation.lint = LintOfRest(network, options.frozen);
  const std::vector<StrategyDefaults> strategies = KnownStrategies();
  TIDEMARK_ASSIGN(JobTemplate file_job, ReadJobTemplate(job, strategies));
  const Result<Job> before = file_job.Unchecked({});
  const JobChange* const changes[] = {&change};
  if (const Result<Job> resolved = file_job.Unchecked(changes)) {  // else whoever loads the job says why not
    DescribeUse(network, before ? *before : Job(), *resolved, observation.lines);
  }
  job.read.push_back(std::move(change));
  job.words = WordsOf(options, network.table.samples);
  return observation;
}

void TellObserved(const Observation& observation) {
  for (const std::string& line : observation.lines) {
    fmt::print(stderr, "observed: {}\n", line);
  }
  if (observation.lint) {
    fmt::print(stderr, "{}: {}; {}\n", observation.lint->severity, observation.lint->message, observation.lint->hint);
  }
}

}  // namespace tidemark
