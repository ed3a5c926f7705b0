// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

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
    {"host_tensors", "tensors in host memory"},
    {"communication", "communication (MPI, NCCL)"},
    {"workspace", "workspace of kernels"},
    {"trace", "trace"},
    {"step_program", "step program"},
    {"data", "training text"},
    {"executor", "executor"},
    {"verification", "gradients kept for --verify"},
    {"heap_kept", "freed, kept by malloc"},
    {"code", "program and libraries"},
    {"stack", "stack"},
    {"context", "context of the driver"},
    {"modules", "loaded kernels"},
    {"profiler", "this measurement"},
}};

constexpr Bytes kMost{std::int64_t{32} << 20};
constexpr Bytes kSmallProcess{std::int64_t{256} << 20}, kLeastOfGpu{std::int64_t{16} << 20};
constexpr std::int64_t kShareOfProcess = 50, kShareOfGpu = 100;  // 2 %, 1 %
constexpr std::string_view kNotKnown = "-";

/// Takes the next line, without its end.
std::string_view NextLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::optional<std::int64_t> NextIfKnown(std::string_view& text) {
  const std::string_view line = NextLine(text);
  std::int64_t number = 0;
  const bool known = std::from_chars(line.data(), line.data() + line.size(), number).ec == std::errc();
  return known ? std::optional(number) : std::nullopt;
}
std::int64_t NextNumber(std::string_view& text) { return NextIfKnown(text).value_or(0); }
std::optional<Bytes> NextBytes(std::string_view& text) {
  const auto number = NextIfKnown(text);
  return number ? std::optional(Bytes(*number)) : std::nullopt;
}

std::string LineOf(const std::optional<Bytes>& bytes) {
  return bytes ? fmt::format("{}\n", bytes->count()) : fmt::format("{}\n", kNotKnown);
}

}  // namespace

std::string_view Key(BudgetPart part) { return kNames[static_cast<std::size_t>(part)].key; }
std::string_view Label(BudgetPart part) { return kNames[static_cast<std::size_t>(part)].label; }

Budget BudgetOf(Budget::Memory memory, std::span<const BudgetPart> parts) {
  Budget budget;
  budget.memory = memory;
  for (const BudgetPart part : parts) {
    budget[part] = Bytes();
  }
  return budget;
}

Bytes& Budget::operator[](BudgetPart part) {
  std::optional<Bytes>& bytes = parts[part];
  return bytes ? *bytes : bytes.emplace();
}

Bytes Budget::operator[](BudgetPart part) const {
  const auto found = parts.find(part);
  return found == parts.end() ? Bytes() : found->second.value_or(Bytes());
}

Bytes Budget::sum() const {
  Bytes sum;
  for (const auto& [part, bytes] : parts) {
    sum += bytes.value_or(Bytes());
  }
  return sum;
}

Bytes Budget::bound() const {
  const Bytes wanted = memory == Memory::gpu ? std::max(used / kShareOfGpu, kLeastOfGpu)
                                             : std::max(used, kSmallProcess) / kShareOfProcess;
  return std::min(wanted, kMost);
}

std::vector<std::string> DoubtsOf(const Budget& budget) {
  std::vector<std::string> doubts;
  const Bytes residual = budget.residual(), bound = budget.bound();
  const bool on_gpu = budget.memory == Budget::Memory::gpu;
  if (residual > bound) {
    doubts.push_back(fmt::format("{} of {} have no known source (at most {} may)", Text(residual),
                                 on_gpu ? "what is used of the GPU" : "the resident set", Text(bound)));
  } else if (residual < Bytes() - bound) {
    doubts.push_back(fmt::format("the parts count {} more than is {} (at most {} may)", Text(Bytes() - residual),
                                 on_gpu ? "used of the GPU" : "resident", Text(bound)));
  }
  if (budget.resident_peak && *budget.resident_peak > budget.used + bound) {
    doubts.push_back(fmt::format("the resident set was {} once, and {} at most when it was looked at",
                                 Text(*budget.resident_peak), Text(budget.used)));
  }
  return doubts;
}

std::string Pack(const Budget& budget) {
  std::string packed = fmt::format("{}\n{}\n{}\n", budget.rank, static_cast<int>(budget.memory), budget.used.count());
  packed += LineOf(budget.resident_peak);
  packed += fmt::format("{}\n", budget.parts.size());
  for (const auto& [part, bytes] : budget.parts) {
    packed += fmt::format("{}\n", static_cast<int>(part)) + LineOf(bytes);
  }
  for (const std::string& reason : budget.reasons) {
    packed += reason + "\n";
  }
  return packed;
}

Budget Unpack(std::string_view packed) {
  Budget budget;
  budget.rank = NextNumber(packed);
  budget.memory = static_cast<Budget::Memory>(NextNumber(packed));
  budget.used = Bytes(NextNumber(packed));
  budget.resident_peak = NextBytes(packed);
  for (std::int64_t parts = NextNumber(packed); parts > 0; --parts) {
    const auto part = static_cast<BudgetPart>(NextNumber(packed));
    budget.parts[part] = NextBytes(packed);
  }
  while (!packed.empty()) {
    budget.reasons.emplace_back(NextLine(packed));
  }
  return budget;
}

}  // namespace tidemark
