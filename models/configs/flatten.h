// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// A nested config as dotted keys. `keys` are the ones that exist. Refuses any other, naming its place and the nearest
/// that exists. A null means "not given" and disappears.
Result<Settings> Flatten(const ConfigValue& root, const std::set<std::string>& keys);

/// The error for a key that does not exist.
Error UnknownKey(const ConfigValue& value, const std::string& key, const std::set<std::string>& keys);

}  // namespace tidemark
