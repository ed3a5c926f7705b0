// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibrate/sizes.h"

#include <algorithm>

namespace tidemark {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20, kGiB = std::int64_t{1} << 30;

}  // namespace

CalibrationSizes ProcessorSizes() {
  constexpr std::int64_t kWidth = 512;
  CalibrationSizes sizes;
  for (const std::int64_t small : {16, 32, 64, 128, 256, 512, 1024}) {
    const std::int64_t large = std::max(small, kWidth);
    sizes.products.push_back({{.rows = large, .in = small, .out = large}});
  }
  sizes.peak = {.rows = kWidth, .in = kWidth, .out = kWidth};
  sizes.peak_dtypes = {DType::bf16, DType::fp32, DType::fp64};
  sizes.sequences = {64, 256, 1024};
  sizes.head_sizes = {64};
  sizes.heads = 4;
  sizes.attention_tokens = 1;
  sizes.rows = {32, 512, 4096, 16384};
  sizes.width = kWidth;
  sizes.vocabulary = kWidth;
  sizes.copied = Bytes(256 * kMiB);
  sizes.exchanged = std::int64_t{1} << 19;
  sizes.memory = Bytes(4 * kGiB);
  return sizes;
}

// Products with one small dimension have many tiles; those of whole layers, whose weights are square, few, and in a
// weight gradient so few that its long sum (k = rows) is shared out. Widths are those that networks have: 768 leaves a
// wave of tiles as unfilled there as here. The other layer of such a point has as many operations, of more columns.
//
// What streams through rows has twice 1024 columns: networks have from 768 to 8192, and a row costs something beside
// its columns. The largest caches of GPUs are of 50 to 126 MiB, so that 256 MiB are in none.
CalibrationSizes GpuSizes() {
  constexpr std::int64_t kLarge = 8192, kWidth = 2048, kOdd = kLarge + 1;
  CalibrationSizes sizes;
  for (const std::int64_t small : {16, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
    sizes.products.push_back({{.rows = kLarge, .in = small, .out = kLarge}});
  }
  for (const std::int64_t small : {128, 512, 2048, 8192}) {
    sizes.unaligned_products.push_back({{.rows = kLarge, .in = small, .out = kOdd}});
  }
  for (const std::int64_t width : {64, 256, 512, 768, 1024, 1536, 2048, 4096}) {
    sizes.small_products.push_back(
        {{.rows = kLarge, .in = width, .out = width}, {.rows = kLarge / 4, .in = 2 * width, .out = 2 * width}});
  }
  sizes.peak = {.rows = kLarge, .in = kLarge, .out = kLarge};
  sizes.peak_dtypes = {DType::bf16, DType::fp16, DType::fp32, DType::fp64};
  sizes.sequences = {128, 512, 2048, 8192};
  sizes.head_sizes = {64, 128};
  sizes.heads = 16;
  sizes.attention_tokens = 16384;
  sizes.rows = {32, 256, 2048, 16384, 65536};
  sizes.width = kWidth;
  sizes.vocabulary = 32768;
  sizes.copied = Bytes(kGiB);
  sizes.exchanged = std::int64_t{1} << 26;
  sizes.held = Bytes(256 * kMiB);
  sizes.memory = Bytes(8 * kGiB);
  sizes.warm = Nanos(2'000'000'000);
  return sizes;
}

}  // namespace tidemark
