// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "models/configs/tool_fields.h"
#include "models/configs/value.h"

namespace tidemark {

/// Whose program reads a file of TrainingArguments: each has defaults and fields of its own.
enum class Recipe : std::uint8_t { transformers, trl, llama_factory, open_instruct, axolotl };

/// By fields that only one of them has; axolotl's files have another form (config_axolotl.cc).
Recipe RecipeOf(const ConfigValue& root);
std::string_view NameOf(Recipe recipe);

/// Whether it computes in bf16 where nobody says so: TRL's bf16 is true by itself, and open-instruct's launchers say
/// it.
bool IsInBf16ByItself(Recipe recipe);

/// Refuses misspelt fields, trainers of several models, training of something else than all weights, and values that
/// are not modelled, unless `given` says what is asked for in their place.
Status CheckTransformersFields(const ConfigValue& root, Recipe recipe, const Settings& given);

/// The fields of such a file.
class TransformersFields : public ToolFields {
 public:
  TransformersFields(const ConfigValue& root, Recipe recipe) : ToolFields(root, NameOf(recipe)) {}

  /// Whether the file says null, which is no default where null means something.
  bool IsNull(std::string_view path) const {
    const ConfigValue* value = root().FindPath(path);
    return value != nullptr && value->is_null();
  }
};

/// Whether the kernel of attention that is asked for leaves out what a window hides. PyTorch's own, which transformers
/// takes by itself, is given a mask and leaves out nothing.
Result<bool> LeavesOutWhatWindowsHide(const TransformersFields& fields, Recipe recipe);

}  // namespace tidemark
