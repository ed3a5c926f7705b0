// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::size_t kHighestRatio = 1032;  ///< of deflate, https://zlib.net/zlib_tech.html

/// zlib's inflater for gzip members.
class Inflater {
 public:
  explicit Inflater(std::string_view bytes) : rest_(bytes) {
    TIDEMARK_CHECK(inflateInit2(&stream_, MAX_WBITS + 16) == Z_OK);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  /// Appends the next piece, of at most that many bytes; false where the file is damaged.
  bool Append(std::string& out, std::size_t n_bytes) {
    const std::size_t before = out.size();
    const std::size_t n_piece = std::min(n_bytes, kPiece);
    out.resize(before + n_piece);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream_.avail_out = static_cast<uInt>(n_piece);
    int said = Z_OK;
    while (stream_.avail_out > 0 && said == Z_OK) {
      if (stream_.avail_in == 0) {
        Feed();
      }
      said = inflate(&stream_, Z_NO_FLUSH);
    }
    out.resize(out.size() - stream_.avail_out);
    if (said == Z_STREAM_END) {
      return NextMember();
    }
    return said == Z_OK;
  }

  bool ended() const { return ended_; }

 private:
  void Feed() {
    const std::size_t n_bytes = std::min<std::size_t>(rest_.size(), std::numeric_limits<uInt>::max());
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(rest_.data()));  // zlib only reads
    stream_.avail_in = static_cast<uInt>(n_bytes);
    rest_.remove_prefix(n_bytes);
  }

  /// What follows a member and is none is padding, which gzip ignores as well.
  bool NextMember() {
    const std::string_view ahead(reinterpret_cast<const char*>(stream_.next_in), stream_.avail_in + rest_.size());
    ended_ = !IsGzip(ahead);
    return ended_ || inflateReset(&stream_) == Z_OK;
  }

  z_stream stream_ = {};
  std::string_view rest_;  // what zlib does not have yet
  bool ended_ = false;
};

/// What the last member says that it holds, modulo 2^32; only a hint.
std::size_t ToldSize(std::string_view bytes) {
  std::size_t told = 0;
  for (std::size_t i = 1; i <= 4 && bytes.size() >= 4; ++i) {
    told = told << 8U | static_cast<unsigned char>(bytes[bytes.size() - i]);
  }
  return told;
}

Error Damaged(const std::string& out) {
  return {ErrorCode::bad_input,
          {},
          fmt::format("the gzip file is damaged or cut off after {} bytes of what it holds",
                      Grouped(static_cast<std::int64_t>(out.size()))),
          "gzip -t FILE checks it; gzip -dc FILE writes what can be saved"};
}

}  // namespace

bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

Result<std::string> Inflated(std::string_view bytes, std::int64_t largest_bytes) {
  std::string out;
  out.reserve(std::min({ToldSize(bytes), bytes.size() * kHighestRatio, static_cast<std::size_t>(largest_bytes)}) +
              kPiece);
  Inflater inflater(bytes);
  while (!inflater.ended()) {
    if (!inflater.Append(out, kPiece)) {
      return Damaged(out);
    }
    if (out.size() > static_cast<std::size_t>(largest_bytes)) {
      return BadInput(fmt::format("the gzip file holds more than {}", Text(Bytes(largest_bytes))),
                      "unpack it: a file that is not compressed may be larger");
    }
  }
  return out;
}

Result<std::string> InflatedStart(std::string_view bytes, std::size_t n_bytes) {
  std::string out;
  Inflater inflater(bytes);
  while (out.size() < n_bytes && !inflater.ended()) {  // members may be short, or empty
    if (!inflater.Append(out, n_bytes - out.size())) {
      return Damaged(out);
    }
  }
  return out;
}

}  // namespace tidemark
