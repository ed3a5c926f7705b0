// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels are C++ where there is no CUDA toolkit: their bodies run on the host, and CUDA's words say nothing.
#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#define __host__
#define __device__
#endif
