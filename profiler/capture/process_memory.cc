// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/process_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

namespace tidemark {
namespace {

std::uint64_t PageSize() {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

/// The lines of a file in /proc, without memory of the heap; a longer line than the buffer is cut.
class Lines {
 public:
  explicit Lines(const char* path) : file_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Lines() {
    if (file_ >= 0) {
      close(file_);
    }
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  /// Valid until the next one is asked for; empty at the end.
  std::string_view Next() {
    begin_ += line_;
    const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
    std::size_t length = rest.find('\n');
    if (length == std::string_view::npos) {
      std::memmove(buffer_.data(), rest.data(), rest.size());
      begin_ = 0;
      end_ = rest.size();
      while (file_ >= 0 && end_ < buffer_.size()) {
        const ssize_t got = read(file_, buffer_.data() + end_, buffer_.size() - end_);
        if (got <= 0) {
          break;
        }
        end_ += static_cast<std::size_t>(got);
      }
      length = std::string_view(buffer_.data(), end_).find('\n');
    }
    line_ = length == std::string_view::npos ? end_ - begin_ : length + 1;
    return {buffer_.data() + begin_, line_};
  }

 private:
  int file_;
  std::array<char, 8192> buffer_{};
  std::size_t begin_ = 0, end_ = 0, line_ = 0;
};

std::int64_t NumberIn(std::string_view text) {
  const std::size_t digit = text.find_first_of("0123456789");
  std::int64_t number = 0;
  if (digit != std::string_view::npos) {
    std::from_chars(text.data() + digit, text.data() + text.size(), number);
  }
  return number;
}

/// "Rss:   1672 kB", where kB are KiB.
std::optional<Bytes> ValueOf(std::string_view line, std::string_view key) {
  return line.starts_with(key) ? std::optional(Bytes(NumberIn(line.substr(key.size())) * 1024)) : std::nullopt;
}

/// The first line of a mapping in smaps: "55d0-55d1 rw-p 00001000 08:01 42   /usr/bin/cat".
struct Heading {
  std::uint64_t begin = 0, end = 0;
  bool shared = false, writable = false;
  std::string_view name;
};

std::optional<Heading> ReadHeading(std::string_view line) {
  Heading heading;
  const char* const end_of_line = line.data() + line.size();
  const auto begin = std::from_chars(line.data(), end_of_line, heading.begin, 16);
  if (begin.ec != std::errc() || begin.ptr == end_of_line || *begin.ptr != '-') {
    return std::nullopt;
  }
  const auto end = std::from_chars(begin.ptr + 1, end_of_line, heading.end, 16);
  const std::string_view rest(end.ptr, static_cast<std::size_t>(end_of_line - end.ptr));
  if (rest.size() < 6) {
    return std::nullopt;
  }
  heading.writable = rest[2] == 'w';
  heading.shared = rest[4] == 's';
  const std::size_t name = rest.find_first_of("/[");
  heading.name = name == std::string_view::npos ? "" : rest.substr(name, rest.find('\n') - name);
  return heading;
}

}  // namespace

std::optional<Bytes> ResidentNow() {
  static const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  std::array<char, 128> text{};
  const ssize_t length = file < 0 ? -1 : pread(file, text.data(), text.size(), 0);
  if (length <= 0) {
    return std::nullopt;
  }
  const std::string_view line(text.data(), static_cast<std::size_t>(length));
  return Bytes(NumberIn(line.substr(line.find(' '))) * static_cast<std::int64_t>(PageSize()));
}

std::optional<Bytes> ResidentExactly() {
  Lines lines("/proc/self/smaps_rollup");
  for (std::string_view line = lines.Next(); !line.empty(); line = lines.Next()) {
    if (const auto resident = ValueOf(line, "Rss:")) {
      return resident;
    }
  }
  return std::nullopt;
}

std::optional<ProcessStatus> ReadProcessStatus() {
  Lines lines("/proc/self/status");
  ProcessStatus status;
  bool found = false;
  for (std::string_view line = lines.Next(); !line.empty(); line = lines.Next()) {
    if (const auto peak = ValueOf(line, "VmHWM:")) {
      status.resident_peak = *peak;
      found = true;
    } else if (const auto swapped = ValueOf(line, "VmSwap:")) {
      status.swapped = *swapped;
    }
  }
  return found ? std::optional(status) : std::nullopt;
}

bool ForgetResidentPeak() {
  const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  const bool done = file >= 0 && write(file, "5", 1) == 1;
  if (file >= 0) {
    close(file);
  }
  return done;
}

Bytes ResidentIn(std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t kPages = 4096;
  if (begin >= end) {
    return {};
  }
  std::array<unsigned char, kPages> resident;
  const std::uint64_t page = PageSize();
  std::uint64_t bytes = 0;
  for (std::uint64_t first = begin / page * page; first < end; first += kPages * page) {
    const std::uint64_t last = std::min(first + kPages * page, (end + page - 1) / page * page);
    void* const address = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr): a mapping's address
    if (mincore(address, last - first, resident.data()) != 0) {
      continue;
    }
    for (std::uint64_t at = first; at < last; at += page) {
      const bool here = (resident[(at - first) / page] & 1) != 0;
      bytes += here ? std::min(at + page, end) - std::max(at, begin) : 0;
    }
  }
  return Bytes(static_cast<std::int64_t>(bytes));
}

std::optional<Mappings> ReadMappings() {
  Lines lines("/proc/self/smaps");
  Mappings mappings;
  Bytes* owner = nullptr;
  std::uint64_t data_end = 0;  // of a library's data in its file, which is followed by its data that is all zero
  for (std::string_view line = lines.Next(); !line.empty(); line = lines.Next()) {
    if (const auto heading = ReadHeading(line)) {
      const bool file = heading->name.starts_with('/');
      const bool zeros = heading->name.empty() && heading->begin == data_end;
      owner = heading->shared                              ? &mappings.shared
              : file || zeros || heading->name == "[vdso]" ? &mappings.code
              : heading->name == "[stack]"                 ? &mappings.stack
                                                           : nullptr;
      data_end = file && heading->writable && !heading->shared ? heading->end : 0;
    } else if (const auto resident = ValueOf(line, "Rss:"); resident && owner != nullptr) {
      *owner += *resident;
    }
  }
  return mappings.code > Bytes() ? std::optional(mappings) : std::nullopt;
}

}  // namespace tidemark
