// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/program/verify.h"
#include "sim/strategies/strategy.h"
#include "tests/base/sanitizer.h"

namespace tidemark {

/// Lowers a job that is accepted, and expects a program that is well-formed and computes the right gradients. Of a job
/// that is not declared wrong Lower itself sees to that, but not under sanitizers (tests/CMakeLists.txt).
inline StepProgram Sound(const Job& job, StepKind kind = StepKind::steady) {
  Result<StepProgram> step = Lower(job, kind);
  EXPECT_TRUE(step.ok()) << step.error().Text();
  if (kSanitized || FindStrategy(job.strategy)->DeclaredWrong(job)) {
    const std::vector<Finding> findings = Verify(*step);
    EXPECT_TRUE(findings.empty()) << findings.front().message;
  }
  return std::move(*step);
}

}  // namespace tidemark
