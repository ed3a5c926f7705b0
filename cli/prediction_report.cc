// SPDX-License-Identifier: Apache-2.0
#include "cli/prediction_report.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "cli/unlike_ranks.h"
#include "models/job/read.h"
#include "models/job/read_allocator.h"
#include "models/machine/device_bytes.h"
#include "reports/summarise/title.h"

namespace tidemark {
namespace {

constexpr std::string_view kAssumed = "assumed";

std::string OutcomeName(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::fine:
      return "fine";
    case Outcome::Kind::flushed:
      return "flushed";
    case Outcome::Kind::out_of_memory:
      break;
  }
  return "out_of_memory";
}

/// Groups with which a rank keeps a communicator open.
std::int64_t CommunicatorsIn(const std::vector<CommunicationRow>& rows) {
  std::set<std::string> groups;
  for (const CommunicationRow& row : rows) {
    groups.insert(row.group);
  }
  return static_cast<std::int64_t>(groups.size());
}

Peak MakePeak(const RolePrediction& role, std::int64_t steps) {
  Peak peak;
  const std::int64_t step = steps > 1 ? role.peak_step : -1;
  if (role.trace) {
    peak = SummarisePeak(*role.trace);
    TIDEMARK_CHECK(peak.allocated == role.peak.allocated && peak.by_category == role.peak.by_category);
    TIDEMARK_CHECK(peak.step == step);
  }
  peak.step = step;
  peak.allocated = role.peak.allocated;
  peak.by_category = role.peak.by_category;
  peak.phase = std::string(Name(role.peak.phase));
  return peak;
}

std::string Title(const Job& job, std::int64_t steps) {
  return steps == 1 ? JobTitle(job) : fmt::format("{}, first {} steps", JobTitle(job), Grouped(steps));
}

RoleReport MakeRole(const Job& job, std::int64_t steps, RolePrediction role, std::int64_t communicators) {
  RoleReport report;
  report.role = role.role;
  report.ranks = role.ranks;
  report.peak = MakePeak(role, steps);
  report.allocator_bytes = role.allocator_bytes;
  report.host = role.peak.host;
  report.reserved = role.reserved;
  report.reserved_late = role.reserved_late;
  report.minimum = role.minimum;
  report.device = DeviceBytes(job.machine, {role.peak.allocated, role.reserved, communicators});
  if (role.trace) {
    report.phases = SummarisePhases(*role.trace);
    report.trace = std::move(role.trace);
    report.trace->title = Title(job, steps);
    report.trace->job_yaml = JobYaml(job);
    report.trace->allocator = AllocatorSettings(job.allocator);
    report.trace->tool_version = TIDEMARK_VERSION;
    report.trace->device_low = report.device.low;
    report.trace->device_expected = report.device.expected;
    report.trace->device_high = report.device.high;
  }
  return report;
}

CapacityReport MakeCapacity(Bytes capacity, const CapacityOutcome& outcome) {
  return {capacity, OutcomeName(outcome.outcome.kind), outcome.outcome.cache_flushes, outcome.outcome.failed_bytes,
          outcome.at};
}

EngineReport MakeEngine(const EngineRun& run) {
  EngineReport report;
  for (const MemoryPeak& peak : run.evaluation.whole.roles) {
    report.allocated = std::max(report.allocated, peak.allocated);
  }
  report.step = run.evaluation.whole.time.step;
  report.evaluation = run.duration;
  return report;
}

Throughput MakeThroughputOf(const Job& job, const Prediction& prediction, std::int64_t steps) {
  const auto peak = job.machine.peak.find(job.axes.precision.params);
  const StepWork work{TokensPerRank(job) * static_cast<double>(steps), prediction.model_flops,
                      prediction.hardware_flops};
  return MakeThroughput(work, prediction.time.step, peak == job.machine.peak.end() ? FlopsPerSec() : peak->second);
}

struct AllocatorWords {
  const char* modelled;
  const char* allocated;
  const char* reserved;
};

/// In the terms of who reads such numbers: torch.cuda, jax.Device.memory_stats, cudaMemPoolGetAttribute.
AllocatorWords WordsOf(AllocatorKind kind) {
  switch (kind) {
    case AllocatorKind::exact:
      return {"an allocator without rounding or cache", "allocated", "reserved"};
    case AllocatorKind::torch_caching:
      return {"PyTorch's caching allocator", "torch max_memory_allocated", "torch max_memory_reserved"};
    case AllocatorKind::arena:
      return {"one region with best fit, as XLA's BFC allocator has when it preallocates", "XLA peak_bytes_in_use",
              "of the preallocated region"};
    case AllocatorKind::cuda_async:
      return {
          "a pool of cudaMallocAsync, as far as its inside is public; one job on an H200 took of it what was predicted",
          "cudaMemPool UsedMemHigh", "cudaMemPool ReservedMemHigh"};
  }
  Fail("a kind of allocator that is not in the enumeration", __FILE__, __LINE__);
}

Provenance MakeProvenance(const Job& job, std::int64_t steps) {
  Provenance provenance;
  provenance.version = TIDEMARK_VERSION;
  provenance.modelled = {"every tensor, its bytes and its life",
                         WordsOf(job.allocator.kind).modelled,
                         "kernels by roofline with tiles and waves",
                         "collectives as rings, by latency and bandwidth of the slowest link",
                         "streams, events and the host that issues the work",
                         "driver context, communicators and library workspace as in the machine file"};
  if (job.mean_sequence_length > 0) {
    provenance.modelled.push_back(
        fmt::format("memory of sequences of {} tokens, time and messages of {}: attention takes at least that long",
                    job.sequence_length, job.mean_sequence_length));
  }
  if (steps > 1) {
    provenance.modelled.emplace_back(
        "steps in a row: one begins when the one before is done on all ranks, with its cache");
  }
  if (RanksAreUnlike(job)) {
    provenance.modelled.emplace_back(
        "data-parallel rank 0: the ranks divide padded state, and keep unlike parts of it");
  }
  if (const Machine& machine = job.machine; !machine.measured_on.empty()) {
    provenance.calibrated.push_back(fmt::format("what the machine file calls measured: on {}{}, {}", machine.device,
                                                machine.driver.empty() ? "" : ", driver " + machine.driver,
                                                machine.measured_on));
  }
  for (const auto& [key, source] : job.sources) {
    if (source == kAssumed) {
      provenance.assumed.push_back(key == "machine" ? fmt::format("machine {}", job.machine.name) : key);
    }
  }
  provenance.not_modelled = {"links shared by collectives that coincide", "data loading, logging and checkpoints",
                             "other processes on the device"};
  return provenance;
}

}  // namespace

