// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels are C++ where there is no CUDA toolkit: their bodies run on the host, and CUDA's words say nothing.
#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#define __host__
#define __device__
#endif

// Before a loop of a body that is the host's as well, whose compiler knows no such words.
#ifdef __CUDA_ARCH__
#define TIDEMARK_UNROLL _Pragma("unroll")
#define TIDEMARK_NO_UNROLL _Pragma("unroll 1")
#else
#define TIDEMARK_UNROLL
#define TIDEMARK_NO_UNROLL
#endif
