// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/quantity.h"
#include "profiler/comm/nccl_library_cuda.h"

namespace tidemark {

/// The calls of CUDA that communicators make; tests bring their own.
struct StreamCalls {
  cudaError_t (*use_gpu)(int) = &cudaSetDevice;
  cudaError_t (*make_stream)(cudaStream_t*, unsigned) = &cudaStreamCreateWithFlags;
  cudaError_t (*destroy_stream)(cudaStream_t) = &cudaStreamDestroy;
  cudaError_t (*make_event)(cudaEvent_t*, unsigned) = &cudaEventCreateWithFlags;
  cudaError_t (*destroy_event)(cudaEvent_t) = &cudaEventDestroy;
  cudaError_t (*record)(cudaEvent_t, cudaStream_t) = &cudaEventRecord;
  cudaError_t (*query)(cudaEvent_t) = &cudaEventQuery;
  cudaError_t (*wait)(cudaStream_t, cudaEvent_t, unsigned) = &cudaStreamWaitEvent;
  cudaError_t (*copy)(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) = &cudaMemcpyAsync;
  cudaError_t (*allocate)(void**, std::size_t) = &cudaMalloc;
  cudaError_t (*free)(void*) = &cudaFree;
  cudaError_t (*clear_error)() = &cudaGetLastError;
  const char* (*name)(cudaError_t) = &cudaGetErrorName;
};

/// What every communicator of a process works with.
struct NcclTools {
  NcclLibrary nccl;
  StreamCalls cuda;
  int gpu = 0;
  int max_ctas = 0;                 ///< thread blocks that a communicator may take of the GPU; 0: NCCL's own choice
  Nanos patience{600'000'000'000};  ///< PyTorch's: kProcessGroupNCCLDefaultTimeout
  Nanos farewell{5'000'000'000};    ///< how long the end of a communicator waits for what is under way
  Bytes* staged = nullptr;          ///< what all of them hold to keep messages on their way; nullptr: nobody asks
};

/// Lets time pass until there is no more of it.
class Patience {
 public:
  explicit Patience(Nanos limit) : end_(Clock::now() + std::chrono::nanoseconds(limit.count())) {}
  /// A moment; a longer one when many have passed. False: it is over.
  bool Wait();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
  int moments_ = 0;
};

/// One ncclComm_t. Its calls block as PyTorch's do by default: without that NCCL starts a thread for every one of them,
/// and a step would be measured with that in it.
class NcclPeers {
 public:
  struct Joined {
    ncclComm_t comm = nullptr;
    ncclResult_t result = ncclSuccess;  ///< ncclInProgress: the others have not come in time
  };
  /// Meets the other ranks that have this id.
  static Joined Join(const NcclTools& tools, const ncclUniqueId& id, std::int64_t rank, std::int64_t ranks);

  NcclPeers(const NcclTools& tools, ncclComm_t comm) : tools_(tools), comm_(comm) {}
  /// Waits for what is under way; where that may not end, call Abort.
  ~NcclPeers();
  NcclPeers(const NcclPeers&) = delete;
  NcclPeers& operator=(const NcclPeers&) = delete;

  ncclComm_t comm() const { return comm_; }
  /// What has gone wrong behind the calls, ncclSuccess: nothing.
  ncclResult_t state() const;
  /// Ends what is under way on the GPU, and takes no more.
  void Abort();

 private:
  const NcclTools& tools_;
  ncclComm_t comm_;  ///< nullptr: aborted
};

}  // namespace tidemark
