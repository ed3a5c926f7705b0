// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "traces/trace.h"

namespace tidemark {

/// What a trace file holds: one trace per role.
struct TraceFile {
  std::vector<Trace> traces;
  std::string note;    ///< empty, or one sentence about what is missing ("cut off after 3,211 events")
  std::string format;  ///< name of the format that it was read from
};

/// A file format of traces. traces/formats/format_<x>.cc defines `std::unique_ptr<TraceFormat> Format<X>()`; that file
/// is all a new format needs (cmake/table.cmake makes the table).
class TraceFormat {
 public:
  virtual ~TraceFormat() = default;

  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;  ///< one line, without a full stop
  virtual bool reads() const = 0;                ///< else Sniff recognises nothing and Read is never called
  virtual bool writes() const = 0;               ///< else Write fails with bad_input
  /// How names of its files end, ".csv", the usual one first. Where one format only writes an ending, it stands for it.
  virtual std::vector<std::string_view> endings() const { return {}; }
  virtual bool text() const { return false; }  ///< a terminal can show it
  /// Whether readers open several of its files as one where they lie in a ZIP with Perfetto's manifest
  /// (traces/formats/trace_archive.h).
  virtual bool archives() const { return false; }

  /// What a file of this format would not tell of the trace that it tells, in a clause each.
  virtual std::vector<std::string> Loses(const Trace& /*trace*/) const { return {}; }

  /// Whether a file that begins with `head` (its first 4 KiB, or all of it) is of this format. Separate from Read,
  /// because the reader is chosen before the file is read.
  virtual bool Sniff(std::string_view head) const = 0;

  /// Every trace that it returns passes Verify. What cannot be read is a sentence, never a crash: files are hostile.
  /// What another tool wrote becomes a trace like this: one per device, its role "cuda:0"; times from the first event
  /// on; a family of tensors for each place that allocates and each size, dtype u8 and category unknown where the file
  /// does not tell; what was alive before it began is allocated first.
  virtual Result<TraceFile> Read(std::string_view bytes) const = 0;

  /// The traces as a file. Fails with bad_input where the format cannot be written.
  virtual Result<std::string> Write(std::span<const Trace> traces) const = 0;
};

/// All formats, by name. Generated.
std::vector<std::unique_ptr<TraceFormat>> MakeTraceFormats();

/// Reads a file of any format that recognises it, compressed with gzip or not.
Result<TraceFile> ReadTraces(std::string_view bytes);

/// Whether a file that begins with these bytes is of a format that is read, compressed or not. Some kilobytes will do.
bool IsTrace(std::string_view head);

/// The format of that name; names the nearest where there is none.
Result<std::unique_ptr<TraceFormat>> FindTraceFormat(std::string_view name);

}  // namespace tidemark
