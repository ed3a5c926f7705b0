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

/// Whose program reads a file of TrainingArguments: each has defaults and fields of its own.
enum class Recipe : std::uint8_t { transformers, trl, llama_factory, open_instruct, axolotl };

/// By fields that only one of them has; axolotl's files have another form (config_axolotl.cc).
Recipe RecipeOf(const ConfigValue& root);
std::string NameOf(Recipe recipe);

/// Refuses misspelt fields, trainers of several models, training of something else than all weights, and values that
/// are not modelled, unless `given` says what is asked for in their place.
Status CheckTransformersFields(const ConfigValue& root, Recipe recipe, const Settings& given);

/// The fields of such a file by their paths, with a default where the file has none. Errors say the place.
class TransformersFields {
 public:
  TransformersFields(const ConfigValue& root, Recipe recipe) : root_(root), recipe_(recipe) {}

  const ConfigValue* Given(std::string_view path) const { return tidemark::Given(root_, path); }

  /// Whether the file says null, which is no default where null means something.
  bool IsNull(std::string_view path) const {
    const ConfigValue* value = root_.FindPath(path);
    return value != nullptr && value->is_null();
  }

  ConfigValue Default(std::string text) const {
    ConfigValue value = MakeScalar(std::move(text), fmt::format("default of {}", NameOf(recipe_)));
    value.where = root_.where;
    return value;
  }

  ConfigValue Value(std::string_view path, std::string_view absent) const {
    const ConfigValue* value = Given(path);
    return value == nullptr ? Default(std::string(absent)) : *value;
  }

  template <class Form>
  auto Read(const Form& form, std::string_view path, std::string_view absent) const {
    const ConfigValue value = Value(path, absent);
    return form.Read(value).At(fmt::format("{}: {}", value.where, path));
  }

  Result<bool> IsTrue(std::string_view path, bool absent = false) const {
    return Read(Truth{}, path, absent ? "true" : "false");
  }

 private:
  const ConfigValue& root_;
  Recipe recipe_;
};

}  // namespace tidemark
