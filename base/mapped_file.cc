// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestPipe = std::int64_t{4} << 30;  ///< bytes; all of it is in memory

/// A file descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) {
      close(number_);
    }
  }

  int number() const { return number_; }

 private:
  int number_;
};

/// Of a signal handler: only what POSIX allows there.
[[noreturn]] void EndOfLostPages(int /*signal*/) {
  constexpr std::string_view kText =
      "tidemark: error: a file was cut off while it was read (or its disk failed)\n"
      "  hint: try again once nobody writes it any more\n";
  if (write(STDERR_FILENO, kText.data(), kText.size()) < 0) {  // nobody listens, and the exit code tells all the same
    _exit(static_cast<int>(ErrorCode::machine_cannot));
  }
  _exit(static_cast<int>(ErrorCode::machine_cannot));
}

}  // namespace

void TellOfLostPages() {
  struct sigaction action = {};
  action.sa_handler = EndOfLostPages;
  sigaction(SIGBUS, &action, nullptr);
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  struct stat status = {};
  const std::string file = path == "-" ? "/dev/stdin" : path;
  if (stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    TIDEMARK_ASSIGN(std::string read, ReadBinaryFile(file, kLargestPipe));
    return MappedFile(std::move(read));
  }
  const Descriptor descriptor(file);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* mapped =
      descriptor.number() < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.number(), 0);
  if (mapped == MAP_FAILED) {
    return Result<MappedFile>(BadInput(fmt::format("cannot be opened: {}", std::generic_category().message(errno))))
        .At(path);
  }
  madvise(mapped, size, MADV_SEQUENTIAL);
  return MappedFile(static_cast<const char*>(mapped), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)), size_(other.size_), read_(std::move(other.read_)) {}

MappedFile::~MappedFile() {
  if (mapped_ != nullptr) {
    munmap(const_cast<char*>(mapped_), size_);
  }
}

}  // namespace tidemark
