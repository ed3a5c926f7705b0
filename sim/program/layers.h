// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "sim/program/program.h"

namespace tidemark {

/// The loop over equal parts of a block's pass (ActionLoop). Its variable counts their turns from 0.
inline constexpr std::string_view kPartLoop = "part";

/// The block of layers to which an operation, a tensor or a block belongs by its name: "layer" of "layer.wo.forward",
/// "kept layer" of "kept layer.wo.forward", "query.layer" of itself. Empty: none.
std::string_view LayerBlockOf(std::string_view name);

/// Which of the model's layers `node` works for, counted from 0 through all stages (Program::layers); none where it is
/// no operation of a layer. `loops` are the loops' values by LoopId.
std::optional<std::int64_t> LayerOf(const Program& program, const Node& node, std::span<const std::int64_t> loops);

}  // namespace tidemark
