// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/quantity.h"
#include "base/result.h"
#include "traces/formats/string_pool.h"

namespace tidemark {

// What of a Chrome JSON trace (PyTorch's profiler writes it through Kineto) matters to memory and streams. The form of
// the events: https://github.com/pytorch/kineto/blob/main/libkineto/src/output_json.cpp; of the file, which may lack
// its end: the "Trace Event Format" of Chrome.

struct ChromeDevice {
  std::int64_t type = 0, id = 0;  ///< c10::DeviceType: 0 CPU, 1 CUDA; its number
  friend auto operator<=>(const ChromeDevice&, const ChromeDevice&) = default;
};

/// A "[memory]" instant.
struct ChromeBlock {
  Nanos at;
  std::uint64_t order = 0;
  std::uint64_t address = 0;
  std::int64_t n_bytes = 0;                                ///< negative: freed
  std::int64_t allocator_bytes = -1, reserved_bytes = -1;  ///< -1: not told
  ChromeDevice device;
  std::uint32_t process = 0, thread = 0;
  std::uint32_t tensor = 0;  ///< its name, which Tidemark's own files tell; 0: not told
  std::uint32_t site = 0;    ///< the operator that allocates; 0: none
  Category category = Category::unknown;
  DType dtype = DType::u8;
};

/// A slice of any kind.
struct ChromeSlice {
  Nanos begin, end;
  std::uint32_t name = 0;
  std::uint32_t process = 0, thread = 0;
  std::int64_t correlation = -1;  ///< the same number for work and for the call that issued it; -1: not told
  std::int32_t device = 0;        ///< of work on a device
  bool is_copy = false;
};

/// A user's annotation. Tidemark's own files tell what it stands for.
struct ChromeAnnotation {
  ChromeSlice slice;
  std::uint32_t phase = 0, side = 0;  ///< 0: not told
  std::int64_t microbatch = -1;
};

/// What a process is called; Tidemark's own files tell the origin of the trace as well, 0: not told.
struct ChromeProcess {
  std::uint32_t name = 0, origin = 0;
};

struct ChromeLog {
  StringPool names;                        ///< the first one is empty
  std::vector<ChromeBlock> blocks;         ///< in the order of the file
  std::vector<ChromeBlock> out_of_memory;  ///< "[OutOfMemory]" instants
  std::vector<ChromeSlice> operators;      ///< of the host
  std::vector<ChromeSlice> device_slices;  ///< kernels, copies
  std::vector<ChromeAnnotation> annotations;
  // Ordered, since hostile keys make a hash table slow.
  std::map<std::int64_t, Nanos> issued;  ///< by correlation: when the host called the device's API
  std::unordered_map<std::uint32_t, std::uint32_t> thread_names;  ///< by thread
  std::unordered_map<std::uint32_t, ChromeProcess> processes;     ///< by process
  std::string origin;                                             ///< which Tidemark's own files tell
  std::uint64_t events = 0;                                       ///< of any kind
  std::uint64_t unreadable = 0;                                   ///< that would matter, but lack a number that is one
  bool cut_off = false;                                           ///< the file ends in the middle
};

/// Finds the site of every block: the innermost operator of its thread at that instant, or the one that this one
/// allocates for. Sorts operators and blocks.
void FindSites(ChromeLog& log);

/// Reads it in one pass; memory grows with the events that it keeps only. Fails with bad_input where it is no JSON.
Result<ChromeLog> ReadChromeLog(std::string_view bytes);

}  // namespace tidemark
