// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/family_layers.h"
#include "base/id.h"
#include "base/lint.h"
#include "base/quantity.h"

namespace tidemark {

// A Trace says what happened to one rank's memory and streams, whoever says so: a simulation, an execution, a
// framework's snapshot. Reports and comparisons read traces and nothing else.

using TensorNameId = Id<struct TraceTensorTag>;   ///< index into Trace::tensors
using TraceStringId = Id<struct TraceStringTag>;  ///< index into Trace::strings

inline constexpr std::uint16_t kNoSpan = 0xffff;    ///< MemoryEvent::span, Slice::span: no phase, or none that is known
inline constexpr std::uint16_t kNoStream = 0xffff;  ///< MemoryEvent::stream: not known

/// A family of equal tensors; events name the member by indices.
struct TraceTensor {
  std::string name;
  Category category = Category::activation;
  DType dtype = DType::bf16;
  Bytes bytes;  ///< requested, of one tensor
  /// What part of its whole it is: "whole", "1/8 over dp", "1/2 over tp, 1/8 over dp", "part"; "own": there is no
  /// whole, each rank has what its own microbatch needs. Empty: not known.
  std::string sharding = {};
  FamilyLayers layers = {};
};

/// An allocation or a free, in issue order.
struct MemoryEvent {
  bool alloc = true;
  TensorNameId tensor;
  std::int32_t index0 = 0, index1 = 0;    ///< member of the family
  Nanos issue;                            ///< when the host issued it: memory follows issue order
  Nanos ready;                            ///< when the stream of birth got there; where it waits, when that was over
  bool waits = false;                     ///< a free of what other streams still use: nobody gets it before `ready`
  std::uint64_t address = 0;              ///< 0: not known
  std::uint16_t span = kNoSpan;           ///< index into Trace::spans of the innermost phase
  std::uint16_t stream = kNoStream;       ///< index into Trace::streams of the stream of birth
  Bytes allocator_bytes, reserved_bytes;  ///< the allocator's totals right after this event
};

/// A phase of the step on the host's time line: "forward" of microbatch 2.
struct Span {
  std::string phase;
  std::int64_t microbatch = -1;  ///< -1: the whole step
  Nanos begin, end;
  std::string side = {};  ///< "query", "passage": `microbatch` counts the chunks of this side of a dual encoder's pairs
};

/// One optimizer step on the host's time line. The next one begins where it ends.
struct StepMark {
  std::string kind;  ///< first, second, steady; empty: not known
  Nanos begin, end;
  std::uint64_t memory_begin = 0;  ///< memory events before it; may be more than a trace has that was cut off
};

/// Work on a stream.
struct Slice {
  std::uint16_t stream = 0;
  TraceStringId name;
  Nanos start, end;
  std::uint16_t span = kNoSpan;  ///< index into Trace::spans of the innermost phase that issued it
};

struct TraceStream {
  std::string name;
  std::string kind;  ///< host, compute, collective, peer, copy
};

/// An instant that a reader may ask for by its name ("reduce", "clip", "gather") and that no phase tells.
struct InstantMark {
  std::string name;
  std::uint64_t events = 0;  ///< memory events that lead to it, at least one; more than a trace has that was cut off
};
inline constexpr const char* kOutOfMemory = "out of memory";  ///< InstantMark::name: a request was refused

inline constexpr const char* kUntimed = "none";  ///< Trace::clock: nobody said when streams were busy

struct Trace {
  std::string origin;  ///< "predicted", "measured on cpu", "torch snapshot"
  std::string clock;   ///< what said when streams were busy: "host", "device_events", "cupti", "none"; empty: not known
  std::string tool_version;
  std::string title;     ///< the job in one line
  std::string job_yaml;  ///< the resolved job, empty if unknown
  /// What its allocator was set to, by a job's keys, the kind first: "kind=torch-caching", "max_split_size=128MiB".
  /// Empty: not known, but for what `job_yaml` tells (older files).
  std::vector<std::string> allocator;
  std::string role;        ///< "stage 0"
  std::int64_t ranks = 1;  ///< that did the same
  Bytes device_memory;     ///< capacity; 0: unknown
  Bytes usable_memory;     ///< of it, where the process may fill a part of it only; 0: all
  /// What the whole process takes from the device (a prediction's band around what nvidia-smi shows); all 0: unknown
  Bytes device_low, device_expected, device_high;
  std::vector<Lint> lints;  ///< of the job that was traced, as its prediction said them
  std::string missing;      ///< what the file that it came from lacked, in one sentence; empty: nothing that is known
  std::vector<std::string> assumed, not_modelled;  ///< by the prediction that this is, in short phrases; else empty
  Nanos step;  ///< length of the whole span over all roles: of the step, or of all steps
  std::vector<std::string> strings;
  std::vector<TraceTensor> tensors;
  std::vector<TraceStream> streams;
  std::vector<Span> spans;
  std::vector<StepMark> steps;      ///< in order; empty: not known, taken as one
  std::vector<MemoryEvent> memory;  ///< resident tensors first, as allocations at time 0
  std::vector<Slice> slices;
  std::vector<InstantMark> marks;
};

/// Trace::missing of one that ends where a request of so many bytes was refused.
std::string RefusedText(Bytes requested);

/// Whether a trace tells a total of the allocator's (MemoryEvent::allocator_bytes, reserved_bytes): else it is 0 in all
/// its events.
bool Tells(const Trace& trace, Bytes MemoryEvent::*total);

/// Whether a tensor's dtype is told. A reader that finds none puts u8, and no category.
inline bool IsTold(DType dtype, Category category) { return dtype != DType::u8 || category != Category::unknown; }

/// Checks what every trace promises: ids in range, each free matches a live allocation, spans and steps do not run
/// backwards.
/// Empty when sound, else one sentence.
std::string Verify(const Trace& trace);

}  // namespace tidemark
