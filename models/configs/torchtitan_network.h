// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// The network that a saved config of torchtitan describes module by module (`model_spec`: name, flavor, model;
/// b5bcd76c, torchtitan/models/common/decoder.py, attention.py, feed_forward.py): a decoder whose layers are all alike,
/// with grouped-query attention and a gated feed-forward part or experts. Refuses modules of other kinds, and fields of
/// theirs that this version does not know, as those of quantized linear layers are.
Status ReadTorchtitanNetwork(const ConfigValue& spec, Settings& settings);

}  // namespace tidemark
