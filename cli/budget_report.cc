// SPDX-License-Identifier: Apache-2.0
#include "cli/budget_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"

namespace tidemark {
namespace {

using nlohmann::ordered_json;

std::string Line(std::string_view what, Bytes bytes) { return fmt::format("  {:<28}  {:>10}\n", what, Text(bytes)); }

ordered_json Json(const std::optional<Bytes>& bytes) { return bytes ? ordered_json(bytes->count()) : ordered_json(); }

double Percent(Bytes part, Bytes whole) {
  return 100.0 * static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

}  // namespace

std::vector<std::string> ReasonsOf(std::span<const Budget> budgets, const std::string& time_doubt) {
  std::vector<std::string> reasons;
  for (const Budget& budget : budgets) {
    for (const std::string& reason : budget.reasons) {
      reasons.push_back(fmt::format("rank {}: {}", budget.rank, reason));
    }
  }
  if (!time_doubt.empty()) {
    reasons.push_back(time_doubt);
  }
  return reasons;
}

const Budget& LargestOf(std::span<const Budget> budgets) {
  return *std::max_element(budgets.begin(), budgets.end(),
                           [](const Budget& a, const Budget& b) { return a.used < b.used; });
}

std::string BudgetText(std::span<const Budget> budgets, std::span<const std::string> reasons) {
  const Budget& budget = LargestOf(budgets);
  const bool on_gpu = budget.memory == Budget::Memory::gpu;
  std::string text =
      fmt::format("\nwhat the process of rank {} took{} at most, part by part (tensors may peak at another time)\n",
                  budget.rank, on_gpu ? " of its GPU" : "");
  for (const auto& [part, bytes] : budget.parts) {
    if (!bytes || *bytes != Bytes()) {
      text += fmt::format("  {:<28}  {:>10}\n", Label(part), bytes ? Text(*bytes) : "not known");
    }
  }
  text +=
      fmt::format("  {:<28}  {:>10}  ({:+.2f} %, within {} of 0 in a sound measurement)\n", "residual: no known source",
                  Text(budget.residual()), Percent(budget.residual(), budget.used), Text(budget.bound()));
  text += Line(on_gpu ? "used of it, says its driver" : "resident, says the system", budget.used);
  for (const std::string& reason : reasons) {
    text += fmt::format("in doubt: {}\n", reason);
  }
  return text;
}

ordered_json BudgetJson(std::span<const Budget> budgets) {
  const Budget& budget = LargestOf(budgets);
  ordered_json json = ordered_json::object();
  for (const auto& [part, bytes] : budget.parts) {
    json[fmt::format("{}_bytes", Key(part))] = Json(bytes);
  }
  json["residual_bytes"] = budget.residual().count();
  json["device_used_bytes"] = budget.used.count();
  return json;
}

ordered_json ValidityJson(std::span<const Budget> budgets, std::span<const std::string> reasons) {
  const Budget& budget = LargestOf(budgets);
  return {{"ok", reasons.empty()},
          {"reasons", std::vector<std::string>(reasons.begin(), reasons.end())},
          {"budget_of_rank", budget.rank},
          {"residual_bound_bytes", budget.bound().count()},
          {"resident_peak_bytes", Json(budget.resident_peak)}};
}

}  // namespace tidemark
