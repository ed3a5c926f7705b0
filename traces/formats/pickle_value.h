// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tidemark {

/// A value: itself, or which one it is in its PickleHeap. Text points into the file.
struct PickleValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    opaque,  ///< bytes; a whole number of more than 64 bits
    list,
    tuple,
    dict,
    record,  ///< what a PickleListener put in the place of a container
  };

  Kind kind = Kind::none;
  std::uint32_t size = 0;  ///< of text: its bytes; of a record: the listener's kind of record
  union {
    std::int64_t number = 0;  ///< of a container or a record: which one
    double real;
    const char* data;
  };

  bool is_container() const { return kind == Kind::list || kind == Kind::tuple || kind == Kind::dict; }
  /// Empty for what is no text.
  std::string_view text() const { return kind == Kind::text ? std::string_view(data, size) : std::string_view(); }

  static PickleValue Integer(std::int64_t value);
  static PickleValue Record(std::uint32_t kind, std::size_t index);
};

/// The lists, tuples and dictionaries of a pickle, and what stands in the place of some.
class PickleHeap {
 public:
  /// Of a dictionary: key, value, key, value, ...; what is no container has none.
  std::span<const PickleValue> Items(PickleValue container) const;

  PickleValue NewContainer(PickleValue::Kind kind);
  /// Its items, to be added to; null where something else stands in its place. Valid until the next call.
  std::vector<PickleValue>* ItemsToAddTo(PickleValue container);

  /// Itself, or what stands in its place.
  PickleValue Resolve(PickleValue value) const;
  /// Puts a plain value in the place of a container and forgets its items.
  void Replace(PickleValue container, PickleValue by);
  /// Whether this is the first time that it is asked about this container.
  bool FirstTime(PickleValue container);

 private:
  /// Behind each container: itself with the place of its items (-1: it has none yet), or what stands in its place.
  std::vector<PickleValue> slots_;
  std::vector<std::vector<PickleValue>> bodies_;
  std::vector<std::size_t> free_bodies_;
};

}  // namespace tidemark
