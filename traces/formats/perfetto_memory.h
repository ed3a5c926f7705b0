// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/category.h"
#include "traces/formats/perfetto_sequence.h"
#include "traces/trace.h"

namespace tidemark {

/// The memory of one trace as counters of a Perfetto process, in bytes, at the host's times: one for each category that
/// occurs, and the totals: of tensors, of the allocator, reserved (the last two where the trace knows them). Equally
/// named counters of all processes share one scale. And the peak, as an instant that tells what was alive.
///
/// A memory event is one packet: its category's counter, with the totals that it changed as extra values, whose tracks
/// are a default of the sequence.
class PerfettoMemory {
 public:
  /// The trace is sound (Verify).
  PerfettoMemory(const Trace& trace, PerfettoFile& file);

  /// Completes the packet that declares the process.
  void SetDefaults(PerfettoSequence& sequence) const;
  void DeclareTracks(PerfettoSequence& sequence, std::uint64_t process) const;
  void WriteSamples(PerfettoSequence& sequence) const;
  void WritePeak(PerfettoSequence& sequence, std::uint64_t track) const;

 private:
  static constexpr std::size_t kTotals = 3;
  using Totals = std::array<std::int64_t, kTotals>;

  void Sample(PerfettoSequence& sequence, Nanos at, std::uint64_t category_track, std::int64_t category_bytes,
              const Totals& before, const Totals& after) const;

  const Trace& trace_;
  std::array<std::uint64_t, kCategories> categories_{};  ///< the tracks; 0: the trace has none of it
  std::vector<std::uint64_t> totals_;                    ///< as many as the trace knows, in the order of Totals
};

}  // namespace tidemark
