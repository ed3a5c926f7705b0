// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"
#include "base/result.h"
#include "models/network/network.h"

namespace tidemark {

/// The networks this program knows by name: Hugging Face config.json files (models/zoo/*.json), reduced to what decides
/// the shape. Generated.
std::span<const EmbeddedFile> ZooFiles();

/// Their names, sorted.
std::vector<std::string> ZooNames();

/// The network of that name; an unknown name is refused with the nearest known one.
Result<Network> FindInZoo(std::string_view name);

}  // namespace tidemark
