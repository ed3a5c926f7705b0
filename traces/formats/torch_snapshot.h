// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/result.h"

namespace tidemark {

// What a pickle of torch.cuda.memory._snapshot() or torch.cuda.memory_snapshot() says, of any PyTorch since 1.13: keys
// that it does not know are passed over, keys that an older one lacks have defaults. The keys are those that
// torch/csrc/cuda/Module.cpp and torch/csrc/cuda/memory_snapshot.cpp write.

/// No size is larger, and no total may be: sums of a few of them are far from overflow, whatever a file says.
inline constexpr std::int64_t kMostTorchBytes = std::int64_t{1} << 60;

/// Of device_traces. Sizes of alloc, free_requested and free_completed are what was asked for, those of segment_* what
/// the device gave or took back.
struct TorchEntry {
  enum class Action : std::uint8_t {
    alloc,
    free_requested,  ///< by the program; its streams may still use it
    free_completed,
    segment_alloc,
    segment_free,
    segment_map,  ///< pages of an expandable segment
    segment_unmap,
    oom,
    other,  ///< changes no memory: a snapshot, an annotation
  };
  Action action = Action::other;
  Category category = Category::unknown;
  DType dtype = DType::u8;  ///< which Tidemark's own files tell
  std::uint32_t place = 0;  ///< index into TorchSnapshot::places
  std::uint64_t address = 0;
  std::int64_t n_bytes = 0;
  std::int64_t time_us = 0;
  std::int64_t stream = 0;
};

struct TorchBlock {
  enum class State : std::uint8_t { allocated, pending_free, inactive };
  State state = State::inactive;
  std::uint32_t place = 0;
  std::uint64_t address = 0;
  std::int64_t n_bytes = 0, n_requested = 0;
};

struct TorchSegment {
  std::int64_t device = 0;
  std::int64_t stream = 0;
  std::int64_t n_bytes = 0;
  std::uint32_t first_block = 0, blocks = 0;  ///< of TorchSnapshot::blocks
};

/// Of external_annotations: where a scope of the profiler begins or ends.
struct TorchAnnotation {
  static constexpr std::int64_t kEveryDevice = -1;
  std::int64_t device = kEveryDevice;
  std::int64_t time_us = 0;
  bool begins = true;
  std::string name;
};

/// What a device's history is a trace of, where it was one of Tidemark's.
struct TorchIdentity {
  std::string role, origin;
  std::vector<std::string> allocator;  ///< as Trace has it
};

struct TorchSnapshot {
  std::vector<std::string> places;  ///< where memory was asked for; the first: not known
  std::vector<TorchEntry> entries;
  std::vector<std::vector<std::uint32_t>> traces;  ///< by device, indices into entries
  std::vector<TorchBlock> blocks;
  std::vector<TorchSegment> segments;
  std::vector<TorchAnnotation> annotations;
  std::vector<TorchIdentity> identities;  ///< by device; empty in PyTorch's own files
  std::vector<std::string> settings;      ///< of the allocator of all devices, as Trace has them; empty: not told
  bool overflowed = false;                ///< the recording's ring buffer
  bool has_times = false;
  std::map<std::string, std::int64_t> unknown_actions;  ///< how many entries of each
};

Result<TorchSnapshot> ReadTorchSnapshot(std::string_view bytes);

}  // namespace tidemark
