// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "traces/trace.h"

namespace tidemark {

/// Writes Tidemark's own trace file (traces/formats/tidemark_frames.h) while the trace grows: append-only, whole frames
/// at a time. Whatever ends the process, what was appended can be read, and a file without its end says that it is cut
/// short.
///
///   TIDEMARK_ASSIGN(TraceWriter writer, TraceWriter::Open("rank0.trace"));
///   while (...) { ...;  TIDEMARK_TRY(writer.Append(trace)); }     // as often as one may lose what came since
///   TIDEMARK_TRY(writer.Close());
class TraceWriter {
 public:
  /// Takes bytes; they follow those that it took before.
  using Sink = std::function<Status(std::string_view bytes)>;

  explicit TraceWriter(Sink sink) : sink_(std::move(sink)) {}

  /// A new file in the place of an old one. Every Append hands its bytes to the operating system before it returns, so
  /// they outlive the process (not the machine). Fails with bad_input where the place cannot be written; later writes
  /// fail with machine_cannot, for example where the disk is full.
  static Result<TraceWriter> Open(const std::string& path);

  /// Appends what `trace` has gained since the last call; the first call writes its header. Rows of its tables and
  /// events only ever come at the end. What was written and changes afterwards is written again where that is of use:
  /// where phases and steps end, and all that is in the header. After an error every further call returns it.
  Status Append(const Trace& trace);

  /// What is appended from now on is another trace of the same file.
  Status EndTrace();

  /// Marks the file as whole. Nothing can follow.
  Status Close();

 private:
  /// How much of the current trace is written.
  struct Written {
    std::string header;  ///< as it was last written
    std::size_t strings = 0, tensors = 0, streams = 0, marks = 0, memory = 0, slices = 0;
    std::vector<Nanos> span_ends, step_ends;
  };

  void AppendTables(std::string& out, const Trace& trace);
  void AppendAmendment(std::string& out, const Trace& trace);
  void AppendEvents(std::string& out, const Trace& trace);
  Status Hand(std::string_view bytes);

  Sink sink_;
  std::optional<Error> failed_;
  std::optional<Written> written_;  ///< nothing: between traces
  std::uint64_t traces_ = 0;
  bool opened_ = false, closed_ = false;
};

}  // namespace tidemark
