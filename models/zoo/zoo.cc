// SPDX-License-Identifier: Apache-2.0
#include "models/zoo/zoo.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "models/configs/config_huggingface.h"

namespace tidemark {

std::vector<std::string> ZooNames() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : ZooFiles()) {
    names.emplace_back(file.name);
  }
  std::sort(names.begin(), names.end());  // files are in the order of their paths, in which "-" precedes "."
  return names;
}

Result<Network> FindInZoo(std::string_view name) {
  for (const EmbeddedFile& file : ZooFiles()) {
    if (file.name == name) {
      return ReadHuggingFaceConfig(file.text, fmt::format("{}.json", name));
    }
  }
  const std::string nearest = Nearest(name, ZooNames());
  return BadInput(
      fmt::format("expected a network of the zoo, found '{}'", name),
      nearest.empty() ? "`tidemark list networks` prints their names" : fmt::format("did you mean {}?", nearest));
}

}  // namespace tidemark
