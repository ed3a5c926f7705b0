// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "models/configs/config.h"

namespace tidemark {

/// Typed access to the keys of one file. JSON gives the types, the ConfigValue the lines. The first error is kept and
/// every later read returns its default, so that a reader states its keys without a branch behind each.
class HuggingFaceKeys {
 public:
  using Json = nlohmann::json;

  HuggingFaceKeys(const Json& json, const ConfigValue& places) : json_(json), places_(places) {}

  std::int64_t Whole(const std::string& key, std::int64_t missing, std::int64_t least = 1) {
    const Json* value = Find(key);
    if (value == nullptr) {
      return missing;
    }
    const bool fits = value->is_number_integer() && *value >= least && *value <= kLargestShape;
    return fits ? value->get<std::int64_t>()
                : Refuse(key, fmt::format("a whole number from {} to {}", least, kLargestShape), missing);
  }

  double Fraction(const std::string& key, double missing) {
    const Json* value = Find(key);
    if (value == nullptr) {
      return missing;
    }
    const bool fits = value->is_number() && value->get<double>() >= 0 && value->get<double>() < 1;
    return fits ? value->get<double>() : Refuse(key, "a number of at least 0 and below 1", missing);
  }

  bool Truth(const std::string& key, bool missing) {
    const Json* value = Find(key);
    if (value == nullptr) {
      return missing;
    }
    return value->is_boolean() ? value->get<bool>() : Refuse(key, "true or false", missing);
  }

  std::string Word(const std::string& key, const std::string& missing) {
    const Json* value = Find(key);
    if (value == nullptr) {
      return missing;
    }
    return value->is_string() ? value->get<std::string>() : Refuse(key, "a word in quotes", missing);
  }

  std::vector<std::string> Words(const std::string& key) {
    const Json* value = Find(key);
    if (value == nullptr) {
      return {};
    }
    const auto is_word = [](const Json& one) { return one.is_string(); };
    const bool fits = value->is_array() && std::all_of(value->begin(), value->end(), is_word);
    return fits ? value->get<std::vector<std::string>>() : Refuse(key, "a list of words", std::vector<std::string>());
  }

  bool Has(const std::string& key) const { return Find(key) != nullptr; }
  bool IsEmptyList(const std::string& key) const { return !Has(key) || (Find(key)->is_array() && Find(key)->empty()); }

  /// Keeps the error that the value of `key` is one the tables cannot represent.
  void Require(bool condition, const std::string& key, std::string expectation, std::string hint = {}) {
    if (!condition && status_.ok()) {
      status_ = ErrorAt(Place(key), key, std::move(expectation), std::move(hint));
    }
  }

  /// Keeps, in front of all others, the error that a key is read by nobody and one letter away from a missing one, the
  /// default of which has taken its place. Called when all is read; other unknown keys are ignored.
  void RequireNoSlips() {
    for (const auto& [key, value] : json_.items()) {
      if (value.is_null() || read_.contains(key)) {
        continue;
      }
      const auto slip_of = [&key = key](const std::string& read) {
        return std::max(key.size(), read.size()) - std::min(key.size(), read.size()) <= 1 &&
               EditDistance(key, read) == 1;
      };
      const auto meant = std::find_if(read_.begin(), read_.end(),
                                      [&](const std::string& read) { return !Has(read) && slip_of(read); });
      if (meant != read_.end()) {
        status_ =
            ErrorAt(Place(key), key, "there is no such key", fmt::format("did you mean {}? Else remove it", *meant));
        return;
      }
    }
  }

  const Status& status() const { return status_; }

 private:
  /// What a shape may be at most; BuildBlocks has narrower bounds, with the reasons.
  static constexpr std::int64_t kLargestShape = std::int64_t{1} << 31;

  /// Null when the key is missing or its value is null: transformers gives both the default.
  const Json* Find(const std::string& key) const {
    read_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  const ConfigValue& Place(const std::string& key) const {
    const ConfigValue* place = places_.Find(key);
    return place == nullptr ? places_ : *place;
  }

  template <class T>
  T Refuse(const std::string& key, const std::string& expected, T missing) {
    Require(false, key, fmt::format("expected {}, found {}", expected, Found(key)));
    return missing;
  }

  std::string Found(const std::string& key) const {
    const Json& value = json_.at(key);
    if (value.is_structured()) {
      return value.is_array() ? "a list" : "an object";
    }
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  const Json& json_;
  const ConfigValue& places_;
  mutable std::set<std::string> read_;  ///< keys that were asked for, whether there or not
  Status status_ = Done{};
};

}  // namespace tidemark
