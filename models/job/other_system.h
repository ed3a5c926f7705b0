// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/configs/value.h"
#include "models/job/job.h"

namespace tidemark {

/// How another tool's config (`theirs`) has its own system synchronise, shard, buffer and scale says nothing about a
/// strategy that has no such setting, or does not take the loss's scale beside its own defaults: these are dropped from
/// `settings`. What the command line says stays, and so does what changes a whole step (an optimizer in host memory).
void DropSettingsOfOthers(const Settings& theirs, const StrategyDefaults& strategy, Settings& settings);

}  // namespace tidemark
