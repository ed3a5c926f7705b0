// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemark {

/// The bytes of a file that may be larger than memory: a regular file is mapped and its pages come as they are read;
/// a pipe, or stdin for the path "-", is read to its end. Whoever cuts a file off while it is mapped ends this process
/// (SIGBUS; TellOfLostPages); one that grows does no harm.
class MappedFile {
 public:
  /// Fails with bad_input where there is no such file, it cannot be opened, or more than 4 GiB come out of a pipe.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return mapped_ == nullptr ? read_ : std::string_view(mapped_, size_); }

 private:
  explicit MappedFile(std::string read) : read_(std::move(read)) {}
  MappedFile(const char* mapped, std::size_t size) : mapped_(mapped), size_(size) {}

  const char* mapped_ = nullptr;  // null: the bytes are in read_
  std::size_t size_ = 0;
  std::string read_;
};

/// From now on this process ends with exit code 3 and a sentence where a file is cut off while it is mapped, or any
/// other page cannot be had: for programs that read files and little else.
void TellOfLostPages();

}  // namespace tidemark
