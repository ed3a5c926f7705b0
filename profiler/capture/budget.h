// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"

namespace tidemark {

/// What a rank's memory is made of: the process's resident set, or what it takes of a GPU. Each outside view counts
/// some of these.
enum class BudgetPart : std::uint8_t {
  tensors,        ///< live tensors, as their kernels declared them
  rounding,       ///< what the allocator hands out beyond that (of a process: where it is resident)
  cached,         ///< what the device below the allocator has, and no tensor (of a process: where it is resident)
  host_tensors,   ///< tensors that a program places in host memory
  communication,  ///< MPI's heap and the memory that it shares with other ranks; what NCCL took of the GPU
  workspace,      ///< of kernels, Eigen and the math libraries
  trace,
  step_program,
  data,          ///< a text to learn from
  executor,      ///< its model and its tables of buffers; on a GPU its labels, sums and copies
  verification,  ///< gradients kept for --verify
  heap_kept,     ///< freed blocks that the C library keeps
  code,          ///< the program and its libraries
  stack,
  context,   ///< what the driver takes for a process before it does anything
  modules,   ///< kernels' code and their stacks: what the driver took while work was given
  profiler,  ///< the outside view itself, and CUPTI
};
inline constexpr std::size_t kBudgetParts = 17;

/// "tensors", in JSON with "_bytes" behind it; and in words, for people.
std::string_view Key(BudgetPart part);
std::string_view Label(BudgetPart part);

/// The closed budget of one rank, at the instant when most was used. Every part is counted or measured where it comes
/// from; none is what remains of the others.
struct Budget {
  enum class Memory : std::uint8_t {
    process,  ///< the resident set of its process
    gpu,      ///< what its process takes of its GPU
  };

  std::int64_t rank = 0;
  Memory memory = Memory::process;
  std::map<BudgetPart, std::optional<Bytes>> parts{};  ///< those that its view counts; nothing: not known in this run
  Bytes used;                                          ///< as the operating system says, or the GPU's driver
  std::optional<Bytes> resident_peak{};                ///< of a process, by the kernel's own count, between looks too
  std::vector<std::string> reasons{};                  ///< why the measurement is in doubt

  Bytes& operator[](BudgetPart part);
  /// None where it is not known, or not of this view.
  Bytes operator[](BudgetPart part) const;
  Bytes sum() const;
  /// What has no known source; negative where parts are counted that are not used.
  Bytes residual() const { return used - sum(); }
  /// The largest residual, either way, of a sound measurement; 32 MiB at most, so that 64 MiB behind the allocator are
  /// always found.
  ///
  /// Of a process 2 % of what is used, and below 256 MiB 2 % of that, as pages that nobody counts (of thread stacks, of
  /// the C library) do not shrink with the job. Of a GPU 1 %, and never less than 16 MiB, which are eight pages of its
  /// driver (2 MiB each), for what it takes outside of anybody's calls.
  Bytes bound() const;
};

/// A budget that counts these, all of them none so far.
Budget BudgetOf(Budget::Memory memory, std::span<const BudgetPart> parts);

/// Why the parts cannot be relied on: a residual beyond the bound, a peak that nobody saw.
std::vector<std::string> DoubtsOf(const Budget& budget);

/// For the way from rank to rank.
std::string Pack(const Budget& budget);
Budget Unpack(std::string_view packed);

}  // namespace tidemark
