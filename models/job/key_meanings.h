// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tidemark {

/// What a key of the job says, as a noun phrase for those who do not know it: "how many GPUs share each layer". Empty
/// for a key that no job has, and for those of a machine, whose file says what they are.
std::string_view MeaningOf(std::string_view key);

}  // namespace tidemark
