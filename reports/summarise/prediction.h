// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/lint.h"
#include "base/quantity.h"
#include "models/job/throughput.h"
#include "models/machine/machine.h"
#include "reports/summarise/instants.h"
#include "reports/summarise/peak.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {

// Everything that a prediction tells its reader: collected once (by cli/cmd_predict.cc), then rendered purely. The
// terminal report, JSON, Markdown and HTML read this struct and nothing else, so that no two of them can disagree.

/// One distinct role. `peak` comes from the evaluation (allocated, by category, phase) and, where there is a trace,
/// from SummarisePeak (instant, buffers alive); the optional sizes exist only where an allocator was simulated.
struct RoleReport {
  std::string role;  ///< "stage 0"
  std::int64_t ranks = 1;
  Peak peak;
  std::optional<Bytes> allocator_bytes;  ///< the allocator's own rounded peak
  std::optional<Bytes> reserved;         ///< the most that it had from the device
  std::optional<Bytes> reserved_late;    ///< the same if streams lag, where memory is freed in use
  std::optional<Bytes> minimum;          ///< smallest device limit at which the allocator succeeds
  Band device;                           ///< DeviceBytes(): what nvidia-smi would show
  Bytes host;                            ///< the most that one rank has in host memory, whenever that is
  std::vector<PhasePeak> phases;  ///< highest totals by phase, in order of first appearance; empty without a trace
  std::optional<Trace> trace;
};

/// The outcome under a device limit (--capacity).
struct CapacityReport {
  Bytes capacity;
  std::string outcome;  ///< fine, flushed, out_of_memory
  std::int64_t cache_flushes = 0;
  Bytes request;  ///< the request that failed; 0: none did
  PhasePlace at;  ///< where it failed
};

/// All steps and their parts, on the last role to finish; the parts sum to `step`.
struct TimeReport {
  Nanos step;
  Nanos compute, recompute, optimizer;
  Nanos exposed_communication, bubble, host;
  std::string role;  ///< that role, as "stage 0"; empty: not told, or steps end on different ones
};

/// Equal steps in a row, of all that the report is about.
struct StepReport {
  std::string kind;  ///< first, second, steady
  std::int64_t count = 1;
  Nanos time;                     ///< of one of them
  Bytes allocated;                ///< the worst role's peak within them
  std::optional<Bytes> reserved;  ///< the most that its allocator has reserved within them
};

struct CommunicationReport {
  std::string kind, group;
  DType dtype = DType::bf16;
  std::int64_t count = 0;
  Bytes payload, wire;  ///< of all steps
};

/// What one engine said (--engine both).
struct EngineReport {
  Bytes allocated;
  Nanos step;
  Nanos evaluation;  ///< median time of the evaluation itself; a measured value
};

struct EnginesReport {
  EngineReport closed_form, simulate;
};

/// Which numbers to trust how far. Each entry is a short phrase.
struct Provenance {
  std::string version;
  std::vector<std::string> modelled, observed, calibrated, assumed, not_modelled;
};

/// "5.51 GiB (allocator.memory_fraction leaves no more of 40.0 GiB)": with the reason where it is not all of the
/// device.
std::string UsableMemoryText(Bytes usable, Bytes device);

struct PredictionReport {
  std::string title;     ///< the job in one line: JobTitle()
  std::string job_yaml;  ///< the resolved job
  std::string machine;
  bool machine_assumed = false;  ///< nobody named the machine
  Bytes device_memory;
  Bytes usable_memory;  ///< of it, by this process; less than all: allocator.memory_fraction
  std::string allocated_name = "torch max_memory_allocated";  ///< what the allocator's users call allocator_bytes
  std::string reserved_name = "torch max_memory_reserved";    ///< and reserved
  std::vector<RoleReport> roles;                              ///< at least one
  std::size_t worst = 0;                                      ///< the role with the most allocated bytes
  std::vector<Instant> instants;                              ///< of that role; empty without a trace
  std::optional<CapacityReport> capacity;
  std::vector<StepReport> steps;  ///< in order, at least one
  TimeReport time;
  Throughput throughput;
  std::vector<CommunicationReport> communication;
  std::vector<Lint> lints;
  std::optional<EnginesReport> engines;
  Provenance provenance;

  const RoleReport& Worst() const { return roles.at(worst); }
  bool Fits() const;
  std::int64_t Steps() const;        ///< how many there are
  std::string StepText() const;      ///< "steady step", "5 steps"
  std::string LastRoleText() const;  ///< "stage 3, the last to finish"; where there is but one, without its name
};

}  // namespace tidemark
