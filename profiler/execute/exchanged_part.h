// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "profiler/execute/operation.h"
#include "sim/program/program.h"

namespace tidemark {

/// Whether what a collective writes lies where what it reads lies: the same buffers, or views of them.
bool IsInPlace(const Program& program, const Collective& leaf);

/// What an all-gather sends of a buffer that has this rank's parts of more parameters than it gathers: `elements`
/// numbers. Nothing: it sends the whole buffer, or its own part of it.
std::optional<kernels::Tensor> PartToGather(const Model& model, const Operand& from, const Operand& to,
                                            std::int64_t elements);

/// What this rank has of `whole` behind a reduce-scatter of `elements` numbers: where it was, or in a buffer of its
/// own.
std::shared_ptr<const Contents> ScatteredPart(const Model& model, const Contents& whole, std::int64_t elements,
                                              bool in_place);

}  // namespace tidemark
