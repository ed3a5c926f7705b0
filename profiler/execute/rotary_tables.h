// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kernels/rotary_table.h"
#include "profiler/execute/model.h"
#include "sim/program/program.h"

namespace tidemark {

/// The table of cosines and sines that each layer of a decoder has (Decoder::rotary_table, which is not none): a row
/// for each position of the job's longest sequence.
kernels::RotaryTable LayersTable(const Job& job, const Decoder& decoder);

/// The same, if that is what a buffer holds.
std::optional<kernels::RotaryTable> RotaryTableIn(const Job& job, const Model& model, const Buffer& buffer);

}  // namespace tidemark
