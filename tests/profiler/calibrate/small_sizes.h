// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "profiler/calibrate/sizes.h"

namespace tidemark {

/// Of everything a little, so that a test measures it in a second.
inline CalibrationSizes SmallSizes() {
  CalibrationSizes sizes;
  sizes.products = {{{.rows = 32, .in = 8, .out = 32}, {.rows = 32, .in = 8, .out = 8}},
                    {{.rows = 32, .in = 16, .out = 32}},
                    {{.rows = 32, .in = 32, .out = 32}}};
  sizes.unaligned_products = {{{.rows = 32, .in = 8, .out = 33}}, {{.rows = 32, .in = 16, .out = 33}}};
  sizes.small_products = {{{.rows = 32, .in = 8, .out = 8}, {.rows = 8, .in = 16, .out = 16}},
                          {{.rows = 32, .in = 16, .out = 16}}};
  sizes.peak = {.rows = 32, .in = 32, .out = 32};
  sizes.peak_dtypes = {DType::bf16, DType::fp16, DType::fp32, DType::fp64};
  sizes.sequences = {8, 16};
  sizes.head_sizes = {16, 80};
  sizes.heads = 2;
  sizes.attention_tokens = 16;
  sizes.rows = {2, 8};
  sizes.width = 64;
  sizes.vocabulary = 64;
  sizes.copied = Bytes(4096);
  sizes.exchanged = 64;
  sizes.held = Bytes(4096);
  sizes.memory = Bytes(256 << 20);
  return sizes;
}

}  // namespace tidemark
