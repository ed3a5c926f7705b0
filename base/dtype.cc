// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>

namespace tidemark {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::int64_t n_bytes;
};

constexpr std::array kRows = {
    Row{DType::fp64, "fp64", 8}, Row{DType::fp32, "fp32", 4},   Row{DType::bf16, "bf16", 2},
    Row{DType::fp16, "fp16", 2}, Row{DType::int64, "int64", 8}, Row{DType::int32, "int32", 4},
    Row{DType::u8, "u8", 1},
};

}  // namespace

std::string_view Name(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)).name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

Bytes SizeOf(DType dtype) { return Bytes(kRows.at(static_cast<std::size_t>(dtype)).n_bytes); }

}  // namespace tidemark
