// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "traces/formats/trace_writer.h"
#include "traces/trace.h"

namespace tidemark {

/// The file of `run --trace FILE` on one rank. While the run lasts, rank 0 writes its trace to FILE and rank r to
/// FILE.rank<r>, so that whatever ends it, each holds what was, and says that it is cut short. At the end rank 0 puts
/// the traces of all ranks into FILE, and only then it is whole. Where FILE is no regular file ("-", a pipe), nothing
/// is written before the end.
class TraceOutput {
 public:
  /// Fails as TraceWriter::Open does where rank 0 cannot write; another rank then goes without.
  static Result<TraceOutput> Open(const std::string& path, std::int64_t rank);

  /// The trace so far. A write that fails ends neither the run nor the measurement: Finish returns it.
  void Keep(const Trace& so_far);
  /// On rank 0: the traces of all ranks, its own first, in the order of ranks.
  Status Finish(std::span<const Trace> all);
  /// On the others, when all is in FILE.
  void Discard();

  /// What a run of so many ranks leaves that ends early, as a sentence; empty where that is nothing.
  static std::string LeftBehind(const std::string& path, std::int64_t ranks);

 private:
  std::string path_;  ///< of this rank's own file
  std::optional<TraceWriter> writer_;
};

}  // namespace tidemark
