// SPDX-License-Identifier: Apache-2.0
#pragma once

// In place of CUDA's: tests/kernels/emulated/gpu.h has come before.
