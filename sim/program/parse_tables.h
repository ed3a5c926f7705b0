// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/program/flight_sets.h"
#include "sim/program/program.h"
#include "sim/program/token.h"

namespace tidemark {

// Bounds that keep all later arithmetic on a parsed program far from overflow.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 55;
inline constexpr std::int64_t kMostInFamily = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostIndex = std::int64_t{1} << 40;
inline constexpr std::int64_t kMostFactor = std::int64_t{1} << 62;

/// The last enumerator of each enum that has a text form; they count from 0.
template <class Enum>
inline constexpr Enum kLast{};
template <>
inline constexpr StreamKind kLast<StreamKind> = StreamKind::copy;
template <>
inline constexpr Phase kLast<Phase> = Phase::gather;
template <>
inline constexpr Work kLast<Work> = Work::optimizer;
template <>
inline constexpr Reduction kLast<Reduction> = Reduction::max;
template <>
inline constexpr CollectiveKind kLast<CollectiveKind> = CollectiveKind::shift_down;
template <>
inline constexpr DType kLast<DType> = DType::u8;
template <>
inline constexpr Category kLast<Category> = Category::input;

template <>
inline constexpr Cut kLast<Cut> = Cut::together;
template <>
inline constexpr Parts kLast<Parts> = Parts::all;

template <class Enum>
std::vector<std::string> NamesOf() {
  std::vector<std::string> names;
  for (int value = 0; value <= static_cast<int>(kLast<Enum>); ++value) {
    names.emplace_back(Name(static_cast<Enum>(value)));
  }
  return names;
}

/// An enumerator if one is here.
template <class Enum>
std::optional<Enum> TakeIf(LineReader& line) {
  for (int value = 0; value <= static_cast<int>(kLast<Enum>); ++value) {
    if (line.Take(Name(static_cast<Enum>(value)))) {
      return static_cast<Enum>(value);
    }
  }
  return std::nullopt;
}

template <class Enum>
Result<Enum> TakeOne(LineReader& line, std::string_view what) {
  if (const std::optional<Enum> value = TakeIf<Enum>(line)) {
    return *value;
  }
  return line.Expected(what, NamesOf<Enum>());
}

/// Names of one table of the program, numbered as they are declared or first used.
template <class IdType>
class NameTable {
 public:
  /// The name's id, a new one if it has none yet.
  IdType Intern(const std::string& name) {
    const auto [at, added] = ids_.try_emplace(name, IdType{static_cast<std::uint32_t>(names_.size())});
    if (added) {
      names_.push_back(name);
    }
    return at->second;
  }
  std::optional<IdType> Find(const std::string& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::unordered_map<std::string, IdType> ids_;
  std::vector<std::string> names_;
};

/// All names of a program, and what has numbers instead.
struct NameTables {
  NameTable<NameId> operations;
  NameTable<BufferId> buffers;
  NameTable<StreamId> streams;
  NameTable<EventId> events;
  NameTable<GroupId> groups;
  NameTable<ChannelId> channels;
  NameTable<LoopId> loops;
  FlightSets flights;
};

/// The id of the declared name that is here.
template <class IdType>
Result<IdType> TakeDeclared(LineReader& line, const NameTable<IdType>& table, std::string_view what) {
  LineReader ahead = line;
  TIDEMARK_ASSIGN(const std::string name, ahead.TakeName(what));
  const std::optional<IdType> id = table.Find(name);
  if (!id) {
    return line.Expected(what, table.names());
  }
  line = ahead;
  return *id;
}

/// Flights have numbers instead of names.
inline Result<FlightId> TakeFlight(LineReader& line) {
  TIDEMARK_ASSIGN(const std::int64_t number, line.TakeInteger("a flight's number", 0, kMostInFamily));
  return FlightId{static_cast<std::uint32_t>(number)};
}

}  // namespace tidemark
