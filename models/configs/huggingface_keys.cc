// SPDX-License-Identifier: Apache-2.0
#include "models/configs/huggingface_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace tidemark {
namespace {

/// What a shape may be at most; BuildBlocks has narrower bounds, with the reasons.
constexpr std::int64_t kLargestShape = std::int64_t{1} << 31;

}  // namespace

template <class T>
T HuggingFaceKeys::Refuse(const std::string& key, const std::string& expected, T missing) {
  Require(false, key, fmt::format("expected {}, found {}", expected, Found(key)));
  return missing;
}

std::int64_t HuggingFaceKeys::Whole(const std::string& key, std::int64_t missing, std::int64_t least) {
  const Json* value = Find(key);
  if (value == nullptr) {
    return missing;
  }
  const bool fits = value->is_number_integer() && *value >= least && *value <= kLargestShape;
  return fits ? value->get<std::int64_t>()
              : Refuse(key, fmt::format("a whole number from {} to {}", least, kLargestShape), missing);
}

std::int64_t HuggingFaceKeys::WholeOrNull(const std::string& key, std::int64_t missing, std::int64_t of_null,
                                          std::int64_t least) {
  const Json* value = Find(key);
  return value != nullptr && value->is_null() ? of_null : Whole(key, missing, least);
}

double HuggingFaceKeys::Fraction(const std::string& key, double missing) {
  const Json* value = Find(key);
  if (value == nullptr) {
    return missing;
  }
  const bool fits = value->is_number() && value->get<double>() >= 0 && value->get<double>() < 1;
  return fits ? value->get<double>() : Refuse(key, "a number of at least 0 and below 1", missing);
}

bool HuggingFaceKeys::Truth(const std::string& key, bool missing) {
  const Json* value = Find(key);
  if (value == nullptr) {
    return missing;
  }
  return value->is_boolean() ? value->get<bool>() : Refuse(key, "true or false", missing);
}

std::string HuggingFaceKeys::Word(const std::string& key, const std::string& missing) {
  const Json* value = Find(key);
  if (value == nullptr) {
    return missing;
  }
  return value->is_string() ? value->get<std::string>() : Refuse(key, "a word in quotes", missing);
}

std::vector<std::string> HuggingFaceKeys::Words(const std::string& key) {
  if (!Has(key)) {
    return {};
  }
  const Json* value = Find(key);
  const auto is_word = [](const Json& one) { return one.is_string(); };
  const bool fits = value->is_array() && std::all_of(value->begin(), value->end(), is_word);
  return fits ? value->get<std::vector<std::string>>() : Refuse(key, "a list of words", std::vector<std::string>());
}

std::set<std::int64_t> HuggingFaceKeys::Numbers(const std::string& key) {
  if (!Has(key)) {
    return {};
  }
  const Json* value = Find(key);
  const auto is_number = [](const Json& one) { return one.is_number_unsigned() && one <= kLargestShape; };
  const bool fits = value->is_array() && std::all_of(value->begin(), value->end(), is_number);
  return fits ? value->get<std::set<std::int64_t>>()
              : Refuse(key, "a list of numbers from 0 on", std::set<std::int64_t>());
}

void HuggingFaceKeys::Require(bool condition, const std::string& key, std::string expectation, std::string hint) {
  if (!condition && status_.ok()) {
    status_ = ErrorAt(Place(key), key, std::move(expectation), std::move(hint));
  }
}

void HuggingFaceKeys::RequireNoSlips() {
  for (const auto& [key, value] : json_.items()) {
    if (value.is_null() || read_.contains(key)) {
      continue;
    }
    const auto slip_of = [&key = key](const std::string& read) {
      return std::max(key.size(), read.size()) - std::min(key.size(), read.size()) <= 1 && EditDistance(key, read) == 1;
    };
    const auto meant =
        std::find_if(read_.begin(), read_.end(), [&](const std::string& read) { return !Has(read) && slip_of(read); });
    if (meant != read_.end()) {
      status_ =
          ErrorAt(Place(key), key, "there is no such key", fmt::format("did you mean {}? Else remove it", *meant));
      return;
    }
  }
}

const HuggingFaceKeys::Json* HuggingFaceKeys::Find(const std::string& key) const {
  read_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() ? nullptr : &*found;
}

bool HuggingFaceKeys::Has(const std::string& key) const {
  const Json* value = Find(key);
  return value != nullptr && !value->is_null();
}

const ConfigValue& HuggingFaceKeys::Place(const std::string& key) const {
  const ConfigValue* place = places_.Find(key);
  return place == nullptr ? places_ : *place;
}

std::string HuggingFaceKeys::Found(const std::string& key) const {
  const Json& value = json_.at(key);
  if (value.is_structured()) {
    return value.is_array() ? "a list" : "an object";
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tidemark
