// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"

namespace tidemark {

/// What a rank's resident set is made of.
enum class BudgetPart : std::uint8_t {
  tensors,        ///< live tensors, as their kernels declared them
  rounding,       ///< what the allocator hands out beyond that, where it is resident
  cached,         ///< resident pages of the device that hold no tensor
  communication,  ///< MPI: its heap, and the memory that it shares with other ranks
  workspace,      ///< of kernels and Eigen
  trace,
  step_program,
  data,          ///< a text to learn from
  executor,      ///< its model and its tables of buffers
  verification,  ///< gradients kept for --verify
  heap_kept,     ///< freed blocks that the C library keeps
  code,          ///< the program and its libraries
  stack,
  profiler,  ///< the outside view itself
};
inline constexpr std::size_t kBudgetParts = 14;

/// "tensors", in JSON with "_bytes" behind it; and in words, for people.
std::string_view Key(BudgetPart part);
std::string_view Label(BudgetPart part);

/// The closed budget of one rank on the CPU, at the instant of its highest resident set. Every part is counted or
/// measured where it comes from; none is what remains of the others.
struct Budget {
  std::int64_t rank = 0;
  std::array<Bytes, kBudgetParts> parts{};
  Bytes used;                          ///< the resident set, as the operating system says
  Bytes resident_peak;                 ///< its high-water mark by the kernel's own count, between looks too
  std::vector<std::string> reasons{};  ///< why the measurement is in doubt

  Bytes& operator[](BudgetPart part) { return parts[static_cast<std::size_t>(part)]; }
  Bytes operator[](BudgetPart part) const { return parts[static_cast<std::size_t>(part)]; }
  Bytes sum() const;
  /// What has no known source; negative where parts are counted that are not resident.
  Bytes residual() const { return used - sum(); }
  /// The largest residual, either way, of a sound measurement: 2 % of what is used. Below 256 MiB it is 2 % of that, as
  /// pages that nobody counts (of thread stacks, of the C library) do not shrink with the job; nor do they grow with
  /// it, so that it is 32 MiB at most, and 64 MiB behind the allocator are always found.
  Bytes bound() const;
};

/// Why the parts cannot be relied on: a residual beyond the bound, a peak that nobody saw.
std::vector<std::string> DoubtsOf(const Budget& budget);

/// For the way from rank to rank.
std::string Pack(const Budget& budget);
Budget Unpack(std::string_view packed);

}  // namespace tidemark
