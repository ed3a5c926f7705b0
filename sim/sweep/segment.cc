// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/segment.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <utility>

namespace tidemark {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'M', 'S', 'W', 'E', 'E', 'P', '1'};
constexpr std::int64_t kRowsAtOnce = 256;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint64_t sweep = 0;
  std::int64_t row_bytes = sizeof(PricedRow);
  SegmentCounts counts;
  std::int64_t reason_bytes = 0;  ///< of all reasons, each behind its length
  std::uint64_t checksum = 0;     ///< of all behind the header: CRC-32
};
static_assert(std::is_trivially_copyable_v<Header> && std::is_trivially_copyable_v<PricedCombinations::Refused>);

Error CannotWrite(const std::string& path) {
  return {ErrorCode::machine_cannot, path, fmt::format("cannot be written ({})", std::strerror(errno)),
          fmt::format("{}what was priced so far is kept: --resume goes on from there",
                      errno == ENOSPC ? "the disk is full; " : "")};
}

Error CannotRead(const std::string& path) {
  return {ErrorCode::machine_cannot, path, fmt::format("cannot be read ({})", std::strerror(errno)),
          errno == EMFILE ? "let the process open more files (ulimit -n 2048); the rows are kept, for --resume"
                          : "the rows are kept, for --resume"};
}

Error Damaged(const std::string& path) {
  return {ErrorCode::bad_input, path, "is damaged", "remove it: --resume prices its rows again"};
}

std::string Joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) {
    const auto size = static_cast<std::uint32_t>(reason.size());
    text.append(reinterpret_cast<const char*>(&size), sizeof size);
    text += reason;
  }
  return text;
}

template <class T>
uLong Checksum(uLong checksum, const T* values, std::size_t count) {
  // Of nothing at no address zlib makes a first checksum.
  return count == 0 ? checksum : crc32_z(checksum, reinterpret_cast<const Bytef*>(values), count * sizeof(T));
}

template <class T>
bool Put(std::FILE* file, const T* values, std::size_t count) {
  return std::fwrite(values, sizeof(T), count, file) == count;
}

}  // namespace

Status WriteSegment(const std::string& path, std::uint64_t sweep, const PricedCombinations& priced) {
  std::vector<PricedRow> rows = priced.rows;
  std::ranges::sort(rows, ComesBefore);
  const std::string reasons = Joined(priced.reasons);
  Header header;
  header.sweep = sweep;
  header.counts = {std::ssize(rows), std::ssize(priced.refused), priced.pruned};
  header.reason_bytes = std::ssize(reasons);
  uLong checksum = Checksum(crc32_z(0, nullptr, 0), rows.data(), rows.size());
  checksum = Checksum(checksum, priced.refused.data(), priced.refused.size());
  header.checksum = Checksum(checksum, reasons.data(), reasons.size());
  const std::string unfinished = path + ".unfinished";
  std::FILE* const file = std::fopen(unfinished.c_str(), "wb");
  if (file == nullptr) {
    return CannotWrite(unfinished);
  }
  const bool written = Put(file, &header, 1) && Put(file, rows.data(), rows.size()) &&
                       Put(file, priced.refused.data(), priced.refused.size()) &&
                       Put(file, reasons.data(), reasons.size());
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    Error error = CannotWrite(path);
    std::remove(unfinished.c_str());
    return error;
  }
  return Done{};
}

Result<SegmentReader> SegmentReader::Open(const std::string& path, std::uint64_t sweep) {
  SegmentReader reader;
  reader.path_ = path;
  reader.file_.reset(std::fopen(path.c_str(), "rb"));
  if (reader.file_ == nullptr) {
    return CannotRead(path);
  }
  Header header;
  if (std::fread(&header, sizeof header, 1, reader.file_.get()) != 1 || header.magic != kMagic ||
      header.row_bytes != sizeof(PricedRow)) {
    return Error{ErrorCode::bad_input, path, "is no segment of a sweep by this version of tidemark",
                 "does another sweep write to the same --out? If not, remove it: --resume prices its rows again"};
  }
  if (header.sweep != sweep) {
    return Error{ErrorCode::bad_input, path, "belongs to another sweep: another job, other axes or other limits",
                 "resume with the command that began it, or remove the folder to begin anew"};
  }
  const auto expected = static_cast<std::uintmax_t>(
      static_cast<std::int64_t>(sizeof header) + header.counts.rows * header.row_bytes +
      header.counts.refused * static_cast<std::int64_t>(sizeof(PricedCombinations::Refused)) + header.reason_bytes);
  std::error_code code;
  if (std::filesystem::file_size(path, code) != expected) {
    return Error{ErrorCode::bad_input, path, "is cut short", "remove it; --resume prices its rows again"};
  }
  reader.counts_ = header.counts;
  reader.checksum_ = header.checksum;
  return reader;
}

Status SegmentReader::Check() {
  constexpr std::size_t kBlock = 1 << 16;
  std::vector<char> block(kBlock);
  uLong checksum = crc32_z(0, nullptr, 0);
  while (const std::size_t read = std::fread(block.data(), 1, kBlock, file_.get())) {
    checksum = Checksum(checksum, block.data(), read);
  }
  return checksum == checksum_ && std::ferror(file_.get()) == 0 ? Status(Done{}) : Status(Damaged(path_));
}

Result<bool> SegmentReader::Next(PricedRow& row) {
  if (at_ == buffer_.size()) {
    const auto left = static_cast<std::size_t>(std::min(kRowsAtOnce, counts_.rows - read_));
    buffer_.resize(left);
    at_ = 0;
    if (left == 0) {
      return false;
    }
    if (std::fread(buffer_.data(), sizeof(PricedRow), left, file_.get()) != left) {
      return CannotRead(path_);
    }
    read_ += static_cast<std::int64_t>(left);
  }
  row = buffer_[at_++];
  return true;
}

Result<PricedCombinations> SegmentReader::Refused() {
  PricedCombinations priced;
  priced.refused.resize(static_cast<std::size_t>(counts_.refused));
  const auto behind_rows = static_cast<long>(sizeof(Header)) + counts_.rows * static_cast<long>(sizeof(PricedRow));
  bool read = std::fseek(file_.get(), behind_rows, SEEK_SET) == 0 &&
              std::fread(priced.refused.data(), sizeof(PricedCombinations::Refused), priced.refused.size(),
                         file_.get()) == priced.refused.size();
  std::uint32_t size = 0;
  while (read && std::fread(&size, sizeof size, 1, file_.get()) == 1) {
    std::string& reason = priced.reasons.emplace_back(size, '\0');
    read = std::fread(reason.data(), 1, size, file_.get()) == size;
  }
  const bool named =
      std::ranges::all_of(priced.refused, [&](const auto& refused) { return refused.reason < priced.reasons.size(); });
  if (!read || !named) {
    return Damaged(path_);
  }
  priced.pruned = counts_.pruned;
  return priced;
}

}  // namespace tidemark
