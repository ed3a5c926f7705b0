// SPDX-License-Identifier: Apache-2.0
#include "cli/write_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "cli/options.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

Error NotWritable(const std::string& path) {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return {full ? ErrorCode::machine_cannot : ErrorCode::bad_input, path,
          fmt::format("a file that can be written was expected ({})", std::strerror(errno)),
          full ? "is the disk full?" : "does the folder exist, and may you write there?"};
}

Error IsDirectory(const std::string& path) {
  return {ErrorCode::bad_input, path, "a file was expected, but this is a directory", "name a file within it"};
}

/// Where a link leads: it stays, and what it leads to is written.
Result<std::string> PlaceOf(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  fs::path place = path;
  std::error_code none;
  for (int links = 0; fs::is_symlink(fs::symlink_status(place, none)); ++links) {
    if (links == kMostLinks) {
      errno = ELOOP;
      return NotWritable(path);
    }
    const fs::path target = fs::read_symlink(place, none);
    place = target.is_absolute() ? target : place.parent_path() / target;
  }
  return place.string();
}

Status WriteDirectly(const std::string& path, std::string_view bytes) {
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "wb"));
  if (!file) {
    return NotWritable(path);
  }
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  if (std::fclose(file.release()) != 0 || !written) {
    return Error{ErrorCode::machine_cannot, path, fmt::format("cannot be written ({})", std::strerror(errno)),
                 "is the disk full, or is there a limit on the size of files (ulimit -f)?"};
  }
  return Done{};
}

}  // namespace

Status WriteFile(const std::string& named, std::string_view bytes) {
  if (named == "-") {
    return WriteOut(bytes);
  }
  std::error_code ignored;
  TIDEMARK_ASSIGN(const std::string path, PlaceOf(named));
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) {
    return IsDirectory(path);
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return WriteDirectly(path, bytes);
  }
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  Status written = WriteDirectly(temporary, bytes);
  if (!written) {
    fs::remove(temporary, ignored);
    Error error = written.error();
    error.where = path;
    return error;
  }
  std::error_code failure;
  fs::rename(temporary, path, failure);
  if (failure) {
    fs::remove(temporary, ignored);
    return Error{ErrorCode::bad_input, path, fmt::format("cannot be replaced ({})", failure.message()), {}};
  }
  return Done{};
}

Status CheckWritable(const std::string& named) {
  std::error_code ignored;
  TIDEMARK_ASSIGN(const std::string path, PlaceOf(named));
  const fs::file_status status = fs::status(path, ignored);
  if (path.empty() || path == "-" ||
      (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))) {
    return Done{};
  }
  if (fs::is_directory(status)) {
    return IsDirectory(path);
  }
  // The file that is there stays as it is; one beside it shows whether the folder takes another.
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const Status written = WriteDirectly(temporary, " ");
  fs::remove(temporary, ignored);
  if (!written) {
    Error error = written.error();
    error.where = path;
    return error;
  }
  return Done{};
}

Status RefuseToOverwrite(const std::string& path, const std::string& input) {
  std::error_code none;
  if (!path.empty() && std::filesystem::equivalent(path, input, none)) {
    return BadInput(fmt::format("'{}' is read and would be overwritten", path), "name another file");
  }
  return Done{};
}

}  // namespace tidemark
