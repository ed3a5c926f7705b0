// SPDX-License-Identifier: Apache-2.0
#include "models/configs/config.h"
#include "models/configs/flatten.h"
#include "models/job/fields.h"

namespace tidemark {
namespace {

/// Anything that has the two keys which no other tool uses at the top of its configs, or tries to: misspelled jobs
/// should be told about their keys, not that they are no jobs.
bool Recognises(const ConfigValue& root) {
  const bool has_network = root.Find("network") != nullptr;
  return has_network || (root.Find("strategy") != nullptr && root.Find("machine") != nullptr) ||
         (root.Find("layout") != nullptr && root.Find("sequence_length") != nullptr);
}

Result<Settings> Read(const ConfigValue& root, const Settings& /*given*/) {
  return Flatten(root, JobKeys(), NullableJobKeys());
}

}  // namespace

ConfigFormat ConfigTidemark() {
  return {"tidemark", "Tidemark's own job file (YAML): network, machine, layout, strategy and its axes", &Recognises,
          &Read, true};
}

}  // namespace tidemark
