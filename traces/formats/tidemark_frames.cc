// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/tidemark_frames.h"

#include <zlib.h>

#include "base/check.h"
#include "traces/trace.pb.h"

namespace tidemark {
namespace {

constexpr std::size_t kLargestFrame = std::size_t{1} << 30;

std::uint32_t Checksum(std::string_view payload) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(payload.data()), static_cast<uInt>(payload.size())));
}

void AppendWord(std::string& out, std::uint32_t word) {
  for (int shift = 0; shift < 32; shift += 8) {
    out += static_cast<char>((word >> shift) & 0xffU);
  }
}

std::uint32_t WordAt(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return word;
}

}  // namespace

void AppendFrame(std::string& out, const wire::Record& record) {
  const std::string payload = record.SerializeAsString();
  TIDEMARK_CHECK(payload.size() < kLargestFrame);
  AppendWord(out, static_cast<std::uint32_t>(payload.size()));
  AppendWord(out, Checksum(payload));
  out += payload;
}

std::optional<std::string_view> FrameAt(std::string_view bytes, std::size_t at) {
  if (bytes.size() - at < kFrameHead) {
    return std::nullopt;
  }
  const std::size_t length = WordAt(bytes, at);
  if (length > kLargestFrame || length > bytes.size() - at - kFrameHead) {
    return std::nullopt;
  }
  const std::string_view payload = bytes.substr(at + kFrameHead, length);
  return Checksum(payload) == WordAt(bytes, at + 4) ? std::optional(payload) : std::nullopt;
}

}  // namespace tidemark
