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

/// What an all-gather sends of a buffer that has this rank's parts of more parameters than it gathers. As large as the
/// model's parameters are, divided between the ranks. Nothing: it sends the whole buffer, or its own part of it.
std::optional<kernels::Tensor> PartToGather(const Model& model, const Operand& from, const Operand& to,
                                            std::int64_t ranks);

/// What this rank has of `read` behind a reduce-scatter, where it was, or in a buffer of its own: for a written buffer
/// that does not say itself what it holds. Null: of other collectives, and where nobody knows.
std::shared_ptr<const Contents> ScatteredPart(const Program& program, const Collective& leaf, const Model& model,
                                              const Operand& read, const Operand& write);

}  // namespace tidemark
