// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/expression.h"
#include "base/result.h"
#include "models/job/job.h"

namespace tidemark {

/// A loop's own predicates (`sync.when: custom`): behind which microbatches gradients are synchronised, and behind
/// which the optimizer steps.
class Boundary {
 public:
  /// So many are evaluated one by one, in about a microsecond each.
  static constexpr std::int64_t kMostMicrobatches = 65'536;

  struct Place {
    bool synchronises = false, steps = false;
  };

  /// Refuses expressions that do not parse.
  static Result<Boundary> Of(const Job& job);

  /// Of microbatch `i`, which may lie beyond the first window: loops count on. Refuses a division by zero, and numbers
  /// beyond 64 bits.
  Result<Place> At(std::int64_t i) const;

  /// Of the job's own microbatches; refuses what At refuses of the first that fails.
  Result<std::vector<Place>> Places() const;

  /// What there is to say where none of them steps.
  Error NeverSteps() const;

 private:
  Boundary(Expression synchronises, Expression steps, const char* step_key, std::int64_t microbatches)
      : synchronises_(std::move(synchronises)),
        steps_(std::move(steps)),
        step_key_(step_key),
        microbatches_(microbatches) {}

  Expression synchronises_, steps_;
  const char* step_key_;
  std::int64_t microbatches_;  ///< what `steps` stands for
};

}  // namespace tidemark