TimeReport MakeTime(const StepTime& time) {
  return {time.step, time.compute, time.recompute, time.optimizer, time.exposed_communication, time.bubble, time.host,
          {}};
}

PredictionReport MakeReport(const Job& job, const PredictOptions& options, Prediction prediction) {
  const std::int64_t steps = CountSteps(options.steps);
  PredictionReport report;
  report.title = Title(job, steps);
  report.job_yaml = JobYaml(job);
  report.machine = job.machine.name;
  report.machine_assumed = job.SourceOf("machine") == kAssumed;
  report.device_memory = job.machine.device_memory;
  report.allocated_name = WordsOf(job.allocator.kind).allocated;
  report.reserved_name = WordsOf(job.allocator.kind).reserved;
  report.throughput = MakeThroughputOf(job, prediction, steps);
  report.worst = prediction.worst_role;
  const std::int64_t communicators = CommunicatorsIn(prediction.communication);
  report.usable_memory = UsableMemory(job.machine, job.allocator.memory_fraction, communicators).high;
  for (RolePrediction& role : prediction.roles) {
    report.roles.push_back(MakeRole(job, steps, std::move(role), communicators));
  }
  if (report.Worst().trace) {
    report.instants = FindInstants(*report.Worst().trace);
  }
  if (prediction.capacity) {
    report.capacity = MakeCapacity(*options.capacity, *prediction.capacity);
  }
  for (const StepPrediction& step : prediction.steps) {
    report.steps.push_back(
        {std::string(Name(step.run.kind)), step.run.count, step.time, step.allocated, step.reserved});
  }
  report.time = MakeTime(prediction.time);
  if (const std::int64_t role = prediction.time.role; role != StepTime::kSeveral) {
    report.time.role = report.roles.at(static_cast<std::size_t>(role)).role;
  }
  for (const Lint& lint : prediction.lints) {
    AddLint(report, lint);
  }
  for (const CommunicationRow& row : prediction.communication) {
    report.communication.push_back({row.kind, row.group, row.dtype, row.count, row.payload, row.wire});
  }
  if (prediction.closed_form && prediction.simulated) {
    report.engines = EnginesReport{MakeEngine(*prediction.closed_form), MakeEngine(*prediction.simulated)};
  }
  report.provenance = MakeProvenance(job, steps);
  if (report.Worst().reserved_late) {
    report.provenance.modelled.emplace_back(
        "memory that record_stream holds back after its free: reserved has none of it; reserved if streams lag has it "
        "until the stream that uses it is done, by the machine's times");
  }
  for (RoleReport& role : report.roles) {
    if (role.trace) {
      role.trace->usable_memory = report.usable_memory < report.device_memory ? report.usable_memory : Bytes();
      role.trace->assumed = report.provenance.assumed;
      role.trace->not_modelled = report.provenance.not_modelled;
    }
  }
  return report;
}

void AddLint(PredictionReport& report, const Lint& lint) {
  report.lints.push_back(lint);
  for (RoleReport& role : report.roles) {
    if (role.trace) {
      role.trace->lints.push_back(lint);
    }
  }
}

}  // namespace tidemark
