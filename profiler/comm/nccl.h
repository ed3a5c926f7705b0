// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/quantity.h"
#include "base/result.h"
#include "profiler/comm/communicator.h"
#include "profiler/comm/launcher.h"

namespace tidemark {

struct NcclOptions {
  int gpu = 0;                      ///< this rank's, as CUDA counts those that the process sees
  Nanos patience{600'000'000'000};  ///< how long a rank waits for the others: PyTorch's ten minutes
};

/// The ranks of `boot`, which outlives it, on GPUs: `boot` does what concerns the host, and Split gives communicators
/// of device memory that exchange it through NCCL. Where ranks share a GPU and NCCL does not take that (2.30 does, by
/// its switch NCCL_MULTI_RANK_GPU_ENABLE, which is tried here), they exchange it through the host; World::how says
/// which. All ranks call it. Makes the GPU current in the calling thread. Fails with machine_cannot where there is no
/// such GPU, or no NCCL.
Result<std::unique_ptr<World>> OpenNcclWorld(World& boot, const NcclOptions& options);

/// The same without MPI, of the processes that torchrun, or whoever sets its variables, has started: NCCL alone brings
/// them together, at MASTER_ADDR and the port behind MASTER_PORT, where torchrun's own store listens (NCCL_COMM_ID,
/// where it is set, says another place). Each rank has a GPU of its own.
Result<std::unique_ptr<World>> OpenNcclWorldFromEnvironment(const Launcher& launcher, const NcclOptions& options);

/// "2.28.9": of the NCCL that ranks would meet through. Needs no GPU. Fails with machine_cannot where there is none.
Result<std::string> NcclVersion();

}  // namespace tidemark
