// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "models/job/job_template.h"
#include "models/machine/machine.h"
#include "sim/sweep/condition.h"
#include "sim/sweep/groups.h"
#include "sim/sweep/pareto_front.h"
#include "sim/sweep/priced_row.h"
#include "sim/sweep/step_family.h"

namespace tidemark {

/// What a sweep asks of its combinations besides their price.
struct SweepLimits {
  /// Sequences of a step on all ranks: accumulation_steps is what makes micro_batch_size * layout.dp so many.
  std::optional<std::int64_t> global_batch;
  std::optional<SweepCondition> condition;
  /// What does not fit is pruned before its time is known: by the high end of its device band, or by the low end, where
  /// somebody looks closer at what lies between.
  enum class Fit : std::uint8_t { all, fitting, perhaps_fitting };
  Fit fit = Fit::all;
  /// If there is one, empty: what cannot be on the front of a chunk's rows is pruned before its time is known.
  std::optional<ParetoFront> front;
};

/// What became of some combinations. `rows` and `refused` hold each of them once, unless it was pruned.
class PricedCombinations {
 public:
  struct Refused {
    std::int64_t combination;
    std::uint32_t reason;  ///< index of `reasons`
  };
  std::vector<PricedRow> rows;
  std::vector<Refused> refused;
  std::vector<std::string> reasons;
  std::int64_t indivisible = 0;  ///< of the refused ones: no number of microbatches makes the global batch
  std::int64_t pruned = 0;
  std::int64_t pruned_fitting = 0;  ///< of the pruned ones, those that fit
  /// Of the pruned ones that which needs the least device memory, the first of equals.
  struct Nearest {
    std::int64_t combination;
    Bytes device;  ///< the high end of its band
    bool ComesBefore(const Nearest& other) const {
      return device != other.device ? device < other.device : combination < other.combination;
    }
  };
  std::optional<Nearest> nearest;

  void Refuse(std::int64_t combination, const std::string& reason);
  void Prune(std::int64_t combination, Bytes device);

 private:
  std::unordered_map<std::string, std::uint32_t> places_;  ///< of reasons
};

/// Prices group after group. Each thread wants one of its own; what the references name must outlive it.
class GroupPricer {
 public:
  GroupPricer(const SweepGroups& groups, const SweepLimits& limits, JobTemplate job);

  /// Adds what becomes of the combinations of one group. Fails where a condition cannot be evaluated.
  Status Price(std::int64_t group, PricedCombinations& priced);
  /// The next groups are those of another chunk.
  void BeginChunk() { front_ = limits_.front; }

 private:
  /// The numbers of microbatches of a group: those that are varied, the one that makes the global batch, or the job's.
  Result<std::vector<std::int64_t>> CountsOf(const Job& job) const;
  /// As the values of this index say.
  const Result<Machine>& MachineAt(std::int64_t machine);
  Status FindAllowed(std::int64_t group, PricedCombinations& priced);
  std::size_t counts() const { return groups_.counts().empty() ? 1 : groups_.counts().size(); }
  bool Allowed(std::int64_t machine, std::size_t count) const {
    return allowed_[static_cast<std::size_t>(machine - first_machine_) * counts() + count];
  }
  void RefuseMachine(std::int64_t group, std::int64_t machine, const std::string& reason, PricedCombinations& priced);
  /// The family's steps that the machine takes; the others are refused.
  void PriceOn(const Job& job, const std::vector<std::int64_t>& counts, std::int64_t group, std::int64_t machine,
               StepFamily& family, PricedCombinations& priced);
  void PriceSteps(const Job& job, std::int64_t group, std::int64_t machine, StepFamily& family,
                  PricedCombinations& priced);

  const SweepGroups& groups_;
  const SweepLimits& limits_;
  JobTemplate job_;
  std::optional<JobChange> one_step_;  ///< where the global batch decides how many there are, not another tool's config
  std::vector<std::optional<Result<Machine>>> machines_;  ///< the first few, once they were asked for
  std::optional<Result<Machine>> other_machine_;          ///< the last one asked for that is not among them
  std::optional<ParetoFront> front_;                      ///< of the chunk under way
  std::int64_t first_machine_ = 0;                        ///< of the group
  std::vector<bool> allowed_;  ///< by machine and count: what the condition leaves of the group
};

}  // namespace tidemark
