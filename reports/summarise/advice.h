// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "models/machine/machine.h"

namespace tidemark {

// What `tidemark advise` tells: single changes to a job, and what each of them saves and costs. Collected once, then
// rendered purely.

/// What a job needs: peak of its worst role, and its step.
struct AdvisedCost {
  Bytes allocated;
  Band device;   ///< DeviceBytes()
  Bytes usable;  ///< of the device's memory; less than all: allocator.memory_fraction
  Nanos step;
  bool fits = false;
  bool simulated = false;  ///< `device` and `fits` are by the simulated allocator, else by the closed form

  /// Less memory or time than another.
  bool Improves(const AdvisedCost& now) const { return allocated < now.allocated || step < now.step; }
};

/// A job with one change.
struct AdvisedOption {
  std::string change;  ///< "recompute.policy=full"; several values that change together are separated by a space
  AdvisedCost cost;
  Bytes saved;                     ///< of the allocated peak; negative: it needs more
  Nanos lost;                      ///< of the step; negative: it is faster
  bool begins = true;              ///< where it fits: its first steps are not known not to
  bool alters = false;             ///< it computes other numbers, not only in another order
  std::vector<std::string> lints;  ///< ids of new warnings, and of first steps that do not fit
  std::string command;             ///< the command line that predicts it

  /// Nothing where no time is lost.
  std::optional<double> SavedPerMillisecond() const;
};

struct Advice {
  std::string title, job_yaml, version, machine;
  Bytes memory;  ///< that a device has
  AdvisedCost now;
  /// Those that save memory, of tensors or enough of the allocator's to make the job fit: first what costs no time
  /// (most bytes first), then by bytes saved per time lost.
  std::vector<AdvisedOption> saving;
  /// Those that save none and are faster: first those that fit, of these what needs no more memory (most time first),
  /// then by time won per byte.
  std::vector<AdvisedOption> faster;
  std::int64_t saves = 0;  ///< how many save memory, those left out below as well
  std::int64_t saves_and_fits = 0;
  std::int64_t left_out = 0;   ///< of these two lists, behind the first few
  std::int64_t tried = 0;      ///< changes; all but these, the ones below and the ones left out are of no use
  std::int64_t refused = 0;    ///< the real system would not run it
  std::int64_t wrong = 0;      ///< its numbers are known to be wrong
  std::int64_t no_effect = 0;  ///< neither peak nor step differs, nor whether it fits
  std::int64_t worse = 0;      ///< saves nothing and is not faster
};

/// Puts an option where it belongs: `saving`, `faster`, or one of the counts. Fills in what it saves and loses.
void Sort(AdvisedOption option, Advice& advice);

/// Brings both lists into their order. Of each it keeps the first `top` that alter nothing, and as many that do: there
/// is always a smaller dtype, and it would hide what costs no accuracy.
void Finish(Advice& advice, std::size_t top);

}  // namespace tidemark
