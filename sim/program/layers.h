// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/family_layers.h"
#include "sim/program/program.h"

namespace tidemark {

/// The loop over equal parts of a block's pass (ActionLoop). Its variable counts their turns from 0.
inline constexpr std::string_view kPartLoop = "part";

/// Put before the block of the last layers where those stay gathered (shard.gathered_layers), and before all names of
/// one of several chunks of a rank ("stage 3 ").
inline constexpr std::string_view kKeptPrefix = "kept ";
inline constexpr std::string_view kStagePrefix = "stage ";

/// The block of layers to which an operation, a tensor or a block belongs by its name: "layer" of "layer.wo.forward",
/// "kept layer" of "kept layer.wo.forward", "query.layer" of itself. Empty: none.
std::string_view LayerBlockOf(std::string_view name);

/// "layer.wo.forward" of "kept layer.wo.forward": the same operation, of a block that is alike but for its weights'
/// life.
std::string_view WithoutKept(std::string_view name);

/// Which of the model's layers `node` works for, counted from 0 through all stages (Program::layers); none where it is
/// no operation of a layer. `loops` are the loops' values by LoopId.
std::optional<std::int64_t> LayerOf(const Program& program, const Node& node, std::span<const std::int64_t> loops);
std::optional<std::int64_t> LayerOf(const Program& program, const Compute& leaf, std::span<const std::int64_t> loops);

/// The layers of a family by its name: a tensor of a block ("layer.q", "stage 3 kept layer.q") has the block's place
/// among its equals as second index; what is kept for a block or a parameter of it has it as first one ("gathered
/// layer.wq", "shards of layer", "master of layer 3": from the fourth layer of the block on).
FamilyLayers LayersOf(const Program& program, const Buffer& buffer);

}  // namespace tidemark
