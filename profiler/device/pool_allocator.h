// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "profiler/device/device.h"
#include "profiler/device/gpu_pool.h"
#include "sim/memory/allocator.h"

namespace tidemark {

/// cudaMallocAsync itself, of which MakeCudaAsyncAllocator is the model: a tensor's memory comes in the order of its
/// stream of birth and goes in that of the stream that it is freed on. `device`, whose streams these are, outlives it.
///
/// The highest use and what is reserved are the pool's own attributes. What is allocated at an instant is the sum of
/// what was asked for and not freed, because the pool may count a free only when its stream has come to it. The driver
/// does not say how often it mapped memory anew; a flush here is a request that was refused, repeated when all work had
/// ended and the pool had given back what nobody has.
std::unique_ptr<Allocator> MakePoolAllocator(std::unique_ptr<GpuPool> pool, Device& device);

}  // namespace tidemark
