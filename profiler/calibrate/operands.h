// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/quantity.h"
#include "kernels/tensor.h"
#include "profiler/device/device.h"
#include "profiler/device/tensor_memory.h"

namespace tidemark {

/// Tensors of a device to compute with. They go when it goes, after the work that uses them.
class Operands {
 public:
  /// All in so much of the device's memory. The device outlives it.
  Operands(Device& device, Bytes memory);
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;
  ~Operands();

  /// Of numbers as large as activations are. Throws std::bad_alloc where the memory has no room for it.
  kernels::Tensor Make(const kernels::TensorType& type);
  kernels::Tensor Make(DType dtype, std::int64_t elements) { return Make({dtype, elements}); }
  /// Of whole numbers from 0 to below `below`.
  kernels::Tensor MakeIds(std::int64_t elements, std::int64_t below);

 private:
  kernels::Tensor Take(const kernels::TensorType& type);
  /// Repeats a pattern that lies in the host's memory.
  void Fill(const kernels::Tensor& tensor, const kernels::ConstTensor& pattern);

  Device& device_;
  TensorMemory memory_;
};

}  // namespace tidemark
