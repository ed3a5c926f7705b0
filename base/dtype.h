// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/quantity.h"

namespace tidemark {

enum class DType : std::uint8_t { fp64, fp32, bf16, fp16, int64, int32, u8 };

std::string_view Name(DType dtype);
std::optional<DType> ParseDType(std::string_view name);
/// Bytes of one element.
Bytes SizeOf(DType dtype);

}  // namespace tidemark
