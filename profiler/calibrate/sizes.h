// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/quantity.h"

namespace tidemark {

/// At what sizes a kind of device is measured: from kernels that are mostly their launch to tensors that no cache
/// holds. Curves have their points in the order given here, which rises.
struct CalibrationSizes {
  /// A linear layer of `rows` tokens (kernels/linear.h), whose three products are measured together.
  struct Layer {
    std::int64_t rows = 0, in = 0, out = 0;
    friend bool operator==(const Layer&, const Layer&) = default;
  };
  /// Each a point, of layers with the same smallest dimension; of those that a GPU copies in pieces, and of others.
  std::vector<std::vector<Layer>> products, unaligned_products;
  std::vector<std::vector<Layer>> small_products;  ///< each a point, of layers with as many operations
  Layer peak;                                      ///< whose product stands for the device's rate of arithmetic
  std::vector<DType> peak_dtypes;

  std::vector<std::int64_t> sequences, head_sizes;  ///< head sizes: of one kind each (models/machine/rates.h)
  std::int64_t heads = 0;
  std::int64_t attention_tokens = 0;  ///< in so many sequences as they make, one at least

  std::vector<std::int64_t> rows;  ///< of what streams through rows of `width`
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;  ///< of the embedding, and of the loss

  Bytes copied;                ///< by what stands for the memory's rate
  std::int64_t exchanged = 0;  ///< elements of what ranks exchange
  Bytes held;                  ///< written to keep a device busy while the host issues what is measured
  Bytes memory;                ///< that all of it finds room in, piece by piece
  Nanos warm;                  ///< how long the device works before it is measured
};

/// One core: what its caches hold, and what none does.
CalibrationSizes ProcessorSizes();

/// A GPU whose products are those of layers with thousands of tokens.
CalibrationSizes GpuSizes();

}  // namespace tidemark
