// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl_peers_cuda.h"

#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "profiler/capture/heap.h"

namespace tidemark {

bool Patience::Wait() {
  constexpr int kShort = 2000;  // moments of a yield: some hundred microseconds
  if (++moments_ <= kShort) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return Clock::now() < end_;
}

// A thread of its own meets the others: whoever waits for one that never comes can be left behind. The process ends
// with that error, or goes on without NCCL.
NcclPeers::Joined NcclPeers::Join(const NcclTools& tools, const ncclUniqueId& id, std::int64_t rank,
                                  std::int64_t ranks) {
  auto join = [tools, id, rank, ranks] {
    const HeapScope scope(HeapOwner::communication);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (tools.max_ctas > 0) {
      config.maxCTAs = tools.max_ctas;
    }
    Joined joined;
    if (tools.cuda.use_gpu(tools.gpu) != cudaSuccess) {  // which one is current is a thread's own
      return Joined{nullptr, ncclUnhandledCudaError};
    }
    joined.result = tools.nccl.join(&joined.comm, static_cast<int>(ranks), id, static_cast<int>(rank), &config);
    if (joined.result != ncclSuccess && joined.comm != nullptr) {
      tools.nccl.abort(std::exchange(joined.comm, nullptr));
    }
    return joined;
  };
  std::packaged_task<Joined()> task(std::move(join));
  std::future<Joined> met = task.get_future();
  std::thread thread(std::move(task));
  if (met.wait_for(std::chrono::nanoseconds(tools.patience.count())) != std::future_status::ready) {
    thread.detach();
    return {nullptr, ncclInProgress};
  }
  thread.join();
  return met.get();
}

NcclPeers::~NcclPeers() {
  if (comm_ != nullptr) {
    tools_.nccl.destroy(comm_);
  }
}

ncclResult_t NcclPeers::state() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = comm_ == nullptr ? ncclSuccess : tools_.nccl.state(comm_, &state);
  return asked != ncclSuccess ? asked : state == ncclInProgress ? ncclSuccess : state;
}

void NcclPeers::Abort() {
  if (ncclComm_t comm = std::exchange(comm_, nullptr); comm != nullptr) {
    tools_.nccl.abort(comm);
  }
}

}  // namespace tidemark
