// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "models/machine/machine.h"
#include "models/network/block.h"
#include "sim/cost/price_list.h"
#include "sim/engine/counted_step.h"
#include "sim/engine/evaluation.h"
#include "sim/engine/time_program.h"
#include "sim/predict/steps.h"

namespace tidemark {

/// Why a combination was refused: the key at fault, what is wrong with it, and what to try.
inline std::string Reason(const Error& error) {
  return (error.where.empty() ? "" : error.where + ": ") + error.message +
         (error.hint.empty() ? "" : " (" + error.hint + ")");
}

/// What of a step no machine changes.
struct StepFacts {
  std::size_t count = 0;           ///< index of the number of microbatches
  MemoryPeak peak;                 ///< of the role with the most allocated bytes, of equals the first
  std::int64_t communicators = 0;  ///< of that role: distinct groups of more than one rank that it talks to
  double tokens = 0;               ///< that reach an update, per rank
  double model_flops = 0;          ///< matrix products and attention, per rank, mean over the roles
};

/// The steady steps of one job under several numbers of microbatches. Those that differ in the length of one loop only
/// are written twice and evaluated together; the others are written one by one.
///
/// Cost: a lowering for each number that is not alike, two for all that are; then, for each machine, an evaluation for
/// each of these and a few additions for each number.
class StepFamily {
 public:
  /// Of `counts`, ascending values of accumulation_steps, those with the indices `which`, ascending too; that of `job`
  /// does not matter.
  StepFamily(Job job, std::span<const std::int64_t> counts, std::vector<std::size_t> which);

  /// Why numbers of microbatches (by index) are refused.
  const std::map<std::size_t, std::string>& refused() const { return refused_; }
  /// All others, in any order.
  const std::vector<StepFacts>& steps() const { return steps_; }

  /// Whether the machine takes the step of this index, one of steps(): whether times stay within 64 bits depends on it.
  /// A machine that takes the longest takes all.
  Status CheckOn(const Machine& machine, std::size_t step);
  std::size_t Longest() const;
  /// A machine whose nodes are as large as the job's: the next two are of it.
  void Take(const Machine& machine);
  /// What each step takes at least. Parallel to steps(). Cost: a sum over the nodes.
  std::vector<Nanos> LeastSteps() const;
  /// Parallel to steps().
  std::vector<StepTime> Price() const;

 private:
  /// Steps that are evaluated together: `steps` of steps_, from `first` on.
  struct Piece {
    LoweredStep step;                    ///< of counted ones that with the most iterations
    PriceList prices;                    ///< of step.usual()
    std::optional<CountedStep> counted;  ///< nothing: one step
    std::vector<std::int64_t> more;      ///< iterations, parallel to the steps; empty: one step
    std::size_t first = 0, steps = 1;
    std::array<std::optional<TimedStep>, 2> timed;  ///< by whether streams take turns, once a machine wants it
    std::size_t taken = 0;                          ///< which of them

    const TimedStep& step_of_machine() const { return *timed[taken]; }
  };

  Result<LoweredStep> Lower(std::size_t count);
  void Refuse(std::size_t count, const Error& error) { refused_.emplace(count, Reason(error)); }
  void AddOne(std::size_t count, LoweredStep lowered);
  /// All of `left` that are as many microbatches behind the first as whole iterations of the loop are, up to the last.
  /// False where the two do not differ in one loop only.
  bool AddAlike(std::vector<std::size_t>& left, const LoweredStep& low, LoweredStep& high);
  StepTime PriceAlone(std::size_t count) const;
  void AddFacts(std::size_t count, MemoryPeak peak, std::int64_t communicators, double model_flops);

  Job job_;
  std::vector<std::int64_t> counts_;
  std::vector<BlockRun> blocks_;  ///< of the largest number of microbatches among the steps
  std::map<std::size_t, std::string> refused_;
  std::vector<StepFacts> steps_;
  std::vector<Piece> pieces_;
};

}  // namespace tidemark
