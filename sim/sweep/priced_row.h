// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/category.h"
#include "base/quantity.h"
#include "models/machine/machine.h"
#include "sim/engine/evaluation.h"
#include "sim/program/program.h"

namespace tidemark {

/// One combination of a sweep that was priced: what `predict --engine closed-form` says of it. Plain bytes, so that
/// files of them are read as they were written.
struct PricedRow {
  std::int64_t combination = 0;  ///< of the SweepSpace
  Bytes allocated, host;         ///< of the role with the most
  CategoryBytes by_category;     ///< sums to `allocated`
  Band device;
  Bytes usable;  ///< of the device's memory, by this process: UsableMemory()
  StepTime time;
  std::int64_t tokens = 0;  ///< of a step that reach an update, on all ranks together
  double tokens_per_s_per_gpu = 0;
  double mfu = 0;  ///< 0: the machine has no peak for the job's dtype
  Phase phase = Phase::load;
  bool fits = false;
};
static_assert(std::is_trivially_copyable_v<PricedRow>);

/// Rows that fit before those that do not, then faster ones, then in the order of the space.
inline bool ComesBefore(const PricedRow& a, const PricedRow& b) {
  if (a.fits != b.fits) {
    return a.fits;
  }
  return a.time.step != b.time.step ? a.time.step < b.time.step : a.combination < b.combination;
}

}  // namespace tidemark
