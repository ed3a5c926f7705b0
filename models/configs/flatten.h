// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// A nested config as dotted keys. `keys` are the ones that exist. Refuses any other, naming its place and the nearest
/// that exists. A null of a key in `nullable`, or of a section, means "not given" and disappears; any other stays, for
/// whoever reads the value to refuse.
Result<Settings> Flatten(const ConfigValue& root, const std::set<std::string>& keys,
                         const std::set<std::string>& nullable = {});

/// The error for a key that does not exist.
Error UnknownKey(const ConfigValue& value, const std::string& key, const std::set<std::string>& keys);

}  // namespace tidemark
