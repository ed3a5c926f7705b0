// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "models/job/change.h"
#include "sim/sweep/space.h"

namespace tidemark {

/// The combinations of a space, cut into groups that have all in common but the machine and the number of microbatches:
/// these are priced together. Within a group a machine is a combination of the axes that say something of it. Where
/// they are very many, a group has some of them only, and the next ones the others.
class SweepGroups {
 public:
  /// Reads every value as `--set` would. Refuses what is no YAML. Where other values of a job follow from the number of
  /// its microbatches (JobTemplate::follows), these are not priced together: `counts_apart` is false.
  static Result<SweepGroups> Of(SweepSpace space, bool counts_apart = true);

  const SweepSpace& space() const { return space_; }
  std::int64_t size() const { return size_ * ranges_; }  ///< groups
  std::int64_t machines() const { return machines_; }    ///< of all groups
  /// A group's machines: from the first of these up to the second.
  std::pair<std::int64_t, std::int64_t> MachinesOf(std::int64_t group) const;
  /// Combinations of all groups before this one.
  std::int64_t RowsBefore(std::int64_t group) const;
  /// Ascending values of accumulation_steps; empty where it is not varied.
  const std::vector<std::int64_t>& counts() const { return counts_; }

  /// What the values of a group, or of a machine, change in the job.
  std::vector<const JobChange*> OfGroup(std::int64_t group) const { return ChangesOf(group_axes_, group / ranges_); }
  std::vector<const JobChange*> OfMachine(std::int64_t machine) const { return ChangesOf(machine_axes_, machine); }
  /// `count`: index into counts(); 0 where they are not varied.
  std::int64_t Combination(std::int64_t group, std::int64_t machine, std::size_t count) const;

 private:
  explicit SweepGroups(SweepSpace space) : space_(std::move(space)) {}

  /// An axis and how far apart its values are in the space.
  struct Place {
    std::size_t axis;
    std::int64_t stride;
  };
  std::vector<const JobChange*> ChangesOf(const std::vector<Place>& places, std::int64_t index) const;
  std::int64_t OffsetOf(const std::vector<Place>& places, std::int64_t index) const;

  SweepSpace space_;
  std::vector<std::vector<JobChange>> changes_;  ///< by axis and value
  std::vector<Place> group_axes_, machine_axes_;
  std::vector<std::int64_t> counts_, count_offsets_;
  std::int64_t size_ = 1, machines_ = 1;
  std::int64_t ranges_ = 1, machines_at_once_ = 1;
};

}  // namespace tidemark
