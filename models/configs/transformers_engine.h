// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/configs/transformers_fields.h"
#include "models/configs/value.h"

namespace tidemark {

/// What wraps the model that a Trainer trains.
enum class Engine : std::uint8_t { ddp, fsdp, deepspeed };

/// What the file says, and where it says nothing (accelerate's launcher says it then) what the strategy of the command
/// line belongs to; else DDP.
Result<Engine> EngineOf(const TransformersFields& fields, const Settings& given);

/// Whether shards stay within a machine, so that somebody must say how many machines there are.
bool ShardsWithinMachines(const TransformersFields& fields);

/// What an engine has to know of the other arguments.
struct TrainerArguments {
  TransformersFields fields;
  const Settings& given;
  Settings known;            ///< all that was read so far, and what is given
  std::string mixed = "no";  ///< "bf16", "fp16"
  ConfigValue mixed_place;
  ConfigValue loaded;  ///< the dtype of the model's weights; empty text: nobody says it
  bool recomputes = false;
};

/// Strategy, sharding, synchronisation and dtypes.
Result<Settings> ReadEngine(Engine engine, const TrainerArguments& arguments);

}  // namespace tidemark
