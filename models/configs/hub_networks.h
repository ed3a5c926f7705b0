// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

/// The network of the zoo that a model of Hugging Face's hub has ("meta-llama/Meta-Llama-3-8B": "llama-3-8b"), layer by
/// layer and row by row of its vocabulary; empty where the zoo has none of these sizes. Case does not matter.
std::string_view NetworkOfHub(const std::string& name);

/// The names that it knows, in small letters.
std::vector<std::string> HubNames();

}  // namespace tidemark
