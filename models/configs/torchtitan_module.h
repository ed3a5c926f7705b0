// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// A module in what torchtitan saves of a config: its fields, by its path in the file. Errors name that path; the
/// config must outlive it.
class TorchtitanModule {
 public:
  TorchtitanModule(const ConfigValue& value, std::string path) : value_(value), path_(std::move(path)) {}

  const ConfigValue& value() const { return value_; }
  std::string PathOf(std::string_view key) const;
  /// Whether the field is there, and not null.
  bool Has(std::string_view key) const;
  /// False of a field that is not there, or null.
  Result<bool> IsTrue(std::string_view key) const;

  /// Of a field, or of the module where it has none such. Without a hint: to name a network instead.
  Error Refuse(std::string_view key, std::string message, std::string hint = "") const;
  /// Refuses what is no module and fields that are not among these: they are of other modules. All have an
  /// initialisation and a division over ranks.
  Status Check(std::span<const std::string_view> known) const;

  Result<TorchtitanModule> At(std::string_view key, std::span<const std::string_view> known) const;
  Result<std::int64_t> Whole(std::string_view key, std::int64_t most = std::int64_t{1} << 40) const;
  Result<std::int64_t> WholeOr(std::string_view key, std::int64_t absent) const;
  /// Fails where the field is there and says another number.
  Status CheckWhole(std::string_view key, std::int64_t expected) const;

  /// A linear layer of just these sizes; whether it has a bias.
  Result<bool> Linear(std::string_view key, std::int64_t in, std::int64_t out) const;
  /// The same without a bias.
  Status CheckLinear(std::string_view key, std::int64_t in, std::int64_t out) const;
  /// A norm of so many numbers with a weight.
  Status CheckNorm(std::string_view key, std::int64_t width) const;
  /// The width of a gated feed-forward part of three linear layers.
  Result<std::int64_t> FeedForwardWidth(std::string_view key, std::int64_t hidden) const;

 private:
  const ConfigValue& value_;
  std::string path_;
};

}  // namespace tidemark
