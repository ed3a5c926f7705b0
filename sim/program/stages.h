// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/program/program.h"

namespace tidemark {

/// The pipeline stage that a name tells: 2 of "stage 2 layer.wq" and of "mirrored stage 2 gradient of layer.wq". A role
/// that holds one stage only tells none.
std::optional<std::int64_t> StageIn(std::string_view name);

/// "layer.wq" of "stage 2 layer.wq".
std::string_view WithoutStage(std::string_view name);

/// The stages that a role works for, in the order in which it names them.
std::vector<std::int64_t> StagesOf(const Program& program);

}  // namespace tidemark
