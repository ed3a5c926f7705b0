// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/quantity.h"
#include "base/result.h"
#include "profiler/comm/communicator.h"

namespace tidemark {

/// The world of a job of so many ranks: one rank needs no launcher; under one its processes are the ranks; else this
/// process becomes mpirun, which starts the same command line once for each rank. Fails with bad_input where a launcher
/// has started another number, with machine_cannot where there is no mpirun.
Result<std::unique_ptr<World>> EnterWorld(std::int64_t ranks);

/// Memory that processes started now can have (Linux: MemAvailable); 0: not known.
Bytes AvailableMemory();

}  // namespace tidemark
