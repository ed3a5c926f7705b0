// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "models/configs/value.h"
#include "models/network/network.h"

namespace tidemark {

/// The network of a job, from its `network` keys: a name from the zoo, a Hugging Face config.json or the folder that
/// has it (relative to `folder`, see FolderOf), the name of a model of the hub that the zoo knows (NetworkOfHub; a
/// file or folder of that name comes first), inline fields, or a table. Writes down in `sources` where each value came
/// from.
Result<Network> ReadNetwork(const Settings& settings, const std::string& folder,
                            std::map<std::string, std::string>& sources);

}  // namespace tidemark
