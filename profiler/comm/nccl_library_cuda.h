// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemark {

/// NCCL's calls, found in its library at run time: it is never linked, so that the program starts where there is none.
/// The library stays until the process ends: it has threads of its own.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) make_id = nullptr;
  decltype(&ncclCommInitRankConfig) join = nullptr;
  decltype(&ncclCommSplit) split = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) state = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  std::string version;  ///< "2.28.9"
  int code = 0;         ///< the same as NCCL_VERSION_CODE

  /// "unhandled system error: Connection refused", the second half being NCCL's own last words, where it has some.
  std::string Describe(ncclResult_t result) const;
};

/// Looks in the loader's path and in the CUDA toolkit's usual places. Fails with machine_cannot.
Result<NcclLibrary> LoadNccl();

/// Why a library of this version, coded as NCCL_VERSION_CODE, cannot be used; empty if it can.
std::string WhyNotNccl(int version);
/// "2.28.9" of 22809.
std::string NcclVersionText(int version);

}  // namespace tidemark
