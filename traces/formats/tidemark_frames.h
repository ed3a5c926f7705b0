// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "traces/trace.h"

namespace tidemark {
namespace wire {
class Record;  // generated from traces/trace.proto
}

// The framing of Tidemark's own trace file. A magic line, then frames:
//
//   "TIDEMARK TRACE 1\n"                         17 bytes; the number is the version of the framing
//   u32 length | u32 crc32(payload) | payload    little endian; the payload is one wire::Record (traces/trace.proto)
//
// A frame is complete or it does not count, so a file that was cut anywhere, by a crash or a full disk, reads up to its
// last whole frame and says so. Within a trace, tables come before the events that use them; that makes every prefix a
// sound trace.

inline constexpr std::string_view kTraceFamily = "TIDEMARK TRACE ";
inline constexpr std::string_view kTraceMagic = "TIDEMARK TRACE 1\n";
inline constexpr std::size_t kFrameHead = 8;

inline constexpr std::uint16_t kNoRow = 0xffff;
static_assert(kNoSpan == kNoRow && kNoStream == kNoRow);

void AppendFrame(std::string& out, const wire::Record& record);

/// The payload of the frame at `at`; nothing where the file was cut or damaged there.
std::optional<std::string_view> FrameAt(std::string_view bytes, std::size_t at);

/// A column's code of a row of another table (a span, a stream): 0 is none.
inline std::uint32_t RowCode(std::uint16_t row) { return row == kNoRow ? 0U : row + 1U; }
inline std::uint16_t RowOf(std::uint32_t code) {
  return static_cast<std::uint16_t>(std::min<std::uint32_t>(code - 1U, kNoRow));  // 0 wraps around to none
}

/// Differences to the last value; unsigned arithmetic, since hostile files may hold anything.
class Delta {
 public:
  std::int64_t Encode(std::int64_t value) {
    const std::uint64_t difference = static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(last_);
    last_ = value;
    return static_cast<std::int64_t>(difference);
  }
  std::int64_t Decode(std::int64_t difference) {
    last_ = static_cast<std::int64_t>(static_cast<std::uint64_t>(last_) + static_cast<std::uint64_t>(difference));
    return last_;
  }

 private:
  std::int64_t last_ = 0;
};

}  // namespace tidemark
