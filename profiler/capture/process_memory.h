// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/quantity.h"

namespace tidemark {

// This process's memory as Linux tells it (proc(5), mincore(2)). Nothing here takes memory from the heap. Empty answers
// where the system does not tell.

/// Bytes of the resident set, in a microsecond or two. Older kernels add up their counters only now and then: they may
/// be off by some pages for each processor.
std::optional<Bytes> ResidentNow();
/// The same by a walk over the page tables (smaps_rollup): exact, some milliseconds for some hundred MiB.
std::optional<Bytes> ResidentExactly();

struct ProcessStatus {
  Bytes resident_peak;  ///< since the program started, or ForgetResidentPeak
  Bytes swapped;
};
std::optional<ProcessStatus> ReadProcessStatus();
/// False: the system does not let the peak be forgotten.
bool ForgetResidentPeak();

/// What is resident of the addresses [begin, end), to the byte: of a page in part, that part.
Bytes ResidentIn(std::uint64_t begin, std::uint64_t end);

/// Resident bytes of mappings that tell whose they are.
struct Mappings {
  Bytes code;    ///< files that are mapped privately: the program, its libraries, and their own data
  Bytes shared;  ///< memory that processes share, which here only the communication library does
  Bytes stack;   ///< of the first thread
};
std::optional<Mappings> ReadMappings();

}  // namespace tidemark
