// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/configs/config.h"

namespace tidemark {

/// Typed access to the keys of one file. JSON gives the types, the ConfigValue the lines. The first error is kept and
/// every later read returns its default, so that a reader states its keys without a branch behind each. A key may be
/// missing, or be null: a class of transformers has a default for the one, and takes the other where it says so.
class HuggingFaceKeys {
 public:
  using Json = nlohmann::json;

  HuggingFaceKeys(const Json& json, const ConfigValue& places) : json_(json), places_(places) {}

  std::int64_t Whole(const std::string& key, std::int64_t missing, std::int64_t least = 1);
  std::int64_t WholeOrNull(const std::string& key, std::int64_t missing, std::int64_t of_null, std::int64_t least = 1);
  double Fraction(const std::string& key, double missing);  ///< at least 0 and below 1
  bool Truth(const std::string& key, bool missing);
  std::string Word(const std::string& key, const std::string& missing);
  std::vector<std::string> Words(const std::string& key);  ///< none where it is missing or null
  std::set<std::int64_t> Numbers(const std::string& key);  ///< none where it is missing or null
  bool Has(const std::string& key) const;                  ///< and it is not null

  /// Keeps the error that the value of `key` is one the tables cannot represent.
  void Require(bool condition, const std::string& key, std::string expectation, std::string hint = {});

  /// Keeps, in front of all others, the error that a key is read by nobody and one letter away from a missing one, the
  /// default of which has taken its place. Called when all is read; other unknown keys are ignored.
  void RequireNoSlips();

  const Status& status() const { return status_; }

 private:
  const Json* Find(const std::string& key) const;  ///< nullptr: it is missing

  const ConfigValue& Place(const std::string& key) const;
  std::string Found(const std::string& key) const;

  template <class T>
  T Refuse(const std::string& key, const std::string& expected, T missing);

  const Json& json_;
  const ConfigValue& places_;
  mutable std::set<std::string> read_;  ///< keys that were asked for, whether there or not
  Status status_ = Done{};
};

}  // namespace tidemark
