// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "sim/program/text.h"
#include "sim/program/verify.h"

namespace tidemark {

/// A role around `lines`: streams main, side and third; families a, b[4] and grid[2][3] born on main, s born on side,
/// weight that is always there, and result that stays behind.
inline Program SmallRole(std::string_view lines, int index = 0) {
  const std::string header = "role " + std::to_string(index) + " \"stage " + std::to_string(index) +
                             "\", 1 ranks\n"
                             "groups:\n  dp 4 ranks, 4 per node\n  pp 2 ranks, 1 per node\n"
                             "channels:\n  right role 0 -> role 1\n  left role 1 -> role 0\n"
                             "streams:\n  host host\n  main compute\n  side collective\n  third peer\n"
                             "events:\n  e\n  f\n"
                             "buffers:\n"
                             "  a workspace 8 u8 born on main\n"
                             "  b[4] workspace 16 u8 born on main\n"
                             "  grid[2][3] workspace 8 u8 born on main\n"
                             "  s workspace 8 u8 born on side\n"
                             "  weight parameter 8 u8 born on main, resident, kept\n"
                             "  result parameter 8 u8 born on main, kept\n"
                             "program:\n";
  Result<Program> program = ParseProgram(header + std::string(lines));
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return program ? *program : Program{};
}

/// Every role must leave `result` behind.
inline constexpr std::string_view kResult = "alloc result\n";

/// The rules that one role breaks; its `result` is taken care of.
inline std::vector<std::string> Broken(std::string_view lines) {
  std::vector<std::string> rules;
  for (const Finding& finding : Verify({{SmallRole(std::string(kResult) + std::string(lines))}})) {
    rules.emplace_back(Name(finding.rule));
  }
  return rules;
}

/// The rules that two stages break together.
inline std::vector<std::string> Broken(std::string_view stage0, std::string_view stage1) {
  std::vector<std::string> rules;
  const StepProgram step{{SmallRole(std::string(kResult) + std::string(stage0), 0),
                          SmallRole(std::string(kResult) + std::string(stage1), 1)}};
  for (const Finding& finding : Verify(step)) {
    rules.emplace_back(Name(finding.rule));
  }
  return rules;
}

/// What the first finding says about one role.
inline std::string FirstMessage(std::string_view lines) {
  const std::vector<Finding> findings = Verify({{SmallRole(std::string(kResult) + std::string(lines))}});
  return findings.empty() ? std::string() : findings.front().message;
}

}  // namespace tidemark
