// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/configs/field.h"
#include "models/job/job.h"

namespace tidemark {

/// Of elements, bytes, operations or nanoseconds. Generous: models/job/validate.cc refuses what overflows in
/// combination.
inline constexpr WholeNumber kAnyAmount{0, std::int64_t{1} << 56};

/// The grammar of a Tidemark job, without `network`, `machine` and `strategy`, in the order in which a job is printed.
const std::vector<Field<Job>>& JobFields();

/// Those of them that begin with "recompute."; with "buffers." or "packing.".
std::vector<Field<Job>> RecomputeFields();
std::vector<Field<Job>> BufferFields();
/// Parts of it: how long sequences are; how the loss is taken.
std::vector<Field<Job>> SequenceLengthFields();
std::vector<Field<Job>> LossFields();
/// Those that begin with "allocator.", by the names of PYTORCH_CUDA_ALLOC_CONF; sizes have units in place of "_mb".
std::vector<Field<Job>> AllocatorFields();
/// The values of `loss`, each with one line.
std::vector<std::pair<std::string, std::string>> LossSummaries();
/// The values of `allocator.kind`, with the knobs of each.
std::vector<std::pair<std::string, std::string>> AllocatorSummaries();

/// The grammar of an inline network; that of a row of its `table`, and of what is said beside the rows.
const std::vector<Field<Decoder>>& DecoderFields();
const std::vector<Field<TableRow>>& TableRowFields();
const std::vector<Field<Table>>& TableFields();
/// That of its `dual_encoder`: "shared", "first.layers".
const std::vector<Field<DualEncoder>>& DualEncoderFields();

/// Every key a job may hold, dotted.
const std::set<std::string>& JobKeys();

/// The keys among them for which null says "none", which is their default. Any other null is refused: it looks as if it
/// said something.
const std::set<std::string>& NullableJobKeys();

/// Whether the strategy supplies the default of this key.
bool IsAxis(std::string_view key);

/// Whether every strategy looks at this axis; the others are looked at by those that list them
/// (StrategyDefaults::keys).
bool IsCommonAxis(std::string_view key);

}  // namespace tidemark
