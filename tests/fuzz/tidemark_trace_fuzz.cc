// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "traces/formats/format.h"
#include "traces/formats/tidemark_frames.h"
#include "traces/trace.h"

namespace {

std::uint32_t WordAt(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return word;
}

void AppendWord(std::string& out, std::uint32_t word) {
  for (int shift = 0; shift < 32; shift += 8) {
    out += static_cast<char>((word >> shift) & 0xffU);
  }
}

/// The same records with lengths and checksums that are right: no mutation would get past them.
std::string Mended(std::string_view bytes) {
  std::string out(tidemark::kTraceMagic);
  std::size_t at = std::min(bytes.size(), tidemark::kTraceMagic.size());
  while (bytes.size() - at > tidemark::kFrameHead) {
    const std::size_t most = bytes.size() - at - tidemark::kFrameHead;
    const std::size_t length = std::min<std::size_t>(WordAt(bytes, at), most);
    const std::string_view payload = bytes.substr(at + tidemark::kFrameHead, length);
    AppendWord(out, static_cast<std::uint32_t>(length));
    AppendWord(out, static_cast<std::uint32_t>(
                        crc32(0, reinterpret_cast<const Bytef*>(payload.data()), static_cast<uInt>(payload.size()))));
    out += payload;
    at += tidemark::kFrameHead + length;
  }
  return out;
}

/// Refused with a sentence, or sound traces, which are the same when written and read again.
void Check(const tidemark::TraceFormat& format, std::string_view bytes) {
  const tidemark::Result<tidemark::TraceFile> file = format.Read(bytes);
  if (!file) {
    TIDEMARK_CHECK(!file.error().message.empty());
    return;
  }
  for (const tidemark::Trace& trace : file->traces) {
    TIDEMARK_CHECK(tidemark::Verify(trace).empty());
  }
  const tidemark::Result<std::string> written = format.Write(file->traces);
  TIDEMARK_CHECK(written.ok());
  const tidemark::Result<tidemark::TraceFile> again = format.Read(*written);
  TIDEMARK_CHECK(again.ok() && again->note.empty());
  TIDEMARK_CHECK(*format.Write(again->traces) == *written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::unique_ptr<tidemark::TraceFormat> format = std::move(*tidemark::FindTraceFormat("tidemark"));
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Check(*format, bytes);
  Check(*format, Mended(bytes));
  return 0;
}
