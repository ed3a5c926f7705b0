// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/job/allocator_options.h"

namespace tidemark {

/// An allocator by its keys in a job, with or without their section: "kind=arena", "allocator.max_split_size=128 MiB".
/// Later ones win; what none says is as in `base`, but another kind begins with no knob set. Refuses what a job's
/// allocator would refuse.
Result<AllocatorOptions> ReadAllocator(const AllocatorOptions& base, std::span<const std::string> settings);

/// The allocator of a resolved job (JobYaml); PyTorch's without knobs where the text is empty.
Result<AllocatorOptions> AllocatorOfJobYaml(const std::string& job_yaml);

/// What ReadAllocator takes to make these options: "kind=torch-caching", and each knob that is not at its default.
std::vector<std::string> AllocatorSettings(const AllocatorOptions& options);
/// The same for a person: "torch-caching max_split_size=128MiB".
std::string AllocatorText(const AllocatorOptions& options);

}  // namespace tidemark
