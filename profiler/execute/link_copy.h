// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/result.h"
#include "sim/program/program.h"

namespace tidemark {

/// A copy between two buffers, one of them in host memory, as what it does with their numbers: an operation of its
/// name (state_rows.h). Nothing: it brings what no buffer holds, as a microbatch's tokens.
std::optional<Compute> LinkCopy(const Copy& leaf);

/// Refuses a program with such copies of which there is no operation.
Status CheckLinkCopies(const Program& program);

}  // namespace tidemark
