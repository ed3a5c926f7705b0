// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl_library_cuda.h"

#include <fmt/format.h>

#include "base/shared_library.h"
#include "profiler/comm/nccl.h"

namespace tidemark {
namespace {

constexpr int kOldest = NCCL_VERSION(2, 18, 0);  // the first with ncclCommSplit
const char* const kHint =
    "install libnccl2, or pip's nvidia-nccl-cu13, and set LD_LIBRARY_PATH to the library's folder";

bool FindAll(const SharedLibrary& library, NcclLibrary& nccl) {
  return library.Find("ncclGetUniqueId", nccl.make_id) && library.Find("ncclCommInitRankConfig", nccl.join) &&
         library.Find("ncclCommSplit", nccl.split) && library.Find("ncclCommDestroy", nccl.destroy) &&
         library.Find("ncclCommAbort", nccl.abort) && library.Find("ncclCommGetAsyncError", nccl.state) &&
         library.Find("ncclGetErrorString", nccl.error_string) && library.Find("ncclGetLastError", nccl.last_error) &&
         library.Find("ncclGroupStart", nccl.group_start) && library.Find("ncclGroupEnd", nccl.group_end) &&
         library.Find("ncclAllReduce", nccl.all_reduce) && library.Find("ncclReduceScatter", nccl.reduce_scatter) &&
         library.Find("ncclAllGather", nccl.all_gather) && library.Find("ncclReduce", nccl.reduce) &&
         library.Find("ncclBroadcast", nccl.broadcast) && library.Find("ncclSend", nccl.send) &&
         library.Find("ncclRecv", nccl.receive);
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
  const SharedLibrary library = SharedLibrary::OfCuda("libnccl.so.2", CUDART_VERSION / 1000);
  if (!library.is_there()) {
    return Error{ErrorCode::machine_cannot, "", "NCCL (libnccl.so.2), by which GPUs exchange data, is not installed",
                 kHint};
  }
  NcclLibrary nccl;
  int version = 0;
  if (!library.Find("ncclGetVersion", nccl.get_version) || nccl.get_version(&version) != ncclSuccess) {
    return Error{ErrorCode::machine_cannot, "", "the NCCL that is installed does not say its version", kHint};
  }
  if (const std::string why = WhyNotNccl(version); !why.empty()) {
    return Error{ErrorCode::machine_cannot, "", why, kHint};
  }
  if (!FindAll(library, nccl)) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("the NCCL {} that is installed is not whole: {}", NcclVersionText(version),
                             SharedLibrary::LoadersWords()),
                 kHint};
  }
  nccl.version = NcclVersionText(version);
  nccl.code = version;
  return nccl;
}

Result<std::string> NcclVersion() {
  TIDEMARK_ASSIGN(const NcclLibrary nccl, LoadNccl());
  return nccl.version;
}

}  // namespace tidemark
