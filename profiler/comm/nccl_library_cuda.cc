// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl_library_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace tidemark {
namespace {

constexpr int kOldest = NCCL_VERSION(2, 18, 0);  // the first with ncclCommSplit
const char* const kHint =
    "install libnccl2, or pip's nvidia-nccl-cu13, and set LD_LIBRARY_PATH to the library's folder";

void* Open() {
  constexpr std::array<const char*, 3> kPlaces = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                                  "/usr/local/cuda-13/lib64/libnccl.so.2"};
  for (const char* place : kPlaces) {
    if (void* library = dlopen(place, RTLD_NOW | RTLD_LOCAL)) {
      return library;
    }
  }
  return nullptr;
}

template <class Call>
bool Find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  return call != nullptr;
}

bool FindAll(void* library, NcclLibrary& nccl) {
  return Find(library, "ncclGetUniqueId", nccl.make_id) && Find(library, "ncclCommInitRankConfig", nccl.join) &&
         Find(library, "ncclCommSplit", nccl.split) && Find(library, "ncclCommDestroy", nccl.destroy) &&
         Find(library, "ncclCommAbort", nccl.abort) && Find(library, "ncclCommGetAsyncError", nccl.state) &&
         Find(library, "ncclGetErrorString", nccl.error_string) && Find(library, "ncclGetLastError", nccl.last_error) &&
         Find(library, "ncclGroupStart", nccl.group_start) && Find(library, "ncclGroupEnd", nccl.group_end) &&
         Find(library, "ncclAllReduce", nccl.all_reduce) && Find(library, "ncclReduceScatter", nccl.reduce_scatter) &&
         Find(library, "ncclAllGather", nccl.all_gather) && Find(library, "ncclReduce", nccl.reduce) &&
         Find(library, "ncclBroadcast", nccl.broadcast) && Find(library, "ncclSend", nccl.send) &&
         Find(library, "ncclRecv", nccl.receive);
}

}  // namespace

std::string NcclVersionText(int version) {
  // nccl.h: NCCL_VERSION; 2.8 and older have two digits less.
  return version < 10000 ? fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100)
                         : fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string WhyNotNccl(int version) {
  if (version < kOldest) {
    return fmt::format("NCCL {} is older than {}", NcclVersionText(version), NcclVersionText(kOldest));
  }
  return version / 10000 == NCCL_MAJOR
             ? ""
             : fmt::format("NCCL {} has other calls than NCCL {}", NcclVersionText(version), NCCL_MAJOR);
}

std::string NcclLibrary::Describe(ncclResult_t result) const {
  const char* last = last_error(nullptr);
  const std::string words = last == nullptr ? "" : last;
  return words.empty() ? error_string(result) : fmt::format("{}: {}", error_string(result), words);
}

Result<NcclLibrary> LoadNccl() {
  void* library = Open();
  if (library == nullptr) {
    return Error{ErrorCode::machine_cannot, "", "NCCL (libnccl.so.2), by which GPUs exchange data, is not installed",
                 kHint};
  }
  NcclLibrary nccl;
  int version = 0;
  if (!Find(library, "ncclGetVersion", nccl.get_version) || nccl.get_version(&version) != ncclSuccess) {
    return Error{ErrorCode::machine_cannot, "", "the NCCL that is installed does not say its version", kHint};
  }
  if (const std::string why = WhyNotNccl(version); !why.empty()) {
    return Error{ErrorCode::machine_cannot, "", why, kHint};
  }
  if (!FindAll(library, nccl)) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("the NCCL {} that is installed is not whole: {}", NcclVersionText(version), dlerror()),
                 kHint};
  }
  nccl.version = NcclVersionText(version);
  return nccl;
}

}  // namespace tidemark
