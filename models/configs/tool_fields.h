// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "models/configs/field.h"
#include "models/configs/translation.h"
#include "models/configs/value.h"

namespace tidemark {

/// The fields of another tool's config by their paths ("training.seq_len"), with the tool's default where the file has
/// none. Errors say the place.
class ToolFields {
 public:
  /// `tool` is whose defaults they are; both must outlive this.
  ToolFields(const ConfigValue& root, std::string_view tool) : root_(root), tool_(tool) {}

  const ConfigValue& root() const { return root_; }

  const ConfigValue* Given(std::string_view path) const { return tidemark::Given(root_, path); }
  bool Has(std::string_view path) const { return Given(path) != nullptr; }

  ConfigValue Value(std::string_view path, std::string_view absent) const {
    const ConfigValue* value = Given(path);
    return value == nullptr ? Default(std::string(absent)) : *value;
  }

  /// What the tool takes where the file says nothing.
  ConfigValue Default(std::string text) const {
    ConfigValue value =
        MakeScalar(std::move(text), fmt::format("{}{} default", tool_, tool_.ends_with('s') ? "'" : "'s"));
    value.where = root_.where;
    return value;
  }

  /// Another text at the field's place.
  ConfigValue Retold(std::string_view path, std::string_view absent, std::string text) const {
    return tidemark::Retold(Value(path, absent), std::move(text));
  }

  /// The field in a form of values (models/configs/field.h).
  template <class Form>
  auto Read(const Form& form, std::string_view path, std::string_view absent) const {
    const ConfigValue value = Value(path, absent);
    return form.Read(value).At(fmt::format("{}: {}", value.where, path));
  }

  Result<std::int64_t> Whole(std::string_view path, std::int64_t absent, std::int64_t least = 1) const {
    return Read(WholeNumber{least, 1 << 20}, path, std::to_string(absent));
  }

  Result<bool> IsTrue(std::string_view path, bool absent = false) const {
    return Read(Truth{}, path, absent ? "true" : "false");
  }

  /// One of a few names, as it is called here.
  Result<std::string> OneOf(const Choice<std::string>& choice, std::string_view path, std::string_view absent) const {
    return Read(choice, path, absent);
  }

  Error Refuse(std::string_view path, std::string_view absent, std::string message, std::string hint) const {
    return ErrorAt(Value(path, absent), path, std::move(message), std::move(hint));
  }

 private:
  const ConfigValue& root_;
  std::string_view tool_;
};

}  // namespace tidemark
