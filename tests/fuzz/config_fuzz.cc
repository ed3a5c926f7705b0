// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "models/job/read.h"
#include "sim/strategies/strategy.h"

namespace {

/// What configs of other tools leave open.
const std::vector<std::string> kSet = {"network=gpt2",         "sequence_length=128",  "layout.dp=4",
                                       "micro_batch_size=1",   "accumulation_steps=2", "precision.params=bf16",
                                       "machine=h100-sxm-80gb"};

}  // namespace

/// Any text, as YAML or JSON and as TOML, is either refused with a sentence or becomes a job, with and without what the
/// command line may say.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* path : {"job.yaml", "job.toml"}) {
    for (const std::vector<std::string>& set : {std::vector<std::string>(), kSet}) {
      const tidemark::Result<tidemark::Job> job =
          tidemark::ParseJob(text, path, {set, std::nullopt, {}}, tidemark::KnownStrategies());
      TIDEMARK_CHECK(job.ok() || !job.error().message.empty());
    }
  }
  return 0;
}
