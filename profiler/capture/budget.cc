// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/text.h"

namespace tidemark {
namespace {

struct Names {
  std::string_view key, label;
};

constexpr std::array<Names, kBudgetParts> kNames = {{
    {"tensors", "tensors"},
    {"rounding", "rounding"},
    {"cached", "cached by the allocator"},
    {"communication", "MPI"},
    {"workspace", "workspace of kernels (Eigen)"},
    {"trace", "trace"},
    {"step_program", "step program"},
    {"data", "training text"},
    {"executor", "executor's tables"},
    {"verification", "gradients kept for --verify"},
    {"heap_kept", "freed, kept by malloc"},
    {"code", "program and libraries"},
    {"stack", "stack"},
    {"profiler", "this measurement"},
}};

constexpr Bytes kSmall{std::int64_t{256} << 20}, kMost{std::int64_t{32} << 20};
constexpr std::int64_t kShare = 50;  // 2 %

/// Takes the next line, without its end.
std::string_view NextLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::int64_t NextNumber(std::string_view& text) {
  const std::string_view line = NextLine(text);
  std::int64_t number = 0;
  std::from_chars(line.data(), line.data() + line.size(), number);
  return number;
}

}  // namespace

std::string_view Key(BudgetPart part) { return kNames[static_cast<std::size_t>(part)].key; }
std::string_view Label(BudgetPart part) { return kNames[static_cast<std::size_t>(part)].label; }

Bytes Budget::sum() const { return std::accumulate(parts.begin(), parts.end(), Bytes()); }

Bytes Budget::bound() const { return std::min(std::max(used, kSmall) / kShare, kMost); }

std::vector<std::string> DoubtsOf(const Budget& budget) {
  std::vector<std::string> doubts;
  const Bytes residual = budget.residual(), bound = budget.bound();
  if (residual > bound) {
    doubts.push_back(
        fmt::format("{} of the resident set have no known source (at most {} may)", Text(residual), Text(bound)));
  } else if (residual < Bytes() - bound) {
    doubts.push_back(fmt::format("the parts count {} more than is resident (at most {} may)", Text(Bytes() - residual),
                                 Text(bound)));
  }
  if (budget.resident_peak > budget.used + bound) {
    doubts.push_back(fmt::format("the resident set was {} once, and {} at most when it was looked at",
                                 Text(budget.resident_peak), Text(budget.used)));
  }
  return doubts;
}

std::string Pack(const Budget& budget) {
  std::string packed = fmt::format("{}\n{}\n{}\n", budget.rank, budget.used.count(), budget.resident_peak.count());
  for (const Bytes part : budget.parts) {
    packed += fmt::format("{}\n", part.count());
  }
  for (const std::string& reason : budget.reasons) {
    packed += reason + "\n";
  }
  return packed;
}

Budget Unpack(std::string_view packed) {
  Budget budget;
  budget.rank = NextNumber(packed);
  budget.used = Bytes(NextNumber(packed));
  budget.resident_peak = Bytes(NextNumber(packed));
  for (Bytes& part : budget.parts) {
    part = Bytes(NextNumber(packed));
  }
  while (!packed.empty()) {
    budget.reasons.emplace_back(NextLine(packed));
  }
  return budget;
}

}  // namespace tidemark
