// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "models/job/job_template.h"
#include "sim/sweep/space.h"

namespace tidemark {

/// Whether a key makes the training run itself, its ranks or their machine: what alternatives have in common.
bool IsGivenToAlternatives(std::string_view key);

/// The jobs of a space of alternatives (sim/sweep/alternatives.h) to a job, and how they differ.
class AlternativeJobs {
 public:
  /// `space` must outlive it; its keys are no given ones, and divide the global batch where a job is asked for.
  AlternativeJobs(JobTemplate job, Job base, const SweepSpace& space, std::int64_t global_batch);

  const Job& base() const { return base_; }

  /// The job at a place of the space, with the accumulation_steps that make the global batch.
  Result<Job> At(std::int64_t combination);
  /// Whether a job computes the same numbers as the base, up to the order of its sums, and nobody knows them as wrong.
  bool ComputesTheSame(const Job& job) const;
  /// The settings, "key=value", that make the base into a job of the space. Axes have other defaults under another
  /// strategy.
  Result<std::vector<std::string>> ChangeTo(const Job& job);
  /// Varied keys in which two jobs of the space differ, "layout" as one; without accumulation_steps, which follow.
  std::vector<std::string> Differences(const Job& a, const Job& b) const;

 private:
  JobTemplate template_;
  Job base_;
  const SweepSpace& space_;
  std::int64_t global_batch_;
  std::vector<std::string> keys_;  ///< of the space, a layout by its keys, and accumulation_steps
};

/// What a job says of a key, as its YAML does; empty: no job has it, or it cannot be written.
std::string SettingOf(const Job& job, std::string_view key);

}  // namespace tidemark
