// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/trace_archive.h"

#include <fmt/format.h>
#include <minizip/ioapi.h>
#include <minizip/zip.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

constexpr std::uint32_t kFirstDosDate = ((1U << 5) | 1U) << 16;  ///< 1980-01-01: no clock gets into the bytes
constexpr std::size_t kLargestOfOldZips = 0x7fffffff;            ///< larger files take what ZIP64 adds
constexpr std::size_t kArchivePiece = std::size_t{1} << 30;      ///< minizip's lengths have 32 bits
constexpr std::size_t kLongestStem = 100;
constexpr int kLevel = 3;  ///< of deflate: a tenth of the best's time, a tenth more bytes

struct ArchivedFile {
  std::string path, machine, bytes;
};

/// The name of a machine as that of a file: "stage 0" is "stage-0".
std::string FileStem(const std::string& name) {
  std::string stem;
  for (const char letter : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '.' || letter == '_';
    if (plain || (!stem.empty() && stem.back() != '-')) {
      stem += plain ? letter : '-';
    }
  }
  while (stem.ends_with('-')) {
    stem.pop_back();
  }
  stem.resize(std::min(stem.size(), kLongestStem));
  return stem.empty() || stem.front() == '.' ? "trace" + stem : stem;
}

/// `name`, or the first of "name-2", "name-3" that is not taken; takes it.
std::string Different(const std::string& name, std::set<std::string>& taken) {
  std::string different = name;
  for (int i = 2; !taken.insert(different).second; ++i) {
    different = fmt::format("{}-{}", name, i);
  }
  return different;
}

Result<std::vector<ArchivedFile>> Members(const TraceFormat& format, std::span<const Trace> traces) {
  std::vector<ArchivedFile> members;
  std::set<std::string> stems, machines;
  for (const Trace& trace : traces) {
    const std::string machine = Different(trace.role.empty() ? "trace" : trace.role, machines);
    const std::string path = Different(FileStem(machine), stems) + std::string(format.endings().front());
    TIDEMARK_ASSIGN(std::string bytes, format.Write({&trace, 1}));
    members.push_back({path, machine, std::move(bytes)});
  }
  return members;
}

std::string Manifest(std::span<const ArchivedFile> members) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const ArchivedFile& member : members) {
    files.push_back({{"path", member.path}, {"machine", {{"name", member.machine}}}});
  }
  const nlohmann::ordered_json manifest = {{"perfetto_manifest", {{"version", 1}, {"files", std::move(files)}}}};
  return manifest.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// A file in memory, for minizip: what it asks of one goes through functions of C.
struct MemoryFile {
  std::string bytes;
  std::size_t at = 0;

  static MemoryFile& Of(voidpf stream) { return *static_cast<MemoryFile*>(stream); }

  static voidpf ZCALLBACK Open(voidpf file, const void*, int) { return file; }
  static uLong ZCALLBACK Read(voidpf, voidpf, void*, uLong) { return 0; }  // of a new archive it reads nothing
  static uLong ZCALLBACK Write(voidpf, voidpf stream, const void* bytes, uLong size) {
    MemoryFile& file = Of(stream);
    file.bytes.resize(std::max(file.bytes.size(), file.at + size));
    std::copy_n(static_cast<const char*>(bytes), size, file.bytes.begin() + static_cast<std::ptrdiff_t>(file.at));
    file.at += size;
    return size;
  }
  static ZPOS64_T ZCALLBACK Tell(voidpf, voidpf stream) { return Of(stream).at; }
  static long ZCALLBACK Seek(voidpf, voidpf stream, ZPOS64_T offset, int origin) {
    MemoryFile& file = Of(stream);
    file.at = offset + (origin == ZLIB_FILEFUNC_SEEK_CUR   ? file.at
                        : origin == ZLIB_FILEFUNC_SEEK_END ? file.bytes.size()
                                                           : 0);
    return 0;
  }
  static int ZCALLBACK Close(voidpf, voidpf) { return 0; }
  static int ZCALLBACK HasFailed(voidpf, voidpf) { return 0; }
};

class Zip {
 public:
  Zip() {
    zlib_filefunc64_def functions = {MemoryFile::Open, MemoryFile::Read,  MemoryFile::Write,     MemoryFile::Tell,
                                     MemoryFile::Seek, MemoryFile::Close, MemoryFile::HasFailed, &file_};
    zip_ = zipOpen2_64("", APPEND_STATUS_CREATE, nullptr, &functions);
  }
  ~Zip() { Finish(); }
  Zip(const Zip&) = delete;
  Zip& operator=(const Zip&) = delete;

  bool Add(const std::string& path, std::string_view bytes) {
    zip_fileinfo info = {};
    info.dosDate = kFirstDosDate;
    const int is_large = bytes.size() > kLargestOfOldZips ? 1 : 0;
    if (zip_ == nullptr || zipOpenNewFileInZip64(zip_, path.c_str(), &info, nullptr, 0, nullptr, 0, nullptr, Z_DEFLATED,
                                                 kLevel, is_large) != ZIP_OK) {
      return false;
    }
    bool written = true;
    while (written && !bytes.empty()) {
      const std::string_view piece = bytes.substr(0, kArchivePiece);
      written = zipWriteInFileInZip(zip_, piece.data(), static_cast<unsigned>(piece.size())) == ZIP_OK;
      bytes.remove_prefix(piece.size());
    }
    return zipCloseFileInZip(zip_) == ZIP_OK && written;
  }

  /// Empty where it failed.
  std::string Close() { return Finish() ? std::move(file_.bytes) : std::string(); }

 private:
  bool Finish() {
    const zipFile zip = std::exchange(zip_, nullptr);
    return zip != nullptr && zipClose(zip, nullptr) == ZIP_OK;
  }

  MemoryFile file_;
  zipFile zip_ = nullptr;
};

}  // namespace

Result<std::string> WriteArchive(const TraceFormat& format, std::span<const Trace> traces) {
  if (!format.archives()) {
    return BadInput(fmt::format("{} has no archives of several files", format.name()),
                    fmt::format("let the name end in {}", fmt::join(format.endings(), " or ")));
  }
  TIDEMARK_ASSIGN(const std::vector<ArchivedFile> members, Members(format, traces));
  const std::string manifest = Manifest(members);
  Zip zip;
  bool sound = zip.Add("perfetto_manifest.json", manifest);
  for (const ArchivedFile& member : members) {
    sound = sound && zip.Add(member.path, member.bytes);
  }
  std::string bytes = sound ? zip.Close() : std::string();
  if (bytes.empty()) {
    return Error{ErrorCode::machine_cannot, {}, "the ZIP could not be put together", "is there memory enough?"};
  }
  return bytes;
}

}  // namespace tidemark
