// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/job/job.h"
#include "sim/matrix/features.h"

namespace tidemark {

/// What one strategy makes of one feature.
struct Cell {
  std::string feature;
  Verdict verdict = Verdict::works;
  std::string id;                ///< of models/findings, or the feature's name; empty where it works
  std::string message;           ///< the refusal or the lint in its own words; may be empty
  std::string effect;            ///< what two predictions say: "peak +1,024 bytes (+0.1 %)"
  std::vector<std::string> set;  ///< the keys that were tried
  std::string paragraph, hint, link;
};

struct MatrixRow {
  std::string strategy, summary;
  std::vector<Cell> cells;  ///< one per feature, in their order
};

/// Tries every feature on every strategy: the small job with the feature against the same without it.
///   refused          the job with the feature is refused, for the system's own reason
///   wrong            a lint of it is an error
///   does-not-defer   its microbatches reduce more than one microbatch would, and without the feature they would not
///   changes-memory   its highest role peaks at another number of bytes
/// A refusal that says that something is not modelled, or that there is no such setting, is told apart by its words.
/// Facts of real systems stand over what is computed.
std::vector<MatrixRow> CompatibilityMatrix(std::span<const StrategyDefaults> strategies);

}  // namespace tidemark
