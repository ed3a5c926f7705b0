// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/quantity.h"

namespace tidemark {
namespace {

bool IsOfMachine(const std::string& key) { return key == "machine" || key.starts_with("machine."); }

/// Combinations of a group, unless one machine alone has more.
constexpr std::int64_t kMostRows = 1 << 14;

}  // namespace

Result<SweepGroups> SweepGroups::Of(SweepSpace space, bool counts_apart) {
  SweepGroups groups(std::move(space));
  const std::vector<SweepAxis>& axes = groups.space_.axes();
  std::int64_t stride = groups.space_.size();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t values = std::ssize(axes[i].values);
    stride /= values;
    std::vector<JobChange>& changes = groups.changes_.emplace_back();
    for (const std::string& value : axes[i].values) {
      TIDEMARK_ASSIGN(JobChange change, ParseJobChange(fmt::format("{}={}", axes[i].key, value), "--vary"));
      changes.push_back(std::move(change));
    }
    const auto numbers = counts_apart && axes[i].key == "accumulation_steps" ? NumbersOf(axes[i]) : std::nullopt;
    if (numbers) {
      std::vector<std::size_t> order(numbers->size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::sort(order, {}, [&](std::size_t value) { return (*numbers)[value]; });
      for (const std::size_t value : order) {
        groups.counts_.push_back((*numbers)[value]);
        groups.count_offsets_.push_back(static_cast<std::int64_t>(value) * stride);
      }
    } else if (IsOfMachine(axes[i].key)) {
      groups.machine_axes_.push_back({i, stride});
      groups.machines_ *= values;
    } else {
      groups.group_axes_.push_back({i, stride});
      groups.size_ *= values;
    }
  }
  // What is said of a whole network or machine comes before what is said of a part of it.
  const auto is_part = [&](const Place& place) { return axes[place.axis].key.find('.') != std::string::npos; };
  std::ranges::stable_sort(groups.group_axes_, {}, is_part);
  std::ranges::stable_sort(groups.machine_axes_, {}, is_part);
  const std::int64_t counts = std::max<std::int64_t>(1, std::ssize(groups.counts_));
  groups.machines_at_once_ = std::clamp<std::int64_t>(kMostRows / counts, 1, groups.machines_);
  groups.ranges_ = CeilDiv(groups.machines_, groups.machines_at_once_);
  return groups;
}

std::pair<std::int64_t, std::int64_t> SweepGroups::MachinesOf(std::int64_t group) const {
  const std::int64_t begin = group % ranges_ * machines_at_once_;
  return {begin, std::min(begin + machines_at_once_, machines_)};
}

std::int64_t SweepGroups::RowsBefore(std::int64_t group) const {
  const std::int64_t machines = group / ranges_ * machines_ + group % ranges_ * machines_at_once_;
  return machines * std::max<std::int64_t>(1, std::ssize(counts_));
}

std::int64_t SweepGroups::Combination(std::int64_t group, std::int64_t machine, std::size_t count) const {
  return OffsetOf(group_axes_, group / ranges_) + OffsetOf(machine_axes_, machine) +
         (counts_.empty() ? 0 : count_offsets_[count]);
}

std::vector<const JobChange*> SweepGroups::ChangesOf(const std::vector<Place>& places, std::int64_t index) const {
  std::vector<const JobChange*> changes(places.size());
  for (std::size_t i = places.size(); i-- > 0;) {
    const std::vector<JobChange>& values = changes_[places[i].axis];
    changes[i] = &values[static_cast<std::size_t>(index % std::ssize(values))];
    index /= std::ssize(values);
  }
  return changes;
}

std::int64_t SweepGroups::OffsetOf(const std::vector<Place>& places, std::int64_t index) const {
  std::int64_t offset = 0;
  for (std::size_t i = places.size(); i-- > 0;) {
    const std::int64_t values = std::ssize(changes_[places[i].axis]);
    offset += index % values * places[i].stride;
    index /= values;
  }
  return offset;
}

}  // namespace tidemark
