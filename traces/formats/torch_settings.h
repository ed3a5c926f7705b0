// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "traces/formats/pickle_value.h"

namespace tidemark {

/// A snapshot's `allocator_settings` (torch/csrc/cuda/Module.cpp, since PyTorch 2.3) as Trace::allocator has them: the
/// knobs that are not at their defaults. What has a key of its own there is in force; three are told by the last text
/// of PYTORCH_CUDA_ALLOC_CONF alone. garbage_collection_threshold is told with the memory fraction that it is a part
/// of: without one it does nothing. Empty for what is no such dictionary.
std::vector<std::string> TorchSettings(const PickleHeap& heap, PickleValue settings);

/// What PYTORCH_CUDA_ALLOC_CONF says where a trace has these settings (Trace::allocator); empty under another
/// allocator than PyTorch's. A size that is no whole MiB, which it cannot say, is left out.
std::string TorchAllocConf(std::span<const std::string> settings);

}  // namespace tidemark
