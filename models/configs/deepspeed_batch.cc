// SPDX-License-Identifier: Apache-2.0
#include "models/configs/deepspeed_batch.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

#include "models/configs/field.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::string_view kTrain = "train_batch_size";
constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
constexpr std::string_view kSteps = "gradient_accumulation_steps";

struct Count {
  std::optional<std::int64_t> value;
  ConfigValue place;  ///< what says it, or what it follows from
};

Result<Count> ReadCount(const ConfigValue* value, std::string_view key) {
  if (value == nullptr) {
    return Count{};
  }
  const WholeNumber bounds{1, std::int64_t{1} << (key == kTrain ? 40 : 20)};  // their product is a whole number
  TIDEMARK_ASSIGN(const std::int64_t count, bounds.Read(*value).At(fmt::format("{}: {}", value->where, key)));
  return Count{count, *value};
}

/// A count by its key here on the command line, else by its field in the file.
Result<Count> ReadCount(const ConfigValue& root, const Settings& given, std::string_view field,
                        const std::string& key) {
  const ConfigValue* value = Find(given, key);
  return value != nullptr ? ReadCount(value, key) : ReadCount(Said(root, field), field);
}

void Put(Settings& settings, const std::string& key, const Count& count) {
  if (count.value) {
    settings[key] = Retold(count.place, std::to_string(*count.value));
  }
}

}  // namespace

const ConfigValue* Said(const ConfigValue& root, std::string_view path) {
  const ConfigValue* value = Given(root, path);
  const bool is_auto = value != nullptr && value->kind == ConfigValue::Kind::scalar && value->text == "auto";
  return is_auto ? nullptr : value;
}

Status ReadDeepSpeedBatch(const ConfigValue& root, const Settings& given, Settings& settings) {
  TIDEMARK_ASSIGN(const Count train, ReadCount(Said(root, kTrain), kTrain));
  TIDEMARK_ASSIGN(Count micro, ReadCount(root, given, kMicro, "micro_batch_size"));
  TIDEMARK_ASSIGN(Count steps, ReadCount(root, given, kSteps, "accumulation_steps"));
  TIDEMARK_ASSIGN(Count ranks, ReadCount(Find(given, "layout.dp"), "layout.dp"));
  const bool steps_are_auto = !steps.value && Given(root, kSteps) != nullptr;
  const Count one{1, MakeScalar("1", "default of DeepSpeed")};
  if (train.value && micro.value && !steps.value && ranks.value) {
    steps = {*train.value / *micro.value / *ranks.value, train.place};
  } else if (!steps.value && !steps_are_auto && !(train.value && micro.value)) {
    steps = one;
  }
  if (train.value && steps.value && ranks.value && !micro.value) {
    micro = {*train.value / *ranks.value / *steps.value, train.place};
  } else if (train.value && steps.value && micro.value && !ranks.value) {
    ranks = {*train.value / *micro.value / *steps.value, train.place};
  }
  for (const Count* count : {&micro, &steps, &ranks}) {
    if (count->value == 0) {
      return ErrorAt(train.place, kTrain,
                     fmt::format("{} samples are fewer than one for each rank and microbatch", *train.value),
                     "set another layout.dp, micro_batch_size or accumulation_steps");
    }
  }
  // A batch of another size is what somebody asks about who sets one of its parts.
  const bool other = given.contains("micro_batch_size") || given.contains("accumulation_steps");
  if (train.value && micro.value && steps.value && ranks.value && !other &&
      *micro.value * *steps.value * *ranks.value != *train.value) {
    return ErrorAt(
        train.place, kTrain,
        fmt::format("is not equal to micro_batch_per_gpu * gradient_acc_step * world_size: {} != {} * {} * {}",
                    *train.value, *micro.value, *steps.value, *ranks.value),
        "set another layout.dp, or the size of a batch of your own by micro_batch_size or "
        "accumulation_steps");
  }
  Put(settings, "micro_batch_size", micro);
  Put(settings, "accumulation_steps", steps);
  Put(settings, "layout.dp", ranks);
  return Done{};
}

}  // namespace tidemark
